"""The rule of the study ``recommend``: mean rank over data sets of the area under the label curve."""

from __future__ import annotations

import numpy as np

from chase.report.statistics import label_area
from chase.report.tables import ReportTable
from chase.studies.recommend import mean_ranks
from chase.studies.results import StudyResult

WHOLE = 4
"""Data sets, and below it seeds, of a choice that is not provisional."""
SEEDS = 6


def areas(result: StudyResult) -> dict[str, dict[str, float]]:
    """The mean area over seeds, in percent, by scene and method."""
    found: dict[str, dict[str, float]] = {}
    for scene in result.scenes:
        if scene.methods:
            until = min(int(run.rounds[-1]) for method in scene.methods for run in method.runs)
            area = label_area(scene.methods, until)
            found[scene.scene] = {m.label: float(np.mean([area(run) for run in m.runs])) for m in scene.methods}
    return found


def ranking(result: StudyResult) -> ReportTable:
    """Methods by mean rank, with their area on every data set."""
    found = areas(result)
    rows = [
        [name, f"{rank:.1f}", *(f"{found[scene][name]:.1f}" for scene in found)]
        for name, rank in mean_ranks(found).items()
    ]
    title = "Mean rank of the area under the label curve, and the area on each data set (mean accuracy in %)"
    return ReportTable(("method", "mean rank", *found), rows, title)


def recommendation(result: StudyResult) -> str:
    """The winner in one sentence; from fewer runs than the rule asks for it is called provisional."""
    found = areas(result)
    ranks = mean_ranks(found)
    if not ranks:
        return "no method has a finished run on every data set yet, so nothing is recommended"
    winner = next(iter(ranks))
    seeds = min(len(method.runs) for scene in result.scenes for method in scene.methods)
    whole = len(found) >= WHOLE and seeds >= SEEDS
    basis = f"{len(found)} data set{'s' if len(found) > 1 else ''} and {seeds} seed{'s' if seeds > 1 else ''}"
    return f"recommended{'' if whole else ' provisionally'}: {winner} (mean rank {ranks[winner]:.1f}; {basis})"
