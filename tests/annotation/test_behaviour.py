from __future__ import annotations

from collections import Counter

import pytest

from chase.annotation.behaviour import Behaviour, behaviours, reco

PASSIVE, ORDINARY, AGGRESSIVE = Behaviour(5, 5), Behaviour(7, 3), Behaviour(10, 1)


@pytest.mark.parametrize(
    ("behaviour", "turns"),
    [
        (PASSIVE, [1, 6, 11, 16]),
        (ORDINARY, [1, 4, 7, 10, 13, 16, 19]),
        (AGGRESSIVE, list(range(1, 20))),
    ],
)
def test_the_calendar_over_twenty_turns(behaviour: Behaviour, turns: list[int]) -> None:
    assert [t for t in range(20) if behaviour.asks(t)] == turns


@pytest.mark.parametrize(
    ("clients", "groups"), [(10, (2, 6, 2)), (100, (20, 60, 20)), (5, (1, 3, 1)), (4, (1, 2, 1)), (1, (0, 1, 0))]
)
def test_reco_groups_are_exact(clients: int, groups: tuple[int, int, int]) -> None:
    for seed in range(5):
        found = Counter(reco(clients, seed))
        assert (found[PASSIVE], found[ORDINARY], found[AGGRESSIVE]) == groups


def test_who_is_in_which_group_is_seeded() -> None:
    assert reco(10, 3) == reco(10, 3)
    assert len({tuple(b.budget for b in reco(10, seed)) for seed in range(20)}) > 10


def test_abco_and_free() -> None:
    assert behaviours("AbCo", 3, 0, 10, 4) == [Behaviour(10, 1)] * 3
    assert behaviours("free", 2, 0, 6, 4) == [Behaviour(6, 4)] * 2
    assert behaviours("ReCo", 10, 1, 99, 99) == reco(10, 1)


@pytest.mark.parametrize("kind", ["AbCo", "ReCo", "free"])
def test_a_budget_of_zero_means_that_nobody_asks(kind: str) -> None:
    assert {b.budget for b in behaviours(kind, 10, 0, budget=0, period=2)} == {0}
