"""A transport without a network: scripted sites, and a clock that moves only when somebody sleeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from chase.core.messages import ClientUpdate, RoundOrder
from chase.federation.diary import Diary, events
from chase.federation.members import Members
from chase.federation.rounds import Rounds
from chase.federation.rules import Member, MemberList, Rules
from chase.federation.transport import Hello, Node, NodeId, Reply, SiteMessage, Tally, Ticket

METRICS = {"turn": 1.0, "labels": 2.0, "inferences": 0.0, "inferred_samples": 0.0, "pool_labeled": 4.0}
METRICS |= {f"pool_{name}": 0.0 for name in ("unlabeled", "asked", "dormant", "set_aside")}
Script = Callable[[SiteMessage, int], tuple[float, object]]
"""(letter, how many turns it was asked for before) -> (seconds until the answer, body or error text)."""


def update_for(order: RoundOrder, number: int, value: float, **changes: object) -> ClientUpdate:
    update = ClientUpdate(number, order.round, {"w": np.full(3, value, dtype=np.float32)}, 4, dict(METRICS))
    return replace(update, **changes)  # type: ignore[arg-type]


def prompt(letter: SiteMessage, turn: int) -> tuple[float, object]:
    """Answers in a second, with its own number as the weights."""
    assert letter.order is not None
    number = int(letter.header["number"])
    return 1.0, update_for(letter.order, number, float(number))


@dataclass
class Clock:
    now: float = 0.0
    last: float = 100_000.0
    """When a round that still waits has failed."""

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < self.last, "the round stands still for ever"


@dataclass
class FakeTransport:
    clock: Clock
    online: dict[NodeId, str] = field(default_factory=dict)
    scripts: dict[NodeId, Script] = field(default_factory=dict)
    hellos: dict[NodeId, Hello] = field(default_factory=dict)
    comes_at: dict[NodeId, float] = field(default_factory=dict)
    restarts: dict[NodeId, tuple[float, ...]] = field(default_factory=dict)
    """When a node is restarted: what it was sent before and has not answered is lost."""
    sent: list[SiteMessage] = field(default_factory=list)
    _due: dict[Ticket, tuple[float, object]] = field(default_factory=dict)

    def nodes(self) -> Mapping[NodeId, Node]:
        here = {n: name for n, name in self.online.items() if self.clock.now >= self.comes_at.get(n, 0.0)}
        return {n: Node(name, self._session(n)) for n, name in here.items()}

    def _session(self, node: NodeId) -> str:
        return f"started {sum(1 for at in self.restarts.get(node, ()) if at <= self.clock.now)} times"

    def send(self, letters: Sequence[SiteMessage]) -> list[Ticket | None]:
        return [self._send(letter) for letter in letters]

    def _send(self, letter: SiteMessage) -> Ticket | None:
        before = sum(1 for old in self.sent if old.node == letter.node and old.kind == "turn")
        self.sent.append(letter)
        ticket = f"ticket-{len(self.sent)}"
        if letter.kind == "hello":
            self._due[ticket] = (
                self.clock.now,
                self.hellos.get(letter.node, Hello(self.online[letter.node], (), 100, 20)),
            )
        elif letter.kind == "tally":
            self._due[ticket] = (self.clock.now + 1, Tally(letter.node, 10))
        else:
            delay, body = self.scripts.get(letter.node, prompt)(letter, before)
            self._due[ticket] = (self.clock.now + delay, body)
        return ticket

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        ready = [t for t in tickets if self._due[t][0] <= self.clock.now]
        return [self._answer(t, self._due[t][1]) for t in ready]

    def _answer(self, ticket: Ticket, body: object) -> Reply:
        return Reply(ticket, None, body) if isinstance(body, str) else Reply(ticket, body)  # type: ignore[arg-type]


@dataclass
class AtOnce:
    """A transport whose sites answer as soon as a letter is sent; ``do`` says how."""

    homes: Mapping[NodeId, Path]
    answers: dict[Ticket, Reply] = field(default_factory=dict)

    def nodes(self) -> Mapping[NodeId, Node]:
        return dict.fromkeys(self.homes, Node())

    def send(self, letters: Sequence[SiteMessage]) -> list[Ticket | None]:
        return [self.do(letter) for letter in letters]

    def do(self, letter: SiteMessage) -> Ticket:
        raise NotImplementedError

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        return [self.answers[t] for t in tickets if t in self.answers]


@dataclass
class ThreeSites:
    """Three sites called a, b and c at nodes 10, 11 and 12."""

    run: Path
    rules: Rules
    transport: FakeTransport
    rounds: Rounds

    @classmethod
    def set(cls, run: Path, authenticated: bool = True, **rules: object) -> ThreeSites:
        clock = Clock()
        transport = FakeTransport(clock, {10: "a", 11: "b", 12: "c"})
        roster = MemberList(tuple(Member(n, name, "key") for n, name in enumerate("abc")))
        agreed = Rules(**{"poll": 1.0, "deadline": 60.0, **rules})  # type: ignore[arg-type]
        diary = Diary(run)
        members = Members(transport, lambda: roster, {"settings": {}}, diary, clock, authenticated)
        rounds = Rounds(transport, members, agreed, diary, lambda c: {"number": c}, clock=clock, sleep=clock.sleep)
        members.look(0)
        return cls(run, agreed, transport, rounds)

    def hold(self, round: int):
        order = RoundOrder("run", round, 0, {"w": np.zeros(3, dtype=np.float32)})
        return self.rounds.hold(dict.fromkeys(range(3), order))

    def told(self, what: str) -> list[tuple[int, str]]:
        return [(e["round"], e["site"]) for e in events(self.run) if e["what"] == what]

    def whys(self, what: str) -> list[str]:
        return [e["why"] for e in events(self.run) if e["what"] == what]
