"""Tables as files: CSV for a spreadsheet, LaTeX (booktabs) for a paper."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from chase.record import write_atomically
from chase.report.tables import NONE, Table

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
    "–": "--",
}


def to_csv(table: Table) -> str:
    """Comma-separated, a header line first; nothing measured is an empty cell, thousands are not marked."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow(
            ["" if cell == NONE else cell if i < table.text_columns else _plain(cell) for i, cell in enumerate(row)]
        )
    return out.getvalue()


def _plain(cell: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3})", "", cell)


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is written here."""
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def to_latex(table: Table) -> str:
    """A tabular with booktabs rules, to be set with \\input."""
    kinds = "".join("l" if i < table.text_columns else "r" for i in range(len(table.columns)))
    lines = [r"\begin{tabular}{" + kinds + "}", r"\toprule"]
    lines.append(" & ".join(escape_latex(c) for c in table.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_markdown(table: Table) -> str:
    """A table as Markdown."""
    rule = ["---" if i < table.text_columns else "---:" for i in range(len(table.columns))]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in (table.columns, rule, *table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def write_table(table: Table, stem: Path) -> list[Path]:
    """STEM.csv and STEM.tex."""
    files = {stem.with_suffix(".csv"): to_csv(table), stem.with_suffix(".tex"): to_latex(table)}
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)
