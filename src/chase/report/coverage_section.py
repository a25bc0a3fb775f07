"""The section on who holds what: a heat map of clients by classes, of samples and of initial labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chase.report import plots
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, RunData
from chase.report.sections import Section, grid

MOST_ROWS = 100
"""Of more clients, how counts spread over them is drawn instead of a row for each."""
MAPS = (("held", "Samples of each class, by client"), ("labeled", "Initial labels of each class, by client"))


def coverage_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Heat maps of the first run of each way to divide the data; None where no run kept its coverage."""
    figures: list[Markup] = []
    seen: set[str] = set()
    for run in (run for method in methods for run in method.runs if run.coverage):
        key = repr([run.coverage.get(what) for what, _ in MAPS])
        if key not in seen and len(seen) < 3:
            seen.add(key)
            figures += _maps(run, several=len(methods) > 1 or len(methods[0].runs) > 1)
    return Section("coverage", "Who holds what", grid(figures)) if figures else None


def _maps(run: RunData, several: bool) -> list[Markup]:
    clients, classes = ([str(n) for n in run.coverage.get(key, ())] for key in ("clients", "classes"))
    figures = []
    for what, title in MAPS:
        counts = np.asarray(run.coverage.get(what, ()), dtype=np.float64)
        if counts.shape == (len(clients), len(classes)) and counts.size:
            shown = f"{title} (seed {run.seed})" if several else title
            if len(clients) > MOST_ROWS:
                figures.append(_spread(what, run, several, counts))
                continue
            svg = plots.count_map(shown, clients, classes, counts)
            missing = [
                name if name.strip() else repr(name) for name, n in zip(classes, counts.sum(0), strict=True) if n == 0
            ]
            few = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            unknown = "No class is known before people label." if not counts.any() else ""
            figures.append(html_figure(svg, shown, unknown or (f"Nobody has: {few}." if missing else "")))
    return figures


def _spread(what: str, run: RunData, several: bool, counts: NDArray[np.float64]) -> Markup:
    """Samples, or initial labels, and classes per client, each from the least to the most."""
    title = "Samples and classes by client" if what == "held" else "Initial labels and their classes by client"
    title += f" (seed {run.seed})" if several else ""
    at = np.arange(1.0, len(counts) + 1)
    kinds = {"samples" if what == "held" else "labels": counts.sum(axis=1), "classes": (counts > 0).sum(axis=1)}
    curves = [plots.Curve(label, at, s := np.sort(v.astype(np.float64)), s, s) for label, v in kinds.items()]
    svg = plots.lines(title, "clients, from least to most", "per client", curves, from_zero=True)
    return html_figure(svg, title, f"{len(counts):,} clients, sorted for each line on its own.")
