"""How far a single number can be trusted: intervals, the majority class, balance, ranking, calibration, by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chase.report import charts
from chase.report.cells import Cell, number
from chase.report.markup import html_figure, html_table, together
from chase.report.runs import MethodRuns, main_name
from chase.report.sections import Section, grid
from chase.report.tables import ReportTable

NOTE = (
    "The run of the lowest seed, on the full test set. Interval: 95 % (Wilson), over test samples, not over seeds. "
    "Majority: always naming the most frequent class. AUC: one class against the rest, mean over classes. ECE: mean "
    "gap between confidence and accuracy in 15 bins."
)
TITLES = ("method", "accuracy, %", "interval, %", "majority, %", "balanced accuracy, %", "AUC", "ECE", "test samples")


def quality_section(methods: Sequence[MethodRuns]) -> Section | None:
    """One row per method, one table by class and one of calibration each."""
    known = [(m.label, m.first.confusion["quality"]) for m in methods if m.first.confusion.get("quality")]
    if not known:
        return None
    parts = [html_table(ReportTable(TITLES, [_row(label, q) for label, q in known]), NOTE)]
    title = "Reliability: how often a prediction is right, by how sure the model was"
    bins = {f"{label} (ECE {found['ece']:.3f})": found["reliability"] for label, found in known}
    drawn = charts.reliability(title, bins)
    caption = f"{'; '.join(bins)}. On the diagonal a model is as sure as it is right; below it, too sure."
    parts.append(grid([html_figure(drawn, title, caption)]))
    for label, found in known:
        parts += [html_table(_by_class(label, found)), html_table(_reliability(label, found))]
    return Section("quality", "How good the last model is", together(parts))


def _percent(value: float | None) -> Cell:
    return number(value, 1, 100)


def _row(label: str, found: Mapping[str, Any]) -> list[Cell]:
    low, high = found["accuracy_interval"]
    return [
        label,
        _percent(found["accuracy"]),
        f"{100 * low:.1f} to {100 * high:.1f}",
        _percent(found["majority_accuracy"]),
        _percent(found["balanced_accuracy"]),
        number(found["auc"], 3),
        number(found["ece"], 3),
        number(found["tested"], 0),
    ]


def _by_class(label: str, found: Mapping[str, Any]) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            row["class"],
            _percent(row["sensitivity"]),
            _percent(row["specificity"]),
            number(row["auc"], 3),
            number(row["tested"], 0),
        ]
        for row in found["classes"]
    ]
    titles = ("class", "sensitivity, %", "specificity, %", "AUC", "test samples")
    return ReportTable(titles, rows, title=f"{label}: by class" if label else "by class")


def _reliability(label: str, found: Mapping[str, Any]) -> ReportTable:
    rows: list[list[Cell]] = [
        [_percent(row["confidence"]), _percent(row["accuracy"]), number(row["count"], 0)]
        for row in found["reliability"]
    ]
    titles = ("mean confidence, %", "accuracy, %", "test samples")
    return ReportTable(titles, rows, title=f"{label}: calibration", text_columns=0)


def evaluation_tables(found: Mapping[str, Any]) -> list[ReportTable]:
    """The figures of one model for a terminal: a line each, and by class."""
    low, high = found["accuracy_interval"]
    rows: list[list[Cell]] = [
        ["accuracy, %", _percent(found["accuracy"])],
        ["95 % interval of the accuracy, %", f"{100 * low:.1f} to {100 * high:.1f}"],
        ["by always naming the most frequent class, %", _percent(found["majority_accuracy"])],
        ["balanced accuracy, %", _percent(found["balanced_accuracy"])],
        ["AUC, mean over classes", number(found["auc"], 3)],
        ["calibration error (ECE)", number(found["ece"], 3)],
        ["test samples", number(found["tested"], 0)],
    ]
    return [ReportTable(("measure", "value"), rows), _by_class("", found)]


def in_words(found: Mapping[str, Any], main: str = "accuracy", value: float | None = None) -> str:
    """The end of a run in one line; the main metric and its value come first where it is not accuracy."""
    low, high = found["accuracy_interval"]
    first = "" if main == "accuracy" or value is None else f"{main_name(main)} {100 * value:.1f} % (the main metric); "
    return (
        f"{first}accuracy {100 * found['accuracy']:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f} %, over "
        f"{found['tested']} test samples; by always predicting the most frequent class: "
        f"{100 * found['majority_accuracy']:.1f} %; balanced accuracy {100 * found['balanced_accuracy']:.1f} %; "
        f"calibration error {found['ece']:.3f}"
    )
