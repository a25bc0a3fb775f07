"""What clients asked for, worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chase.report.html import render
from chase.report.notes import run_notes
from chase.report.requests_section import (
    chance_share,
    evenness,
    largest_by_client,
    largest_class_share,
    requested,
    requests_by_client,
)
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


def test_the_share_of_every_class_is_shown_round_by_round(run: Path) -> None:
    """Client 0 has asked for classes 1 and 2 three times and once, in the end three and five times."""
    found = requests_by_client(MethodRuns("EV", [read_run(run)]))
    assert found is not None
    assert np.isnan(found.shares[0]).all()
    assert found.shares[1:].tolist() == [[[0, 75, 25], [100, 0, 0]], [[0, 37.5, 62.5], [100, 0, 0]]]
    assert (found.whose, found.note) == ("EV", "")
    page = render([read_run(run)])
    assert "Classes asked for over rounds: chase" in page
    assert ">client 1</text>" in page
    assert "Most requested class by client" not in page, "every client has a map of its own"


def test_seeds_are_added_up_only_where_clients_hold_the_same(run: Path) -> None:
    first = read_run(run)
    one, same, other = (
        replace(first, settings={**first.settings, "seed": seed}, coverage={**first.coverage, "held": held})
        for seed, held in ((0, [[9, 9, 9]]), (1, [[9, 9, 9]]), (2, [[1, 2, 3]]))
    )
    together = requests_by_client(MethodRuns("EV", [one, replace(same, metrics=same.metrics[:2])]))
    assert together is not None
    assert together.counts.tolist() == (2 * requested(first)[:2]).tolist(), "the rounds that both have done"
    assert together.whose == "EV, 2 seeds"
    assert together.note == "The requests of all seeds are added up."
    apart = requests_by_client(MethodRuns("EV", [one, same, other]))
    assert apart is not None
    assert apart.counts.tolist() == requested(first).tolist()
    assert (apart.whose, apart.note) == ("EV, seed 0", "Only seed 0: clients hold other samples in other seeds.")


def test_of_many_clients_those_that_asked_most_are_shown_and_that_is_said(run: Path) -> None:
    first = read_run(run)
    asked = {str(client): {"1": 1 + (client in (3, 40))} for client in range(50)}
    many = replace(first, metrics=[{**line, "asked_classes": asked} for line in first.metrics])
    found = requests_by_client(MethodRuns("EV", [many]))
    assert found is not None
    few = found.most(3)
    assert few.clients == ["0", "3", "40"]
    assert few.counts.shape == (3, 3, 3)
    assert few.note == "The 3 of 50 clients with the most requests are shown."
    page = render([many])
    for many_clients in (12, 40):
        assert f"The {many_clients} of 50 clients with the most requests are shown." in page
    assert "Most requested class by client: chase" in page


def test_runs_of_earlier_versions_have_no_such_section(make_run) -> None:
    page = render([read_run(make_run("old", [0.1, 0.2]))])
    assert "<h2>Requests</h2>" not in page


def test_a_note_that_all_runs_have_is_said_once(run: Path) -> None:
    (run / "notes.json").write_text(json.dumps(["too few samples"]))
    assert run_notes([MethodRuns("EV", [read_run(run)])]) == ["Too few samples."]
