"""Tables as files: CSV for a spreadsheet, LaTeX (booktabs) for a paper."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from chase.core.files import write_atomically
from chase.report.tables import NONE, ReportTable

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


_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
_FIGURE = re.compile(rf"(?P<mean>{_NUMBER})(?: \((?P<low>{_NUMBER})(?P<between> to |–)(?P<high>{_NUMBER})\))?")
"""``83.1``, ``83.1 (82.0 to 84.2)`` with an interval or ``83.1 (82.0–84.2)`` with a range."""


def to_csv(table: ReportTable) -> str:
    """Comma-separated, a header line first, for programs; what was not measured is empty.

    A column of means with an interval or a range becomes three columns of bare numbers: the mean, then ``..., low``
    and ``..., high`` for the ends of an interval, ``..., lowest`` and ``..., highest`` for those of a range.
    """
    columns = [_spread(name, [row[i] for row in table.rows], table.is_text(i)) for i, name in enumerate(table.columns)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(zip(*(column for some in columns for column in some), strict=True))
    return out.getvalue()


def _spread(name: str, cells: list[str], is_text: bool) -> list[list[str]]:
    """One column of a table as columns of a file, the name first in each."""
    if is_text:
        return [[name, *("" if cell == NONE else cell for cell in cells)]]
    read = [_FIGURE.fullmatch(cell) for cell in cells]
    means = [name, *(_plain(m["mean"] if m else cell) for cell, m in zip(cells, read, strict=True))]
    between = next((m["between"] for m in read if m and m["between"]), None)
    if between is None:
        return [means]
    titles = {"low": "lowest", "high": "highest"} if between == "–" else {"low": "low", "high": "high"}
    ends = [[f"{name}, {said}", *(_plain((m[end] if m else "") or "") for m in read)] for end, said in titles.items()]
    return [means, *ends]


def _plain(cell: str) -> str:
    return "" if cell == NONE else re.sub(r"(?<=\d),(?=\d{3})", "", cell).removeprefix("+")


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is written here; the sign before a number is a minus."""
    return re.sub(r"(?<![\w)-])-(?=\d)", r"$-$", "".join(_ESCAPES.get(letter, letter) for letter in text))


def to_latex(table: ReportTable) -> str:
    """A tabular with booktabs rules, to be set with \\input."""
    kinds = "".join("l" if table.is_text(i) else "r" for i in range(len(table.columns)))
    lines = [r"\begin{tabular}{" + kinds + "}", r"\toprule"]
    lines.append(" & ".join(escape_latex(c) for c in table.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_markdown(table: ReportTable) -> str:
    """A table as Markdown."""
    rule = ["---" if table.is_text(i) else "---:" for i in range(len(table.columns))]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in (table.columns, rule, *table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def write_table(table: ReportTable, stem: Path) -> list[Path]:
    """STEM.csv and STEM.tex."""
    files = {stem.with_suffix(".csv"): to_csv(table), stem.with_suffix(".tex"): to_latex(table)}
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)
