"""The heat map of clients by classes."""

from __future__ import annotations

import json

from chase.report.coverage_section import coverage_section
from chase.report.html import render
from chase.report.runs import by_method, read_run

COVERAGE = {
    "classes": ["cat", " ", "<zebra>"],
    "clients": ["0", "site [b]"],
    "held": [[5, 0, 0], [1, 300, 0]],
    "labeled": [[1, 0, 0], [0, 7, 0]],
    "unknown": [0, 0],
}


def test_a_run_with_coverage_has_two_maps(make_run):
    path = make_run("one", [0.5, 0.6])
    (path / "coverage.json").write_text(json.dumps(COVERAGE))
    page = render([read_run(path)])
    assert 'id="coverage"' in page
    assert "Samples of each class, by client" in page
    assert "Nobody has: &lt;zebra&gt;." in page
    assert page.count("<zebra>") == 0


def test_runs_that_divide_alike_are_shown_once(make_run):
    paths = [make_run(name, [0.5], seed=seed) for name, seed in (("a", 0), ("b", 1), ("c", 2))]
    for path, extra in zip(paths, (0, 0, 3), strict=True):
        table = COVERAGE | {"held": [[5 + extra, 0, 0], [1, 300, 0]]}
        (path / "coverage.json").write_text(json.dumps(table))
    section = coverage_section(by_method([read_run(path) for path in paths]))
    assert section.body.count("<svg") == 4
    assert "(seed 2)" in section.body


def test_a_run_without_coverage_has_no_such_section(make_run):
    assert coverage_section(by_method([read_run(make_run("one", [0.5]))])) is None


def test_classes_are_named_from_the_coverage_where_the_run_has_no_model_card(make_run):
    path = make_run("one", [0.5])
    (path / "model.json").unlink()
    (path / "coverage.json").write_text(json.dumps(COVERAGE))
    assert read_run(path).classes == COVERAGE["classes"]
