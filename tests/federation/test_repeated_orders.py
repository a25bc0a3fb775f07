"""A round that a site is asked for again: the same order has the same answer, another one for that round is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation.test_private_rounds import federation, run, told, wire_of
from site_room.sites import first_order, now, tiny_settings, tiny_site

from chase.core.errors import AheadError, FederationError
from chase.core.messages import RoundOrder
from chase.core.weights import digest
from chase.federation.rollback import roll_back
from chase.flower.client_app import harmless
from chase.run.record import Record
from chase.site.turn import take_turn


def shifted(order: RoundOrder) -> dict[str, np.ndarray]:
    return {name: array + array.dtype.type(1) for name, array in order.weights.items()}


CHANGES = {
    "model": lambda order: replace(order, weights=shifted(order)),
    "start": lambda order: replace(order, start=shifted(order)),
    "seed": lambda order: replace(order, seed=order.seed + 1),
    "phase": lambda order: replace(order, phase="train"),
    "tracking": lambda order: replace(order, track=False),
    "extras": lambda order: replace(order, extras={"more": np.zeros(1)}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_round_that_is_done_is_not_answered_for_another_order(tmp_path: Path, what: str) -> None:
    settings, site = tiny_settings(), tiny_site(tmp_path / "home", 1)
    order = first_order(site, settings)
    first = take_turn(site, settings, 1, order)
    before = digest(now(site).to_arrays())
    with pytest.raises(AheadError, match="round 1 of this run is done here, for another order") as refused:
        take_turn(site, settings, 1, CHANGES[what](order))
    assert harmless(refused.value) == "ahead of the server: it has done round 1 for another order"
    assert digest(now(site).to_arrays()) == before
    again = take_turn(site, settings, 1, order)
    assert (digest(again.weights), again.metrics) == (digest(first.weights), first.metrics)
    assert take_turn(site, settings, 1, replace(CHANGES[what](order), round=2)).round == 2
    site.close()


def test_another_allowance_makes_no_other_order(tmp_path: Path) -> None:
    """A server that was restarted divides the rest of a total budget anew; what was asked cannot be taken back."""
    settings, site = tiny_settings(), tiny_site(tmp_path / "home", 1)
    order = replace(first_order(site, settings), allowances={1: 2})
    first = take_turn(site, settings, 1, order)
    assert take_turn(site, settings, 1, replace(order, allowances={1: 3})).metrics == first.metrics
    site.close()


def test_a_turn_of_an_earlier_version_answers_its_round(tmp_path: Path) -> None:
    settings, site = tiny_settings(), tiny_site(tmp_path / "home", 1)
    order = first_order(site, settings)
    first = take_turn(site, settings, 1, order)
    with site.home.database.transaction() as db:
        body = json.loads(db.execute("SELECT body FROM turns").fetchone()["body"])
        del body["order"]
        db.execute("UPDATE turns SET body = ?", (json.dumps(body),))
    assert take_turn(site, settings, 1, CHANGES["model"](order)).metrics == first.metrics
    site.close()


def test_a_server_set_back_a_round_or_two_goes_on_as_long_as_it_asks_as_before(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1})
    run(fed, wire_of(fed))
    shutil.copytree(fed.federation.run, tmp_path / "copy")

    def extend(rounds: int) -> None:
        record = Record.open(fed.federation.run)
        record.keep(record.changed({"rounds": rounds}))

    def restore() -> None:
        shutil.rmtree(fed.federation.run)
        shutil.copytree(tmp_path / "copy", fed.federation.run)
        extend(3)

    extend(3)
    before = run(fed, wire_of(fed))
    restore()
    again = run(fed, wire_of(fed))
    assert [line["test_loss"] for line in again] == [line["test_loss"] for line in before]
    restore()
    wire = wire_of(fed)
    wire.lost, wire.rounds = {(104, "turn")}, (2,)  # without a site in round 2, the model of round 3 is another one
    with pytest.raises(FederationError, match=r"round 3 for another order.*`chase federation rollback FED 2`"):
        run(fed, wire)
    assert set(told(fed, "refused")) == {"ahead of the server: it has done round 3 for another order"}
    roll_back(fed.federation, 2)
    metrics = run(fed, wire_of(fed))
    assert [line["took_part"] for line in metrics] == [5, 4, 5]
    assert metrics[-1]["labels"] > before[-1]["labels"]


def test_a_private_round_is_not_released_twice_from_two_models(tmp_path: Path) -> None:
    """The noise of a round is the same when it is repeated: with another model the difference would have none."""
    fed = federation(tmp_path / "fed", {"rounds": 1}, dp_epsilon=8.0, dp_clip=0.5)
    wire, honest = wire_of(fed), type(wire_of(fed)).send
    run(fed, wire)
    seen = len(wire.seen)

    def twice(letters):  # type: ignore[no-untyped-def]
        moved = [replace(x, order=replace(x.order, weights=shifted(x.order))) if x.order else x for x in letters]
        return honest(wire, moved)

    wire.send = twice  # type: ignore[method-assign]
    shutil.rmtree(fed.federation.run / "checkpoint")
    (fed.federation.run / "metrics.jsonl").unlink()
    with pytest.raises(FederationError, match="round 1 for another order"):
        run(fed, wire)
    kinds = [kind for _, kind, _ in wire.seen[seen:]]
    assert kinds.count("turn") == 5
    assert all(len(b"".join(parts)) < 2000 for _, kind, parts in wire.seen[seen:] if kind == "turn")
