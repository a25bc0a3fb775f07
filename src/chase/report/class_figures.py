"""What the report shows by class: accuracies at the end and over rounds, and labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report import plots
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, Numbers, RunData

MANY_CLASSES = 20
"""Above it classes are not named one by one."""


def last_by_class(run: RunData) -> Numbers | None:
    """Accuracies by class after the last round that has them."""
    known = [line["per_class"] for line in run.metrics if line.get("per_class")]
    return np.array([np.nan if v is None else v for v in known[-1]], dtype=np.float64) if known else None


def _mean(rows: Sequence[Numbers]) -> Numbers:
    """The mean by place over the rows that have a value there; NaN where none has."""
    table = np.stack(rows)
    count = np.isfinite(table).sum(axis=0)
    mean: Numbers = np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)
    return mean


def classes_at_the_end(methods: Sequence[MethodRuns], names: Sequence[str]) -> Markup:
    """Accuracy by class after the last round; sorted lines where there are many classes."""
    values = {}
    for method in methods:
        values[method.label] = 100.0 * _mean([v for run in method.runs if (v := last_by_class(run)) is not None])
    title = "Accuracy by class, last round"
    if len(names) <= MANY_CLASSES:
        return html_figure(plots.dots(title, "class", "accuracy (%)", names, values), title)
    at = np.arange(1.0, len(names) + 1)
    curves = [plots.Curve(label, at, s := np.sort(v), s, s) for label, v in values.items()]
    return html_figure(
        plots.lines(title, "classes, from worst to best", "accuracy (%)", curves),
        title,
        f"{len(names)} classes, sorted for each method on its own.",
    )


def labels_by_class(methods: Sequence[MethodRuns], names: Sequence[str]) -> Markup:
    """The classes of the labels that people gave; nothing where nobody gave any."""
    counts = {}
    for method in methods:
        rows = []
        for run in method.runs:
            given = [int(line["label"]) for line in run.selections if line.get("label") is not None]
            rows.append(np.bincount(given, minlength=len(names))[: len(names)].astype(np.float64))
        counts[method.label] = np.mean(rows, axis=0)
    if not any(row.any() for row in counts.values()):
        return Markup()
    title = "Labels by class"
    caption = "What people answered, without initial labels."
    if len(names) <= MANY_CLASSES:
        return html_figure(plots.dots(title, "class", "labels", names, counts), title, caption)
    at = np.arange(1.0, len(names) + 1)
    curves = [plots.Curve(label, at, s := np.sort(v), s, s) for label, v in counts.items()]
    return html_figure(plots.lines(title, "classes, from fewest to most", "labels", curves), title, caption)


def class_accuracy_by_round(method: MethodRuns) -> tuple[Numbers, Numbers]:
    """(rounds, mean accuracy over runs (classes, rounds)) of the evaluated rounds that all runs share."""
    shared = set(method.shared_rounds().tolist())
    by_round: dict[int, list[Numbers]] = {}
    for run in method.runs:
        for line in run.metrics:
            if line["round"] in shared and line.get("per_class"):
                row = np.array([np.nan if v is None else v for v in line["per_class"]], dtype=np.float64)
                by_round.setdefault(line["round"], []).append(row)
    if not by_round:
        return np.empty(0), np.empty((0, 0))
    return np.array(sorted(by_round), dtype=np.float64), np.stack([_mean(by_round[r]) for r in sorted(by_round)]).T
