"""What clients asked for, worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chase.report.html import render
from chase.report.notes import run_notes
from chase.report.requests_section import chance_share, evenness, largest_by_client, largest_class_share
from chase.report.runs import MethodRuns, read_run

ASKED = [{}, {"0": {"1": 3, "2": 1}, "1": {"0": 2}}, {"0": {"2": 4}}]
"""Three rounds: client 0 asks for classes 1, 1, 1, 2 and then 2, 2, 2, 2; client 1 for 0, 0."""


@pytest.fixture
def run(make_run) -> Path:
    path = make_run("run", [0.3, 0.4, 0.5])
    lines = [json.loads(text) for text in (path / "metrics.jsonl").read_text().splitlines()]
    for line, asked, chance in zip(lines, ASKED, (None, 3, 1), strict=True):
        picks = sum(n for own in asked.values() for n in own.values())
        line |= {"asked_classes": asked, "picks": picks, "picks_by_chance": chance}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_shares_by_hand(run: Path) -> None:
    data = read_run(run)
    assert chance_share(data) == pytest.approx([np.nan, 50.0, 40.0], nan_ok=True)  # 3 of 6, then 4 of 10
    by_client = largest_by_client(data)
    assert np.isnan(by_client[0]).all()
    assert by_client[1:].tolist() == [[75.0, 100.0], [62.5, 100.0]]
    assert largest_class_share(data) == pytest.approx([np.nan, 87.5, 81.25], nan_ok=True)
    share = np.array([2, 3, 1]) / 6
    even = 100 * -(share * np.log(share)).sum() / np.log(3)
    assert evenness(data)[1] == pytest.approx(even)
    assert np.isnan(evenness(data)[0])


def test_the_page_shows_requests_and_notes(run: Path, make_run) -> None:
    (run / "notes.json").write_text(json.dumps(["no client holds any sample of: <zebra>"]))
    page = render([read_run(run), read_run(make_run("other", [0.1], strategy="random"))])
    assert "<h2>Requests</h2>" in page
    assert "Classes asked for by client: chase" in page
    assert "Picks decided by chance" in page
    assert "chase, seed 0: no client holds any sample of: &lt;zebra&gt;." in page


def test_runs_of_earlier_versions_have_no_such_section(make_run) -> None:
    page = render([read_run(make_run("old", [0.1, 0.2]))])
    assert "<h2>Requests</h2>" not in page


def test_a_note_that_all_runs_have_is_said_once(run: Path) -> None:
    (run / "notes.json").write_text(json.dumps(["too few samples"]))
    assert run_notes([MethodRuns("EV", [read_run(run)])]) == ["Too few samples."]
