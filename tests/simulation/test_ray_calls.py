"""How calls are handed to actors, on a cluster that is made up: batches ahead, and actors that die."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chase.simulation.ray import OnRay, _Actor, _Call
from chase.simulation.workers import WorkerFailed


class Died(Exception):
    """An actor is gone."""


class MadeUpRay:
    """Answers the oldest reference; calls of actors in ``dead`` fail."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayActorError=Died, ObjectLostError=Died)

    def __init__(self, *dead: str) -> None:
        self.dead = set(dead)

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> str:
        if reference.actor in self.dead:
            raise Died
        return str(reference.call)


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
        def send(actor: str) -> Any:
            open_at[actor] = open_at.get(actor, 0) + 1
            most[actor] = max(most.get(actor, 0), open_at[actor])
            sent.append((name, actor))
            return SimpleNamespaceWithHash(actor=actor, call=name)

        def take(answer: str) -> None:
            answers.append(answer)
            open_at[dict(sent)[answer]] -= 1

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


def test_a_call_that_three_actors_died_of_ends_the_run_by_name() -> None:
    made = engine(MadeUpRay("one", "two", "three", "four"), "one", "two", "three", "four")
    with pytest.raises(WorkerFailed, match="3 actors died while running"):
        made._run(calls(1, {}, []), 2)
