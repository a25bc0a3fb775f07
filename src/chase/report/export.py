"""Tables as files: CSV for a spreadsheet, LaTeX (booktabs) for a paper."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from chase.core.files import write_atomically
from chase.report.cells import NONE, Cell, Number, exact
from chase.report.tables import ReportTable

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
}


def to_csv(table: ReportTable) -> str:
    """Comma-separated, a header line first, for programs: every digit; what was not measured is empty.

    A column of means with an interval or a range becomes three columns of bare numbers: the mean, then ``..., low``
    and ``..., high`` for the ends of an interval, ``..., lowest`` and ``..., highest`` for those of a range.
    """
    columns = [_spread(name, [row[i] for row in table.rows]) for i, name in enumerate(table.columns)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(zip(*(column for some in columns for column in some), strict=True))
    return out.getvalue()


def _spread(name: str, cells: list[Cell]) -> list[list[str]]:
    """One column of a table as columns of a file, the name first in each."""
    values = [name, *(_plain(cell) for cell in cells)]
    spreads = [cell.spread if isinstance(cell, Number) else None for cell in cells]
    kind = next((spread.kind for spread in spreads if spread), None)
    if kind is None:
        return [values]
    low, high = ("lowest", "highest") if kind == "range" else ("low", "high")
    lows = [f"{name}, {low}", *(exact(spread.low) if spread else "" for spread in spreads)]
    return [values, lows, [f"{name}, {high}", *(exact(spread.high) if spread else "" for spread in spreads)]]


def _plain(cell: Cell) -> str:
    if isinstance(cell, Number):
        return exact(cell.value)
    return "" if cell == NONE else str(cell)


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is written here."""
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def _latex(cell: Cell) -> str:
    """A cell for LaTeX; the sign before a number is a minus, not a hyphen."""
    if isinstance(cell, str):
        return escape_latex(cell)
    return "$-$".join(escape_latex(part) for part in str(cell).split("-"))


def to_latex(table: ReportTable) -> str:
    """A tabular with booktabs rules, to be set with \\input."""
    kinds = "".join("l" if table.is_text(i) else "r" for i in range(len(table.columns)))
    lines = [r"\begin{tabular}{" + kinds + "}", r"\toprule"]
    lines.append(" & ".join(escape_latex(c) for c in table.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(_latex(cell) for cell in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_markdown(table: ReportTable) -> str:
    """A table as Markdown."""
    rule = ["---" if table.is_text(i) else "---:" for i in range(len(table.columns))]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in (table.columns, rule, *table.texts)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def write_table(table: ReportTable, stem: Path) -> list[Path]:
    """STEM.csv and STEM.tex."""
    files = {stem.with_suffix(".csv"): to_csv(table), stem.with_suffix(".tex"): to_latex(table)}
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)
