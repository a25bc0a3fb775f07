from __future__ import annotations

import re

from chase.cli import demo


def test_the_demo_ends_with_a_table_and_a_report_and_can_be_repeated(chase, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SEEDS", (0,))
    out = tmp_path / "demo"
    done = chase("demo", "--out", out, "--rounds", 2)
    assert done.code == 0
    assert re.search(r"[^-]margin, closed-form against random[a-z, ]*: [+-]", done.out)
    assert re.search(r"chase[a-z, ]* against random[a-z, ]*: [+-]\d+\.\d points after the last round", done.out)
    assert "round 2" in done.out
    assert f"report: {out}/report.html" in done.out
    assert "random" in (out / "report.html").read_text()
    assert (out / "recommended-seed0" / "metrics.jsonl").is_file()
    before = (out / "chase-seed0" / "metrics.jsonl").stat().st_mtime_ns
    again = chase("demo", "--out", out, "--rounds", 1)
    assert again.code == 0
    assert f"replacing the demo in {out}" in again.out
    assert (out / "chase-seed0" / "metrics.jsonl").stat().st_mtime_ns > before


def test_the_demo_touches_nothing_that_is_not_its_own(chase, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    done = chase("demo", "--out", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "holds something else than a demo" in done.err
    assert (tmp_path / "thesis.txt").read_text() == "precious"
