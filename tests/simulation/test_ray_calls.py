"""How calls are handed to actors, on a cluster that is made up: batches ahead, and actors that die."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chase.core.messages import RoundOrder
from chase.simulation import parcels
from chase.simulation.ray import OnRay, _Actor, _Call
from chase.simulation.workers import WorkerFailed


class Died(Exception):
    """An actor is gone."""


class MadeUpRay:
    """Answers the oldest reference; calls of actors in ``dead`` fail."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayActorError=Died, ObjectLostError=Died)

    def __init__(self, *dead: str) -> None:
        self.dead, self.killed = set(dead), list[str]()

    def kill(self, handle: str) -> None:
        self.killed.append(handle)

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> dict[str, Any]:
        if reference.actor in self.dead:
            raise Died
        return {"call": str(reference.call), "processor": 0.0}


def engine(ray: MadeUpRay, *actors: str) -> OnRay:
    made = OnRay.__new__(OnRay)
    made._ray, made._processor, made.notes = ray, 0.0, []
    made._actors, made._coming = [_Actor(name, node=name) for name in actors], {}
    made._start = lambda: None  # type: ignore[method-assign]
    return made


def calls(count: int, most: dict[str, int], answers: list[str]) -> list[_Call]:
    """Calls that note what comes back, and the most that an actor had at a time."""
    open_at: dict[str, int] = {}

    def make(name: str) -> _Call:
        def send(to: _Actor) -> Any:
            actor = to.handle
            open_at[actor] = open_at.get(actor, 0) + 1
            most[actor] = max(most.get(actor, 0), open_at[actor])
            sent.append((name, actor))
            return SimpleNamespaceWithHash(actor=actor, call=name)

        def take(answer: dict[str, Any]) -> None:
            answers.append(answer["call"])
            open_at[dict(sent)[answer["call"]]] -= 1

        return _Call(name, send, take)

    sent: list[tuple[str, str]] = []
    return [make(f"call {number}") for number in range(count)]


class SimpleNamespaceWithHash(SimpleNamespace):
    """A reference."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("ahead", [1, 2])
def test_every_call_is_answered_once_and_no_actor_has_more_than_it_should(ahead: int) -> None:
    most: dict[str, int] = {}
    answers: list[str] = []
    engine(MadeUpRay(), "one", "two")._run(calls(7, most, answers), ahead)
    assert sorted(answers) == [f"call {number}" for number in range(7)]
    assert most == {"one": ahead, "two": ahead}


def test_calls_of_an_actor_that_died_run_elsewhere_and_only_the_one_it_ran_counts_it() -> None:
    answers: list[str] = []
    some = calls(5, {}, answers)
    made = engine(MadeUpRay("one"), "one", "two")
    made._run(some, 2)
    assert sorted(answers) == [f"call {number}" for number in range(5)]
    assert [call.deaths for call in some] == [1, 0, 0, 0, 0]
    assert made.notes == ["an actor on node one died (Died) while running call 0; it is run again"]
    assert [actor.node for actor in made._actors] == ["two"]
    assert made._ray.killed == ["one"]


def test_a_call_that_three_actors_died_of_ends_the_run_by_name() -> None:
    made = engine(MadeUpRay("one", "two", "three", "four"), "one", "two", "three", "four")
    with pytest.raises(WorkerFailed, match="3 actors died while running"):
        made._run(calls(1, {}, []), 2)


class Handle:
    """Remembers what it was sent; as many references come back as pieces were asked for."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, ...]] = []

    def options(self, num_returns: int) -> Handle:
        self.asked = num_returns
        return self

    @property
    def turns(self) -> Handle:
        return self

    def remote(self, *arguments: Any) -> list[str]:
        self.got.append(arguments)
        return [f"piece {n}" for n in range(self.asked)]


@pytest.mark.parametrize(("numbers", "stored"), [(1000, False), (10_000_000, True)])
def test_an_order_goes_to_each_actor_once_with_a_call_or_through_the_object_store(numbers: int, stored: bool) -> None:
    ray, puts = MadeUpRay(), list[Any]()
    ray.put = lambda value: puts.append(value) or "reference"  # type: ignore[attr-defined]
    made, actors = engine(ray), [_Actor(Handle()), _Actor(Handle())]
    made._number = 0
    for number in (1, 2):
        order = made._numbered(RoundOrder("run", number, 0, {"w": np.zeros(numbers, np.float32)}))
        for actor in (actors[0], actors[1], actors[0]):
            made._send(actor, "turns", order, ("jobs",), 200_000)
    assert len(puts) == (2 if stored else 0)
    for actor, calls in zip(actors, (4, 2), strict=True):
        assert actor.handle.asked == 3
        assert len(actor.handle.got) == calls
        said = [parcels.unpack(parcels.joined(pieces)) for _, _, *pieces in actor.handle.got]
        numbered = [number for number, _, _ in said]
        new = [at for at, number in enumerate(numbered) if number not in numbered[:at]]
        assert [at for at, (_, order, _) in enumerate(said) if order is not None] == ([] if stored else new)
        assert [at for at, got in enumerate(actor.handle.got) if got[1] is not None] == (new if stored else [])
        assert all(len(piece) < 100_000 for got in actor.handle.got for piece in got[2:])
