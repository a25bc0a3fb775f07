"""What the study ``recommend`` found: mean ranks, the winner, and the labels needed to reach the paper's accuracy.

Seeds 0 to 5 choose, seeds 6 to 11 report: the choice never sees the runs that the published figures come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chase.report.cells import Cell, number, with_interval
from chase.report.runs import MethodRuns, RunData, accuracy
from chase.report.statistics import interval, label_area
from chase.report.tables import ReportTable
from chase.studies import paper
from chase.studies.recommend import ARMS, mean_ranks
from chase.studies.results import SceneResult, StudyResult

WHOLE = 4
"""Data sets, and below it seeds, of a choice that is not provisional."""
SEEDS = 6
CANDIDATES = frozenset(arm.label for arm in ARMS)
CHOOSING, REPORTING = range(SEEDS), range(SEEDS, 2 * SEEDS)


def of_seeds(scene: SceneResult, seeds: range) -> list[MethodRuns]:
    """The candidates in a scene with the runs of these seeds alone; who buys no labels is no candidate."""
    methods = [method for method in scene.methods if method.label in CANDIDATES]
    found = [replace(m, runs=[run for run in m.runs if run.seed in seeds]) for m in methods]
    return [method for method in found if method.runs]


def chosen_on(result: StudyResult) -> dict[str, list[MethodRuns]]:
    """The runs that choose, by scene."""
    found = {scene.scene: of_seeds(scene, CHOOSING) for scene in result.scenes}
    return {scene: methods for scene, methods in found.items() if methods}


def areas(result: StudyResult) -> dict[str, dict[str, float]]:
    """The mean area over the choosing seeds, in percent, by scene and method."""
    found: dict[str, dict[str, float]] = {}
    for scene, methods in chosen_on(result).items():
        until = min(int(run.rounds[-1]) for method in methods for run in method.runs)
        area = label_area(methods, until)
        found[scene] = {m.label: float(np.mean([area(run) for run in m.runs])) for m in methods}
    return found


def inferences(result: StudyResult) -> dict[str, float]:
    """Forward passes per run outside training, by method: the cheaper of two that share a rank wins."""
    spent: dict[str, list[float]] = {}
    for methods in chosen_on(result).values():
        for method in methods:
            spent.setdefault(method.label, []).extend(float(run.series("inferences").sum()) for run in method.runs)
    return {label: float(np.mean(values)) for label, values in spent.items()}


def ranking(result: StudyResult) -> ReportTable:
    """Methods by mean rank, with their area on every data set."""
    found = areas(result)
    rows: list[list[Cell]] = [
        [name, number(rank, 1), *(number(found[scene][name], 1) for scene in found)]
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
    cost = inferences(result)
    winner = min(ranks, key=lambda name: (ranks[name], cost[name], name))
    seeds = min(len(method.runs) for methods in chosen_on(result).values() for method in methods)
    whole = len(found) >= WHOLE and seeds >= SEEDS
    basis = f"{len(found)} data set{'s' if len(found) > 1 else ''} and {seeds} seed{'s' if seeds > 1 else ''}"
    return f"recommended{'' if whole else ' provisionally'}: {winner} (mean rank {ranks[winner]:.1f}; {basis})"


def labels_to(run: RunData, percent: float) -> float:
    """Labels in all, initial ones included, at the first evaluated round of at least this accuracy; NaN if never."""
    there = np.flatnonzero(accuracy(run) >= percent)
    return float(run.metrics[int(there[0])]["pools"]["labeled"]) if there.size else float("nan")


def labels_needed(result: StudyResult) -> ReportTable:
    """Labels with which each method reaches the paper's final CHASe accuracy, per data set, with intervals."""
    rows: list[list[Cell]] = []
    for scene in result.scenes:
        target = paper.accuracy(scene.data, "CHASe").get(paper.ROUNDS[-1])
        methods, seeds = _reported(scene)
        if target is None:
            continue
        for method in methods:
            needed = np.array([labels_to(run, target) for run in method.runs])
            known = int(np.isfinite(needed).sum())
            most = max(float(run.metrics[-1]["pools"]["labeled"]) for run in method.runs)
            found: Cell = with_interval(interval(needed).within(0), 0) if known else f"more than {most:,.0f}"
            rows.append([scene.scene, number(target, 1), method.label, found, f"{known} of {len(needed)}", seeds])
    columns = ("data", "paper's CHASe, %", "method", "labels needed", "seeds that reach it", "seeds")
    title = "Labels needed to reach the accuracy that the paper's CHASe ends with (initial labels included)"
    return ReportTable(columns, rows, title, text_columns=1, words=frozenset({2, 4, 5}))


NEEDED = (
    "Counted at the first round that reaches the accuracy, so up to one request too many; where only some seeds reach "
    "it, the mean is over those. The paper's 200 rounds of ReCo buy some 9,000 labels."
)


def _reported(scene: SceneResult) -> tuple[Sequence[MethodRuns], str]:
    """The runs of the reporting seeds; those that chose where there are none yet, and which they are."""
    fresh = of_seeds(scene, REPORTING)
    return (fresh, "reporting") if fresh else (of_seeds(scene, CHOOSING), "choosing")
