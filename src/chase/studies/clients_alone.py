"""Part of ``why.md``: how far clients come alone, and what is then left of their EV (study ``isolated``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chase.report.cells import NONE, Cell, number, with_interval
from chase.report.client_results import client_accuracies
from chase.report.runs import MethodRuns, RunData
from chase.report.statistics import interval
from chase.report.tables import ReportTable
from chase.studies.overview import name_of_data
from chase.studies.results import SceneResult, StudyResult
from chase.studies.scene_tables import changed

ROUNDS = (1, 2, 5, 10)
"""After which rounds it is told; in the first one clients have their initial labels only."""

ALONE_NOTE = """Here every client trains alone with CHASe, and no model is averaged (ReCo, settings of the preset). Own
classes: accuracy on test samples in the client's own mix of classes, mean over clients; in round 1 clients have their
initial labels only. Mean EV: of the samples that they watched; it counts changes from one local epoch to the next.
Where a client tells its own classes apart, EV has little left to see. What the global model still gets wrong, classes
of other clients, it cannot see.
"""


def clients_alone(studies: Sequence[StudyResult]) -> ReportTable | None:
    """A row per data set and round; None where no client was run alone under the settings of its preset.

    Of several studies of a data set the one with most runs counts.
    """
    found: dict[str, MethodRuns] = {}
    for result in studies:
        for scene in result.scenes if result.study.name == "isolated" else ():
            own = [m for m in scene.methods if m.label == "isolated"] if scene.finished and as_preset(scene) else []
            known = found.get(scene.data)
            if own and (known is None or len(own[0].runs) > len(known.runs)):
                found[scene.data] = own[0]
    rows = [row_at(data, m.runs, at) for data, m in found.items() for at in ROUNDS if at in m.shared_rounds()]
    columns = ("data", "round", "seeds", "labels per client", "accuracy on own classes, %", "mean EV")
    return ReportTable(columns, rows) if rows else None


def as_preset(scene: SceneResult) -> bool:
    """Whether a scene has all data and the settings of its preset."""
    settings = scene.jobs[0].settings
    return settings.data_share == 1 and not settings.test_limit and not changed(scene)


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
