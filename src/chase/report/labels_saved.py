"""Labels saved: how many labels each method needed to reach what random selection reached at its end.

Paired by seed: the goal is the value (``main_metric``) of the baseline's run of the same seed after its last evaluated
round, and a method needs the labels it had after the first round that reached the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chase.report.cells import Cell, mean_and_range
from chase.report.method_tables import baseline
from chase.report.runs import MethodRuns, Numbers, RunData, main_metric, main_name, main_series
from chase.report.tables import ReportTable

HOW = (
    "Per seed: the labels that a method had after the first round in which it was at least as good as {base} after its "
    "last round. Means over the seeds that reached it, lowest and highest in brackets. Initial labels are not counted."
)


@dataclass(frozen=True)
class LabelsSaved:
    """What one method needed, seed by seed; NaN where it never got there."""

    label: str
    needed: Numbers
    of: Numbers
    """The labels that the baseline had at its end."""
    goal: Numbers
    """The baseline's value at its end, in percent."""

    @property
    def got_there(self) -> int:
        """Seeds in which the goal was reached."""
        return int(np.isfinite(self.needed).sum())

    @property
    def saved(self) -> Numbers:
        """Labels saved in the seeds that reached it; below 0 where more were needed."""
        return (self.of - self.needed)[np.isfinite(self.needed)]

    @property
    def share(self) -> Numbers:
        """The same in percent of the baseline's labels."""
        reached = np.isfinite(self.needed) & (self.of > 0)
        return 100.0 * (self.of - self.needed)[reached] / self.of[reached]


def labels_saved(methods: Sequence[MethodRuns], named: str = "") -> list[LabelsSaved]:
    """One entry per method other than the baseline that shares a seed with it."""
    base = baseline(methods, named)
    if base is None:
        return []
    main, theirs = main_metric(methods), {run.seed: run for run in base.runs}
    found = []
    for method in methods:
        pairs = [(run, theirs[run.seed]) for run in method.runs if run.seed in theirs]
        ends = [_end(other, main) for _, other in pairs]
        known = [(run, end) for (run, _), end in zip(pairs, ends, strict=True) if end is not None]
        if method is base or not known:
            continue
        needed = [_needed(run, goal, main) for run, (goal, _) in known]
        of, goal = [labels for _, (_, labels) in known], [goal for _, (goal, _) in known]
        found.append(LabelsSaved(method.label, np.array(needed), np.array(of), np.array(goal)))
    return found


def _end(run: RunData, main: str) -> tuple[float, float] | None:
    """Value and labels of a run after its last evaluated round."""
    values = main_series(run, main)
    known = np.flatnonzero(np.isfinite(values))
    return (float(values[known[-1]]), float(run.series("labels")[known[-1]])) if known.size else None


def _needed(run: RunData, goal: float, main: str) -> float:
    there = np.flatnonzero(main_series(run, main) >= goal)
    return float(run.series("labels")[there[0]]) if there.size else float("nan")


def saved_table(methods: Sequence[MethodRuns], named: str = "") -> ReportTable | None:
    """A row per method; None without a baseline."""
    base, found = baseline(methods, named), labels_saved(methods, named)
    if base is None or not found:
        return None
    rows: list[list[Cell]] = [
        [
            one.label,
            f"{one.got_there} of {one.needed.size}",
            mean_and_range(one.saved, 0),
            mean_and_range(one.share, 0),
            mean_and_range(one.needed, 0),
            mean_and_range(one.of, 0),
            mean_and_range(one.goal, 1),
        ]
        for one in found
    ]
    columns = (
        "method",
        "seeds that reached it",
        "labels saved",
        "saved, %",
        "labels needed",
        f"labels of {base.label}",
        f"{main_name(main_metric(methods))} to reach, %",
    )
    return ReportTable(columns, rows, f"Labels saved against {base.label}", text_columns=2)


def saved_sentences(methods: Sequence[MethodRuns], named: str = "") -> list[str]:
    """The same in words, one sentence per method."""
    base = baseline(methods, named)
    if base is None:
        return []
    main = main_name(main_metric(methods))
    return [_sentence(one, base.label, main) for one in labels_saved(methods, named)]


def _sentence(one: LabelsSaved, base: str, main: str) -> str:
    goal, seeds = f"the {main} that {base} ended with ({mean_and_range(one.goal, 1).head} %)", one.needed.size
    if not one.got_there:
        return f"{one.label} never reached {goal}: no labels saved."
    needed, of = mean_and_range(one.needed, 0).head, mean_and_range(one.of, 0).head
    some = f" in {one.got_there} of {seeds} seeds" if one.got_there < seeds else ""
    saved, share = float(one.saved.mean()), float(one.share.mean()) if one.share.size else 0.0
    verdict = (
        f"{saved:,.0f} labels saved ({share:.0f} %)"
        if saved > 0
        else "no labels saved"
        if saved == 0
        else f"{-saved:,.0f} labels more than {base}"
    )
    return f"{one.label} reached {goal} with {needed} labels instead of {of}{some}: {verdict}."
