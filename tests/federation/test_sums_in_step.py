"""Closed-form sums after a restore: every label counts once, whichever side was set back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from federation.test_private_rounds import federation, run, told, wire_of
from federation.test_private_sums import CLOSED, arrays, labels_by_class

from chase.federation.ops.setup import Loopback
from chase.federation.rollback import roll_back
from chase.home.store import ClientStore
from chase.run.metrics import Metrics
from chase.run.record import Record
from chase.site.place import Site


def longer(fed: Loopback, rounds: int, lost_in: int | None = None) -> list[Metrics]:
    """More rounds; in one of them the answer of the third site is lost."""
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": rounds}))
    wire = wire_of(fed)
    if lost_in is not None:
        wire.lost, wire.rounds = {(102, "turn")}, (lost_in,)
    return run(fed, wire)


def in_step(fed: Loopback) -> bool:
    return arrays(fed)["sums/counts"].tolist() == labels_by_class(fed)


def put_back(copy: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(copy, place)


@pytest.mark.parametrize("secure", [False, True])
def test_a_restored_site_is_not_counted_twice(tmp_path: Path, secure: bool) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 2}, secure=secure)
    run(fed, wire_of(fed))
    home = fed.homes["site-b"]
    shutil.copytree(home, tmp_path / "copy")
    longer(fed, 5)
    assert in_step(fed)
    put_back(tmp_path / "copy", home)
    metrics = longer(fed, 7)
    assert [line["took_part"] for line in metrics] == [5, 5, 5, 5, 5, 4, 5]
    assert in_step(fed)
    assert told(fed, "rolled back")
    assert ["anew" in why for why in told(fed, "sums")] == [True]


def test_a_site_that_was_made_again_is_not_counted_twice(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 2})
    shutil.copytree(fed.homes["site-b"], tmp_path / "copy")
    run(fed, wire_of(fed))
    put_back(tmp_path / "copy", fed.homes["site-b"])
    longer(fed, 4)
    assert in_step(fed)


def test_a_site_whose_last_turn_was_damaged_is_not_counted_twice(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 3})
    run(fed, wire_of(fed))
    newest = max((fed.homes["site-b"] / "state").iterdir(), key=lambda path: path.name)
    newest.write_bytes(b"damaged")
    site = Site(fed.homes["site-b"])
    assert ClientStore(site.home, site.start()).drop_damaged() == 1
    site.close()
    longer(fed, 5)
    assert in_step(fed)


@pytest.mark.parametrize("secure", [False, True])
def test_labels_that_came_after_the_round_gone_back_to_are_summed_again(tmp_path: Path, secure: bool) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 5}, secure=secure)
    run(fed, wire_of(fed))
    roll_back(fed.federation, 2)
    longer(fed, 5)
    assert in_step(fed)


@pytest.mark.parametrize("secure", [False, True])
def test_a_server_two_rounds_back_counts_no_repeated_answer_twice(tmp_path: Path, secure: bool) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 2}, secure=secure)
    run(fed, wire_of(fed))
    shutil.copytree(fed.federation.run, tmp_path / "copy")
    longer(fed, 3, lost_in=3)
    longer(fed, 4)
    assert in_step(fed)
    put_back(tmp_path / "copy", fed.federation.run)
    longer(fed, 6)
    assert in_step(fed)
