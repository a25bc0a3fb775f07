"""The head of ``why.md``: every hypothesis in one row, its differences and verdicts by data set and length of runs."""

from __future__ import annotations

from collections.abc import Sequence

from chase.report.cells import NONE, Cell
from chase.report.export import to_markdown
from chase.report.tables import ReportTable
from chase.studies.hypotheses import HYPOTHESES
from chase.studies.hypothesis_tests import NOT_RUN, Finding
from chase.studies.overview import DATA, compared, name_of_data, points_of

Column = tuple[str, int]
"""A data set and, where runs of several lengths were compared on it, the last round that counts; else 0."""

GRID_NOTE = """Differences in points of accuracy, paired by seed, unless a row says otherwise; above 0 is what the claim
says. **Holds** and **fails**: a test with at least six seeds decides. Open: not decided. Early: fewer seeds than a test
needs, and the interval lies on one side of 0. A dash: not claimed there, not run, or run with fewer than three seeds.
Intervals, p and seeds: below, under "Hypotheses and verdicts in detail".
"""


def in_short(found: Sequence[Finding]) -> str:
    """One table of all hypotheses that have run, and the names of the others."""
    run = [finding for finding in found if finding.verdict != NOT_RUN]
    lines = ["## In short\n"]
    lines += [to_markdown(grid(run)), GRID_NOTE] if run else []
    if not_yet := not_run([finding for finding in found if finding.verdict == NOT_RUN]):
        lines += [f"**Not run yet:** {not_yet}.\n"]
    return "\n".join(lines)


def grid(found: Sequence[Finding]) -> ReportTable:
    """A row per hypothesis, a column per data set and, where there are several, length of runs."""
    at = {(f.hypothesis.key, column_of(f)): f for f in found}
    columns = sorted({column_of(f) for f in found}, key=place_of_column)
    rows: list[list[Cell]] = []
    for hypothesis in HYPOTHESES:
        own = [at.get((hypothesis.key, column)) for column in columns]
        if any(own):
            cells = [NONE if finding is None else said_of(finding) for finding in own]
            rows.append([hypothesis.key, hypothesis.brief, compared(hypothesis) or NONE, *cells])
    heads = [name_of_data(data) + (f", round {rounds}" if rounds else "") for data, rounds in columns]
    words = frozenset(range(3, 3 + len(heads)))
    return ReportTable(("", "claim", "difference", *heads), rows, text_columns=3, words=words)


def column_of(finding: Finding) -> Column:
    """Where a finding stands."""
    return finding.data, finding.rounds if finding.several else 0


def place_of_column(column: Column) -> tuple[int, str, int]:
    """Data sets in the order of the results page, shorter runs first."""
    data, rounds = column
    known = list(DATA)
    return known.index(data) if data in known else len(known), data, rounds


def said_of(finding: Finding) -> str:
    """``+7.0 **holds**``."""
    verdict = (
        "**holds**" if finding.holds else "**fails**" if finding.fails else "early" if finding.provisional else "open"
    )
    return f"{points_of(finding)} {verdict}"


def not_run(found: Sequence[Finding]) -> str:
    """The keys of hypotheses by data set."""
    keys: dict[str, list[str]] = {}
    for finding in found:
        keys.setdefault(name_of_data(finding.data), []).append(finding.hypothesis.key)
    return "; ".join(f"{', '.join(own)} on {data}" for data, own in keys.items())
