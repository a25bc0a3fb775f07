from __future__ import annotations

import csv
import io

from chase.report.export import to_csv, to_latex, to_markdown, write_table
from chase.report.tables import NONE, Table

TABLE = Table(("method", "labels, %"), [["a_b & c", "1,234 (1,200 to 1,300)"], ["w/o | S", NONE]])


def test_csv_reads_back_without_marks_and_dashes():
    assert list(csv.reader(io.StringIO(to_csv(TABLE)))) == [
        ["method", "labels, %"],
        ["a_b & c", "1234 (1200 to 1300)"],
        ["w/o | S", ""],
    ]


def test_latex_is_escaped_and_ruled():
    text = to_latex(TABLE)
    assert text.startswith("\\begin{tabular}{lr}\n\\toprule\nmethod & labels, \\% \\\\\n\\midrule\n")
    assert "a\\_b \\& c & 1,234 (1,200 to 1,300) \\\\" in text
    assert "w/o | S & -- \\\\" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_markdown_keeps_its_columns():
    assert to_markdown(TABLE).splitlines()[1:4:2] == ["| --- | ---: |", "| w/o \\| S | – |"]


def test_files(tmp_path):
    assert [path.name for path in write_table(TABLE, tmp_path / "t.csv")] == ["t.csv", "t.tex"]
    assert (tmp_path / "t.tex").read_text() == to_latex(TABLE)
