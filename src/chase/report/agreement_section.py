"""How far the people who labelled a run agree, where two or more answered the same samples."""

from __future__ import annotations

from collections.abc import Sequence

from chase.core.errors import ChaseError
from chase.home.annotator_agreement import Estimate, agreement
from chase.home.home import Home
from chase.report.cells import Cell
from chase.report.markup import Markup, html_table
from chase.report.runs import MethodRuns, RunData
from chase.report.sections import Section
from chase.report.tables import ReportTable

HOME = "home"
"""Directory, within a run's, of the client that people label."""
NOTE = "1 is full agreement, 0 is chance. In brackets: 95 % bootstrap intervals over samples."


def agreement_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Krippendorff's alpha, Cohen's kappa of each pair and alpha per class, for runs that people labelled."""
    parts = [part for method in methods for run in method.runs if (part := _run(run))]
    return Section("agreement", "Agreement of the annotators", Markup("").join(parts)) if parts else None


def _run(run: RunData) -> Markup:
    if not (run.path / HOME / "client.json").is_file():
        return Markup("")
    try:
        home = Home(run.path / HOME)
        found = agreement(home.ledger.votes(), home.card.classes)
        home.close()
    except ChaseError:  # a report is made of what can be read; `chase label agreement` says what is wrong
        return Markup("")
    if not found.samples:
        return Markup("")
    rows: list[list[Cell]] = [["all", "Krippendorff's alpha", str(found.samples), _shown(found.alpha)]]
    rows += [[f"{p.first} and {p.second}", "Cohen's kappa", str(p.samples), _shown(p.kappa)] for p in found.pairs]
    rows += [[f"class {c.name}", "Krippendorff's alpha", str(c.samples), _shown(c.alpha)] for c in found.classes]
    columns = ["who or what", "coefficient", "samples", "value"]
    title = f"{run.path.name}: answers to the same samples"
    return html_table(ReportTable(columns, rows, title, text_columns=4), NOTE)


def _shown(one: Estimate) -> str:
    if one.value is None:
        return "undefined"
    return f"{one.value:.2f}" + ("" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})")
