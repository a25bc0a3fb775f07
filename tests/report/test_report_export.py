from __future__ import annotations

import csv
import io

from chase.report.export import to_csv, to_latex, to_markdown, write_table
from chase.report.tables import NONE, ReportTable

TABLE = ReportTable(("method", "labels, %"), [["a_b & c", "1,234 (1,200 to 1,300)"], ["w/o | S", NONE]])


def test_csv_reads_back_as_numbers():
    assert list(csv.reader(io.StringIO(to_csv(TABLE)))) == [
        ["method", "labels, %", "labels, %, low", "labels, %, high"],
        ["a_b & c", "1234", "1200", "1300"],
        ["w/o | S", "", "", ""],
    ]


def test_csv_has_three_columns_only_for_figures_with_ends():
    columns = ("what", "seeds", "points", "range", "p", "verdict")
    rows = [
        ["a", "3 of 3", "+1.44 (-0.11 to +2.99)", "83.1 (82.0–84.2)", "< 0.001", "interval above 0"],
        ["b", "1 of 3", "-0.20", "80.0", "0.250", NONE],
    ]
    lines = list(csv.reader(io.StringIO(to_csv(ReportTable(columns, rows, words=frozenset({5}))))))
    assert lines[0] == [
        *("what", "seeds", "points", "points, low", "points, high"),
        *("range", "range, lowest", "range, highest", "p", "verdict"),
    ]
    assert lines[1] == ["a", "3 of 3", "1.44", "-0.11", "2.99", "83.1", "82.0", "84.2", "< 0.001", "interval above 0"]
    assert lines[2] == ["b", "1 of 3", "-0.20", "", "", "80.0", "", "", "0.250", ""]


def test_latex_is_escaped_and_ruled():
    text = to_latex(TABLE)
    assert text.startswith("\\begin{tabular}{lr}\n\\toprule\nmethod & labels, \\% \\\\\n\\midrule\n")
    assert "a\\_b \\& c & 1,234 (1,200 to 1,300) \\\\" in text
    assert "w/o \\textbar{} S & -- \\\\" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_latex_sets_signs_and_words():
    rows = [["x-1", "< 0.001", "-1.2 (-2.0 to +0.1)", "lower"], ["10–20", "0.250", "83.1 (82.0–84.2)", NONE]]
    text = to_latex(ReportTable(("a", "p", "points", "said"), rows, words=frozenset({3})))
    assert "{lrrl}" in text
    assert "x-1 & \\textless{} 0.001 & $-$1.2 ($-$2.0 to +0.1) & lower" in text
    assert "10--20 & 0.250 & 83.1 (82.0--84.2) & --" in text


def test_a_table_without_rows_is_a_header():
    assert to_csv(ReportTable(("method", "labels"), [])) == "method,labels\n"


def test_markdown_keeps_its_columns():
    assert to_markdown(TABLE).splitlines()[1:4:2] == ["| --- | ---: |", "| w/o \\| S | – |"]


def test_files(tmp_path):
    assert [path.name for path in write_table(TABLE, tmp_path / "t.csv")] == ["t.csv", "t.tex"]
    assert (tmp_path / "t.tex").read_text() == to_latex(TABLE)
