from __future__ import annotations

import json

import numpy as np

from chase.report import tables
from chase.report.cells import NONE, mean_and_range, number
from chase.report.runs import by_method, find_runs


def test_numbers_and_ranges():
    assert str(number(1234.5, 1)) == "1,234.5"
    assert str(number(None)) == str(number(float("nan"))) == NONE
    assert str(mean_and_range(np.array([0.82, 0.84]), 1, 100)) == "83.0 (82.0–84.0)"
    assert str(mean_and_range(np.array([0.82, np.nan]), 1, 100)) == "82.0"
    assert str(mean_and_range(np.array([3.0, 3.0]), 0)) == "3"
    assert str(mean_and_range(np.array([np.nan]))) == NONE


def test_durations():
    assert [tables.duration(s) for s in (59.4, 61, 3660)] == ["59 s", "1 min 01 s", "1 h 01 min"]


def test_the_summary_says_mean_and_range_over_seeds(make_run):
    paths = [make_run("a", [0.1, 0.5]), make_run("b", [0.3, 0.7], seed=1), make_run("c", [0.2], strategy="random")]
    table = tables.summary(by_method(find_runs(paths)))
    chase, random = (dict(zip(table.columns, row, strict=True)) for row in table.texts)
    assert chase["accuracy, %"] == "60.0 (50.0–70.0)"
    assert (chase["runs"], chase["rounds"], chase["labels"], chase["seconds"]) == ("2", "2", "2", "0.50")
    assert (random["method"], random["accuracy, %"], random["inferences"]) == ("random", "20.0", "100")


def test_the_summary_takes_the_last_evaluation(make_run):
    table = tables.summary(by_method(find_runs([make_run("a", [0.4, None])])))
    assert table.texts[0][list(table.columns).index("accuracy, %")] == "40.0"
    table = tables.summary(by_method(find_runs([make_run("b", [None])])))
    assert table.texts[0][list(table.columns).index("accuracy, %")] == "not measured"


def test_a_brief_table_keeps_its_rows(make_run):
    full = tables.summary(by_method(find_runs([make_run("a", [0.4])])))
    assert tables.brief(full, ("method", "labels")).texts == [["chase", "0"]]


def test_some_rounds_are_evaluated_by_all_and_end_with_the_last(make_run):
    long = make_run("a", [0.01 * i for i in range(40)])
    assert tables.some_rounds(by_method(find_runs([long]))) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert tables.some_rounds(by_method(find_runs([long])), most=3) == [20, 40]
    odd = make_run("odd", [0.1 if i % 2 == 1 else None for i in range(23)])
    assert tables.some_rounds(by_method(find_runs([odd]))) == [4, 10, 14, 20, 22]
    gaps = make_run("b", [0.1 if i % 3 == 2 else None for i in range(9)], strategy="ev")
    assert tables.some_rounds(by_method(find_runs([long, gaps]))) == [3, 6, 9]
    never = make_run("c", [None, None], strategy="random")
    assert tables.some_rounds(by_method(find_runs([long, never]))) == []


def test_accuracy_at_rounds(make_run):
    paths = [make_run("a", [0.1, 0.5]), make_run("b", [0.3, 0.7], seed=1)]
    table = tables.accuracy_at(by_method(find_runs(paths)), [1, 2])
    assert table.texts == [["chase", "20.0 (10.0–30.0)", "60.0 (50.0–70.0)"]]


def test_round_by_round_ends_with_the_last_round(make_run):
    (run,) = find_runs([make_run("a", [0.1] * 18 + [None])])
    rows = tables.round_by_round(run).texts
    assert [row[0] for row in rows] == ["2", "4", "6", "8", "10", "12", "14", "16", "18", "19"]
    assert rows[0] == ["2", "10.0", "0.900", "2", "0.50", "4", "10", "0.50"]
    assert rows[-1][1] == NONE


def test_second_opinions_have_a_column_where_there_are_any(make_run):
    plain, again = make_run("a", [0.1, 0.5]), make_run("b", [0.3, 0.7], strategy="random")
    lines = [json.loads(line) for line in (again / "metrics.jsonl").read_text().splitlines()]
    lines[1]["second_opinions"] = 7
    (again / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = tables.summary(by_method(find_runs([plain, again])))
    at = list(table.columns).index("second opinions among them")
    assert list(table.columns)[at - 1] == "labels"
    assert [row[at] for row in table.texts] == [NONE, "7"]
    (run,) = find_runs([again])
    assert [row[4] for row in tables.round_by_round(run).texts] == ["0", "7"]
    assert "second opinions among them" not in tables.summary(by_method(find_runs([plain]))).columns


def test_settings_that_differ(make_run):
    methods = by_method(find_runs([make_run("a", [0.1]), make_run("b", [0.1], strategy="ev", mu=0.0, seed=3)]))
    table = tables.settings_that_differ(methods)
    assert table is not None
    assert table.texts == [["strategy", "chase", "ev"], ["mu", "0.1", "0.0"]]
    assert tables.settings_that_differ(methods[:1]) is None
    assert ["mu", "0.1, 0.0"] in tables.all_settings(methods).texts
    assert tables.versions([m.first for m in methods]).texts[0] == ["torch", "2.13.0"]
