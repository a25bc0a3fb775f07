"""The section on who holds what: a heat map of clients by classes, of samples and of initial labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report import plots
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, RunData
from chase.report.sections import Section, grid

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
            svg = plots.count_map(shown, clients, classes, counts)
            missing = [
                name if name.strip() else repr(name) for name, n in zip(classes, counts.sum(0), strict=True) if n == 0
            ]
            few = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            figures.append(html_figure(svg, shown, f"Nobody has: {few}." if missing else ""))
    return figures
