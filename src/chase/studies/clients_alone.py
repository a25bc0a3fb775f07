"""Part of ``why.md``: how far clients come alone, and what is then left of their EV (study ``isolated``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chase.report.cells import NONE, Cell, number, with_interval
from chase.report.client_results import client_accuracies
from chase.report.runs import RunData
from chase.report.statistics import interval
from chase.report.tables import ReportTable
from chase.studies.overview import name_of_data
from chase.studies.results import StudyResult
from chase.studies.scene_tables import changed

ROUNDS = (1, 2, 5, 10)
"""After which rounds it is told; in the first one clients have their initial labels only."""

ALONE_NOTE = """Alone: every client trains a model of its own and joins none (ReCo, six seeds unless a row says
otherwise). Own classes: accuracy on test samples in the client's own mix of classes, mean over clients; in round 1
clients have their initial labels only. Mean EV: of the samples that they watched, of at most nine changes. Where the
own classes are told apart, EV has little left to see, and what is still wrong, other clients' classes, it cannot see.
"""


def clients_alone(studies: Sequence[StudyResult]) -> ReportTable | None:
    """A row per data set and round; None where no client was run alone under the settings of its preset."""
    rows: list[list[Cell]] = []
    for result in studies:
        for scene in result.scenes if result.study.name == "isolated" else ():
            own = [m for m in scene.methods if m.label == "isolated"]
            if scene.finished and own and not changed(scene):
                rows += [row_at(scene.data, own[0].runs, at) for at in ROUNDS if at in own[0].shared_rounds()]
    columns = ("data", "round", "seeds", "labels per client", "accuracy on own classes, %", "mean EV")
    return ReportTable(columns, rows) if rows else None


def row_at(data: str, runs: Sequence[RunData], at: int) -> list[Cell]:
    """Means over the runs as they were after a round."""
    cut = [replace(run, metrics=run.metrics[:at]) for run in runs]
    own = [found for run in cut if (found := own_accuracy(run)) is not None]
    labels = [run.metrics[-1]["pools"]["labeled"] / run.settings["clients"] for run in cut]
    ev = [run.metrics[-1]["mean_ev"] for run in cut if run.metrics[-1]["mean_ev"] is not None]
    shown = with_interval(interval(np.array(own)).within(0, 100)) if own else NONE
    mean_ev = number(float(np.mean(ev)), 2) if ev else NONE
    return [name_of_data(data), number(at, 0), len(runs), number(float(np.mean(labels)), 0), shown, mean_ev]


def own_accuracy(run: RunData) -> float | None:
    """Accuracy in percent on the clients' own mixes of classes, mean over clients."""
    found = client_accuracies(run)
    return None if found is None else 100 * float(found.mean())
