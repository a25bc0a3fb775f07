"""The section that compares methods: labels saved, findings, intervals, what a target took, cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report import charts, labels_saved, method_tables
from chase.report.markup import Markup, html_figure, html_table, markup
from chase.report.plots import Curve, says_spread
from chase.report.runs import MethodRuns, clock, main_metric, main_name, main_series
from chase.report.sections import Section, grid
from chase.report.statistics import TEST_FROM, accuracy_after, last_shared_round

HOW = (
    "Mean over seeds and, in brackets, its 95 % interval (Student's t). Differences are paired by seed: runs of one "
    "seed share partition, initial labels and initial weights. The area under the label curve is the mean accuracy "
    f"over the labels, as far as all runs have them. From {TEST_FROM} seeds on, a paired t-test decides, with Holm's "
    "correction for the methods (for accuracies and areas apart); below, the interval alone, which is not corrected."
)


def comparison_section(methods: Sequence[MethodRuns], named: str = "", said: bool = True) -> Section | None:
    """Methods against a baseline, with what the differences are worth (``said`` in sentences); None for one method."""
    if len(methods) < 2 or not last_shared_round(methods):
        return None
    body = Markup()
    if said:
        saved_first = labels_saved.saved_sentences(methods, named)
        body = findings_list(saved_first) if saved_first else Markup()
        body += compared(method_tables.findings(methods, named), method_tables.in_one_sentence(methods, named))
    saved, base = labels_saved.saved_table(methods, named), method_tables.baseline(methods, named)
    if saved is not None and base is not None:
        body += html_table(saved, labels_saved.HOW.format(base=base.label))
    body += html_table(method_tables.results(methods, named), HOW)
    by_round = method_tables.by_round(methods, named)
    body += html_table(by_round, method_tables.BY_ROUND) if by_round is not None else Markup()
    body += html_table(method_tables.cost(methods, named), clock(methods).note)
    targets = method_tables.targets(methods)
    if targets:
        body += html_table(method_tables.to_reach(methods, targets), method_tables.REACHED)
    figures = [figure for figure in (difference_figure(methods, named), trade_off(methods)) if figure]
    return Section("comparison", "Comparison", body + grid(figures))


def findings_list(found: Sequence[str]) -> Markup:
    """Sentences as a list."""
    return markup("list", sentences=found, kind="findings")


def compared(found: Sequence[str], first: str) -> Markup:
    """A sentence per comparison as a list; folded behind one sentence on all where there is one."""
    listed = findings_list(found) if found else Markup()
    return markup("compared", first=first, listed=listed) if first else listed


def difference_curves(methods: Sequence[MethodRuns], base: MethodRuns) -> list[Curve | None]:
    """Main metric minus the baseline's by round, paired by seed; None for the baseline itself."""
    main = main_metric(methods)
    return [None if method is base else _difference(method, base, main) for method in methods]


def _difference(method: MethodRuns, base: MethodRuns, main: str) -> Curve | None:
    theirs = {run.seed: run for run in base.runs}
    pairs = [(run, theirs[run.seed]) for run in method.runs if run.seed in theirs]
    if not pairs:
        return None
    rounds = np.arange(1, 1 + min(len(run.metrics) for pair in pairs for run in pair))
    values = np.stack([main_series(a, main)[: rounds.size] - main_series(b, main)[: rounds.size] for a, b in pairs])
    known = np.isfinite(values).all(axis=0)
    if not known.any():
        return None
    return Curve.over_seeds(method.label, rounds[known].astype(np.float64), values[:, known])


def difference_figure(methods: Sequence[MethodRuns], named: str) -> Markup:
    """Main metric minus the baseline's over rounds."""
    base = method_tables.baseline(methods, named)
    curves = difference_curves(methods, base) if base is not None else []
    if base is None or all(c is None for c in curves):
        return Markup()
    title = f"{_title(methods)} minus that of {base.label}"
    spread = says_spread(methods)
    noise = f" {spread} Where zero lies within the spread, noise may explain a difference." if spread else ""
    caption = f"Mean of the differences seed by seed.{noise}"
    return html_figure(charts.differences(title, "points", curves), title, caption)


def trade_off(methods: Sequence[MethodRuns]) -> Markup:
    """Main metric against seconds per round."""
    end, time, main = last_shared_round(methods), clock(methods), main_metric(methods)
    marks = [
        charts.Point(
            method.label,
            method_tables.of_runs(method, time.per_round),
            method_tables.of_runs(method, accuracy_after(end, main)),
        )
        for method in methods
    ]
    title = f"{_title(methods)} against time"
    return html_figure(
        charts.points(title, f"{time.name} per round", f"{main_name(main)} after round {end} (%)", marks),
        title,
        "Bars are 95 % intervals over seeds.",
    )


def _title(methods: Sequence[MethodRuns]) -> str:
    name = main_name(main_metric(methods))
    return name[0].upper() + name[1:]
