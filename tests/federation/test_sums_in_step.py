"""Closed-form sums after a restore: every label counts once, whichever side was set back."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from federation.test_private_rounds import federation, run, told, wire_of
from federation.test_private_sums import CLOSED, arrays, labels_by_class
from federation.transports import Clock, FakeTransport

from chase.client.contribute import NEVER, RECEIVED
from chase.core.messages import RoundOrder
from chase.federation.diary import Diary, events
from chase.federation.in_step import InStep
from chase.federation.members import Members
from chase.federation.ops.setup import Loopback
from chase.federation.rollback import roll_back
from chase.federation.rules import Member, MemberList
from chase.federation.transport import OUT_OF_STEP
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
    assert ["sums of all its labels again" in why for why in told(fed, "sums restarted")] == [True]


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


@pytest.mark.parametrize(("done", "secure"), [(4, False), (5, False), (6, False), (5, True)])
def test_a_server_rounds_back_counts_every_label_once(tmp_path: Path, done: int, secure: bool) -> None:
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 2}, secure=secure)
    run(fed, wire_of(fed))
    shutil.copytree(fed.federation.run, tmp_path / "copy")
    longer(fed, 3, lost_in=3)
    longer(fed, done)
    assert in_step(fed)
    put_back(tmp_path / "copy", fed.federation.run)
    longer(fed, done + 2)
    assert in_step(fed)


def test_dropped_sums_are_saved_with_the_round(tmp_path: Path) -> None:
    """A run that is made longer by one round at a time starts the server anew each time."""
    fed = federation(tmp_path / "fed", {**CLOSED, "rounds": 1})
    run(fed, wire_of(fed))
    home = fed.homes["site-b"]
    shutil.copytree(home, tmp_path / "copy")
    longer(fed, 3)
    put_back(tmp_path / "copy", home)
    longer(fed, 4)
    assert arrays(fed)["server/received"].tolist() == [NEVER] * 5
    metrics = longer(fed, 5)
    assert [line["took_part"] for line in metrics] == [5, 5, 5, 4, 5]
    assert in_step(fed)


class ThreeMembers:
    """What is said of three sites, round by round."""

    def __init__(self, path: Path) -> None:
        self.path, self.diary = path, Diary(path)
        roster = MemberList(tuple(Member(n, name, "key") for n, name in enumerate("abc")))
        clock = Clock()
        self.members = Members(FakeTransport(clock), lambda: roster, {}, self.diary, clock, True)

    def lost(self, round: int, *sites: str, received: int = 1) -> bool:
        extras = {RECEIVED: np.array([received, received, NEVER])}
        orders = dict.fromkeys(range(3), RoundOrder("run", round, 0, {}, extras=extras))
        refused = dict.fromkeys(sites, f"{OUT_OF_STEP}: restored")
        return InStep(self.path, self.members, self.diary).lost(round, orders, refused)

    def told(self, what: str) -> list[tuple[int, str]]:
        return [(e["round"], e["site"]) for e in events(self.path) if e["what"] == what]


def test_one_site_cannot_have_the_sums_dropped_again_and_again(tmp_path: Path) -> None:
    three = ThreeMembers(tmp_path)
    dropped = [round for round in range(1, 23) if three.lost(round, "b")]
    assert dropped == [1, 2, 11, 12, 21, 22]
    assert three.told("refused") == [(round, "b") for round in range(1, 23) if round not in dropped]
    assert three.told("sums restarted") == [(round, "") for round in dropped]


def test_a_round_that_is_held_again_counts_as_one_drop(tmp_path: Path) -> None:
    three = ThreeMembers(tmp_path)
    assert [three.lost(round, "b") for round in (5, 5, 5, 6, 7)] == [True, True, True, True, False]


def test_a_site_that_takes_back_turns_again_and_again_is_bounded_too(tmp_path: Path) -> None:
    three = ThreeMembers(tmp_path)
    dropped = []
    for round in range(1, 6):
        three.members.seen(round, 0, 9)
        three.members.seen(round, 0, 3)
        dropped.append(three.lost(round))
    assert dropped == [True, True, False, False, False]


def test_most_sites_may_always_have_the_sums_dropped(tmp_path: Path) -> None:
    three = ThreeMembers(tmp_path)
    assert all(three.lost(round, "a", "b") for round in range(1, 6))
    assert three.told("refused") == []


def test_sums_are_not_dropped_for_a_site_of_which_the_server_has_none(tmp_path: Path) -> None:
    three = ThreeMembers(tmp_path)
    assert not three.lost(1, "c")
    assert not three.lost(2, "a", "b", "c", received=NEVER)
