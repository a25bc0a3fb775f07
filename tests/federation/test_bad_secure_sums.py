"""What one site can send in the steps of a secure sum: it is named, the server continues, the others are summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from federation.test_private_rounds import federation, model, run, told
from federation.wire import Wire

from chase.core.messages import ClientUpdate
from chase.core.weights import Arrays
from chase.federation.diary import events
from chase.federation.ops.setup import Loopback
from chase.federation.transport import SiteMessage, Ticket

Change = Callable[[Arrays], Arrays]
BAD = 104


@dataclass
class Tampered(Wire):
    """One site changes what it sends in one step."""

    step: str = ""
    change: Change = field(default=lambda sent: sent)

    def do(self, letter: SiteMessage) -> Ticket:
        ticket = super().do(letter)
        answer = self.answers[ticket]
        if letter.node == BAD and letter.kind == self.step and isinstance(answer.body, ClientUpdate):
            self.answers[ticket] = replace(answer, body=replace(answer.body, extras=self.change(answer.body.extras)))
        return ticket


def tampered(fed: Loopback, step: str, change: Change) -> Tampered:
    return Tampered({100 + n: home for n, home in enumerate(fed.homes.values())}, step=step, change=change)


def first(sent: Arrays, value: np.ndarray) -> Arrays:
    return {**sent, next(iter(sent)): value}


ZEROS = np.zeros(32, dtype=np.uint8)
KEYS: dict[str, Change] = {
    "too short": lambda sent: first(sent, ZEROS[:5]),
    "of another type": lambda sent: first(sent, np.ones(32)),
    "that nobody can agree with": lambda sent: first(sent, ZEROS),
    "used twice": lambda sent: dict.fromkeys(sent, sent["seal"]),
}
SHARES: dict[str, Change] = {
    "too long": lambda sent: first(sent, np.zeros(1 << 20, dtype=np.uint8)),
    "too few": lambda sent: dict(list(sent.items())[1:]),
}
LAST: dict[str, Change] = {
    "for nobody": lambda sent: {"nobody": ZEROS},
    "too short": lambda sent: first(sent, ZEROS[:1]),
    "with the number of another": lambda sent: {n: np.r_[np.uint8([1, 0]), share[2:]] for n, share in sent.items()},
}


def refused(fed: Loopback) -> set[tuple[int, str]]:
    return {(e["round"], e["site"]) for e in events(fed.federation.run) if e["what"] == "refused"}


@pytest.mark.parametrize("change", KEYS.values(), ids=KEYS)
def test_a_site_whose_keys_are_none_is_left_out(tmp_path: Path, change: Change) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1}, secure=True, evaluate="sites")
    (line,) = run(fed, tampered(fed, "turn", change))
    assert (line["took_part"], list(line["sites"]["refused"])) == (4, ["site-e"])
    assert refused(fed) == {(1, "site-e")}
    assert told(fed, "no sum") == told(fed, "no score") == []


@pytest.mark.parametrize("change", SHARES.values(), ids=SHARES)
def test_a_site_whose_shares_do_not_fit_is_left_out(tmp_path: Path, change: Change) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1}, secure=True)
    (line,) = run(fed, tampered(fed, "shares", change))
    assert (line["took_part"], list(line["sites"]["refused"])) == (4, ["site-e"])
    assert told(fed, "no sum") == []


@pytest.mark.parametrize("change", LAST.values(), ids=LAST)
def test_a_site_whose_last_answer_does_not_fit_changes_nothing(tmp_path: Path, change: Change) -> None:
    plain, fed = (federation(tmp_path / name, {"rounds": 1}, secure=True) for name in ("plain", "fed"))
    run(plain, tampered(plain, "", lambda sent: sent))
    (line,) = run(fed, tampered(fed, "unmask", change))
    assert (line["took_part"], list(line["sites"]["refused"])) == (5, ["site-e"])
    assert all(np.array_equal(model(fed)[name], array) for name, array in model(plain).items())


def test_shares_that_nobody_can_open_cost_one_round_and_their_site_is_named(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 2}, secure=True)
    wire = tampered(fed, "shares", lambda sent: {name: np.zeros_like(box) for name, box in sent.items()})
    metrics = run(fed, wire)
    assert [line["took_part"] for line in metrics] == [0, 4]
    assert [list(line["sites"]["refused"]) for line in metrics] == [["site-e"], ["site-e"]]
    assert "4 sites cannot open the shares that it sent for a secure sum" in told(fed, "refused")
    assert len(told(fed, "no sum")) == 1


def test_one_site_that_accuses_another_is_not_believed(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1}, secure=True)
    wire = tampered(fed, "shares", lambda sent: {n: np.zeros_like(b) if n == "0" else b for n, b in sent.items()})
    (line,) = run(fed, wire)
    assert line["took_part"] == 5  # the others can unmask the sum
    assert refused(fed) == set()
    assert told(fed, "failed") == ["shares that cannot be opened, of sites 4"]
