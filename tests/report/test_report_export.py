from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from chase.report.cells import NONE, Number, Spread, mean_and_range, p_value, with_interval
from chase.report.export import to_csv, to_latex, to_markdown, write_table
from chase.report.statistics import Interval
from chase.report.tables import ReportTable

LABELS = Number(1234.0, 0, Spread(1200.0, 1300.0, "interval"))
TABLE = ReportTable(("method", "labels, %"), [["a_b & c", LABELS], ["w/o | S", Number(None)]])


def read(table: ReportTable) -> list[list[str]]:
    return list(csv.reader(io.StringIO(to_csv(table))))


def test_csv_reads_back_as_numbers():
    assert read(TABLE) == [
        ["method", "labels, %", "labels, %, low", "labels, %, high"],
        ["a_b & c", "1234", "1200", "1300"],
        ["w/o | S", "", "", ""],
    ]


def test_csv_is_exact_whatever_is_shown():
    values = np.array([0.8211, 0.8333333333333334])
    cell = mean_and_range(values, 1, 100)
    assert str(cell) == "82.7 (82.1–83.3)"
    _, found = read(ReportTable(("what", "accuracy, %"), [["a", cell]]))
    assert [float(text) for text in found[1:]] == [(100 * values).mean(), *(100 * values)]
    assert read(ReportTable(("p",), [[p_value(1.25e-7)]], text_columns=0))[1] == ["1.25e-07"]


def test_csv_has_three_columns_only_for_figures_with_ends():
    columns = ("what", "seeds", "points", "range", "p", "verdict")
    points = with_interval(Interval(1.44, -0.11, 2.99, 3), 2, signed=True)
    rows = [
        ["a", "3 of 3", points, Number(83.1, 1, Spread(82.0, 84.25, "range")), p_value(0.0001), "interval above 0"],
        ["b", 1, with_interval(Interval(-0.2, np.nan, np.nan, 1), 2), Number(80.0, 1), p_value(0.25), NONE],
    ]
    lines = read(ReportTable(columns, rows, words=frozenset({5})))
    assert lines[0] == [
        *("what", "seeds", "points", "points, low", "points, high"),
        *("range", "range, lowest", "range, highest", "p", "verdict"),
    ]
    assert lines[1] == ["a", "3 of 3", "1.44", "-0.11", "2.99", "83.1", "82", "84.25", "0.0001", "interval above 0"]
    assert lines[2] == ["b", "1", "-0.2", "", "", "80", "", "", "0.25", ""]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (Number(1234.5, 1), "1,234.5"),
        (Number(-0.001, 2, signed=True), "0.00"),
        (Number(0.5, 1, signed=True), "+0.5"),
        (Number(float("nan")), NONE),
        (p_value(0.0001), "< 0.001"),
        (p_value(0.25), "0.250"),
        (p_value(None), NONE),
        (Number(80.0, 0, unit=" %"), "80 %"),
        (Number(3.0, 0, Spread(3.0, 3.0, "range")), "3"),
    ],
)
def test_a_number_is_shown_as_its_cell_says(cell: Number, shown: str):
    assert str(cell) == shown


def test_latex_is_escaped_and_ruled():
    text = to_latex(TABLE)
    assert text.startswith("\\begin{tabular}{lr}\n\\toprule\nmethod & labels, \\% \\\\\n\\midrule\n")
    assert "a\\_b \\& c & 1,234 (1,200 to 1,300) \\\\" in text
    assert "w/o \\textbar{} S & -- \\\\" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_latex_sets_signs_and_words():
    points = with_interval(Interval(-1.2, -2.0, 0.1, 3), 1, signed=True)
    share = Number(83.1, 1, Spread(82.0, 84.2, "range"))
    rows = [["x-1", p_value(0.0001), points, "lower"], ["10–20", p_value(0.25), share, NONE]]
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
