"""How each client and each class fares: accuracy by client, confusion; and a figure of what clients hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report import charts, plots
from chase.report.client_results import client_accuracies, held_counts
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, RunData
from chase.report.sections import MANY_CLIENTS, Section, grid

MOST_CLASSES = 62


def holdings_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Accuracy by client and the confusion matrices."""
    figures = [f for f in (client_accuracy_figure(methods),) if f]
    figures += [f for f in (confusion_figure(method) for method in methods) if f]
    return Section("holdings", "Accuracy by client and confusion", grid(figures, uneven=True)) if figures else None


def held_drawing(run: RunData, most: int) -> tuple[str, str, str] | None:
    """(title, SVG, caption): samples by client and class, in logarithmic shades."""
    held = held_counts(run)
    if held is None:
        return None
    shown, clients = held[:most], [str(name) for name in run.coverage["clients"]][:most]
    title = "Samples by client and class"
    some = f" The first {most} of {len(held)} clients." if len(held) > most else ""
    caption = f"Seed {run.seed}; the partition is the same for every method of a seed.{some}"
    caption += " Logarithmic shades; an empty cell is none."
    names = [str(name) for name in run.coverage["classes"]]
    svg = charts.matrix(title, ("class", "client"), names, clients, shown, "samples", logarithmic=True)
    return title, svg, caption


def client_accuracy_figure(methods: Sequence[MethodRuns]) -> Markup:
    """Accuracy by client of the first seed of each method."""
    found = {method.label: client_accuracies(method.first) for method in methods}
    values = {label: 100 * v for label, v in found.items() if v is not None}
    if not values or len({v.size for v in values.values()}) > 1:
        return Markup()
    size = len(next(iter(values.values())))
    title = "Accuracy by client, last round"
    caption = (
        f"Seed {methods[0].first.seed}. On a test set with the client's own mix of classes: the global model, or for "
        "isolated clients each one's own, which need not know the other classes."
    )
    if size > MANY_CLIENTS:
        at = np.arange(1.0, size + 1)
        curves = [plots.Curve(label, at, s := np.sort(v), s, s) for label, v in values.items()]
        return html_figure(plots.lines(title, "clients, from worst to best", "accuracy (%)", curves), title, caption)
    names = [str(number) for number in range(size)]
    return html_figure(plots.dots(title, "client", "accuracy (%)", names, values), title, caption)


def confusion_figure(method: MethodRuns) -> Markup:
    """Of each class, the share in percent taken for each class; the mean over the runs that have it."""
    tables = [np.array(run.confusion["matrix"], dtype=np.float64) for run in method.runs if run.confusion.get("matrix")]
    if not tables or tables[0].shape[0] > MOST_CLASSES or len({t.shape for t in tables}) > 1:
        return Markup()
    counts = np.sum(tables, axis=0)
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    title = f"Confusion: {method.label}"
    names = method.first.classes
    svg = charts.matrix(title, ("taken for", "class"), names, names, share, "% of the class")
    seeds = f"{len(tables)} seeds" if len(tables) > 1 else f"seed {method.first.seed}"
    return html_figure(svg, title, f"Test set after round {method.first.confusion.get('round')}, {seeds}.")
