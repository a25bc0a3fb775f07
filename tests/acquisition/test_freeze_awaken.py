"""A walk through Alg. 2 with known pools."""

from __future__ import annotations

import numpy as np
import pytest
from support import ids

from chase.acquisition.freeze_awaken import awaken, freeze, watch
from chase.core.pools import Pools
from chase.core.randomness import rng


def draw() -> np.random.Generator:
    return rng(0, "test")


def test_a_walk_with_known_pools() -> None:
    """Ten unlabelled, B = 2 so B' = 6; 0..5 were watched with EVs 0 0 0 3 1 0; 0 and 3 were asked for."""
    pools = Pools.start(labeled=[20, 21], unlabeled=range(10)).ask([0, 3]).label([0])
    watched, ev = ids(0, 1, 2, 3, 4, 5), np.array([0, 0, 0, 3, 1, 0])

    pools = freeze(pools, watched, ev)
    assert pools.dormant.tolist() == [1, 2, 5]  # not 0 and 3 (asked for), not 4 (EV 1), not 6..9 (not watched)
    assert pools.unlabeled.tolist() == [4, 6, 7, 8, 9]
    assert pools.labeled.tolist() == [0, 20, 21]
    assert pools.asked.tolist() == [3]

    after = awaken(pools, below=6, beta=0.4, rng=draw())  # 5 < 6: ceil(0.4 * 3) = 2 return
    assert after.dormant.size == 1
    assert after.unlabeled.size == 7
    assert set(pools.unlabeled) < set(after.unlabeled) < {1, 2, 5, *pools.unlabeled}

    seen = watch(after.unlabeled, first_turn=False, subset_size=4, first_watch=0, rng=draw())
    assert seen.size == 4
    assert set(seen) < set(after.unlabeled)


def test_awakening_starts_below_the_threshold_and_not_at_it() -> None:
    pools = Pools.start(labeled=[], unlabeled=range(20)).freeze(range(10, 20))
    assert awaken(pools, below=10, beta=1.0, rng=draw()) is pools
    assert awaken(pools, below=11, beta=1.0, rng=draw()).dormant.size == 0
    assert awaken(pools, below=10.5, beta=1.0, rng=draw()).dormant.size == 0


@pytest.mark.parametrize(
    ("beta", "dormant", "returned"),
    [(0.4, 10, 4), (0.4, 11, 5), (0.4, 1, 1), (0.2, 3, 1), (1.0, 7, 7), (0.55, 100, 55), (0.07, 100, 7)],
)
def test_beta_of_the_dormant_rounded_up_returns(beta: float, dormant: int, returned: int) -> None:
    pools = Pools.start(labeled=[], unlabeled=range(dormant)).freeze(range(dormant))
    assert awaken(pools, below=1, beta=beta, rng=draw()).unlabeled.size == returned


def test_with_nothing_dormant_nothing_returns() -> None:
    pools = Pools.start(labeled=[], unlabeled=[1])
    assert awaken(pools, below=100, beta=0.4, rng=draw()) is pools


def test_who_returns_and_who_is_watched_is_random() -> None:
    pools = Pools.start(labeled=[], unlabeled=range(100)).freeze(range(100))
    returned = np.zeros(100)
    seen = np.zeros(100)
    for i in range(400):
        returned[awaken(pools, below=1, beta=0.4, rng=rng(i, "a")).unlabeled] += 1
        seen[watch(np.arange(100), False, 40, 0, rng(i, "w"))] += 1
    for counts in (returned, seen):  # 160 expected, standard deviation under 10
        assert 115 < counts.min() < counts.max() < 205


@pytest.mark.parametrize(
    ("first_turn", "subset_size", "first_watch", "size"),
    [
        (False, 5, 0, 5),
        (False, 12, 0, 12),
        (False, 13, 0, 12),
        (False, None, 0, 12),
        (False, 5, 3, 5),
        (True, 5, 0, 12),
        (True, 5, 3, 3),
        (True, None, 3, 3),
        (True, 5, 100, 12),
    ],
)
def test_how_many_are_watched(first_turn: bool, subset_size: int | None, first_watch: int, size: int) -> None:
    seen = watch(np.arange(12), first_turn, subset_size, first_watch, draw())
    assert seen.size == size
    assert (np.diff(seen) > 0).all()
