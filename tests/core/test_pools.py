from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ids

from chase.core.errors import PoolError
from chase.core.pools import NAMES, Pools, as_ids, is_in, together, without

LEGAL = {
    "ask": ({"unlabeled"}, "asked"),
    "label": ({"asked"}, "labeled"),
    "give_back": ({"asked"}, "unlabeled"),
    "put_aside": ({"asked", "unlabeled", "dormant", "labeled"}, "set_aside"),
    "freeze": ({"unlabeled"}, "dormant"),
    "awaken": ({"dormant"}, "unlabeled"),
    "volunteer": ({"unlabeled", "dormant", "set_aside"}, "labeled"),
    "add": ({"nowhere"}, "unlabeled"),
    "forget": (set(NAMES), "nowhere"),
}
"""The moves by hand: from where, to where."""

SAMPLES = range(10)
moves = st.lists(
    st.tuples(st.sampled_from(sorted(LEGAL)), st.lists(st.sampled_from(SAMPLES), unique=True, max_size=3)),
    max_size=40,
)


def where(pools: Pools) -> dict[int, str]:
    """Pool of every sample; fails if a sample is in two."""
    found: dict[int, str] = dict.fromkeys(SAMPLES, "nowhere")
    for name, pool in pools:
        assert (np.diff(pool) > 0).all(), f"{name} is not sorted and distinct"
        for sample in pool.tolist():
            assert found[sample] == "nowhere", f"{sample} is in {found[sample]} and {name}"
            found[sample] = name
    return found


@given(labeled=st.sets(st.sampled_from(SAMPLES)), moves=moves)
def test_after_any_moves_every_sample_is_in_exactly_one_pool(labeled: set[int], moves: list) -> None:
    pools = Pools.start(labeled=sorted(labeled), unlabeled=sorted(set(SAMPLES) - labeled))
    expected = where(pools)
    for verb, chosen in moves:
        sources, target = LEGAL[verb]
        before = where(pools)
        if all(before[sample] in sources for sample in chosen):
            pools = getattr(pools, verb)(chosen)
            expected |= dict.fromkeys(chosen, target)
        else:
            with pytest.raises(PoolError):
                getattr(pools, verb)(chosen)
        assert where(pools) == expected
        assert sum(pools.sizes().values()) == sum(pool != "nowhere" for pool in expected.values())


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_set_operations_agree_with_python_sets(pool: set[int], some: set[int]) -> None:
    a, b = as_ids(sorted(pool)), as_ids(sorted(some))
    assert is_in(b, a).tolist() == [sample in pool for sample in sorted(some)]
    assert without(a, b).tolist() == sorted(pool - some)
    assert together(without(a, b), b).tolist() == sorted(pool | some)


def test_a_move_leaves_the_old_pools_as_they_were() -> None:
    before = Pools.start(labeled=[0], unlabeled=[1, 2, 3])
    after = before.ask([3, 1])
    assert before.sizes()["unlabeled"] == 3
    assert after.asked.tolist() == [1, 3]
    assert after.unlabeled.tolist() == [2]


def test_a_refused_move_names_the_samples_and_the_pool() -> None:
    pools = Pools.start(labeled=[0], unlabeled=[1, 2])
    with pytest.raises(PoolError, match=r"cannot label 1, 2: not in the pool 'asked' \(0 there\)"):
        pools.label([1, 2])
    with pytest.raises(PoolError, match=r"0, 1, 2, 3, 4, \.\.\. \(8 in all\)"):
        pools.awaken(range(8))
    with pytest.raises(PoolError, match="in none of the pools unlabeled, dormant, set aside"):
        pools.volunteer([0, 1])


@pytest.mark.parametrize("verb", sorted(LEGAL))
def test_an_id_given_twice_is_refused(verb: str) -> None:
    with pytest.raises(PoolError, match="given twice: 1"):
        getattr(Pools.start(labeled=[0], unlabeled=[1, 2]), verb)([1, 1])


def test_a_sample_in_two_pools_is_refused_when_pools_are_built_or_read_back() -> None:
    with pytest.raises(PoolError, match="given twice: 1"):
        Pools.start(labeled=[0, 1], unlabeled=[1, 2])
    with pytest.raises(PoolError, match="given twice: 5"):
        Pools(asked=ids(5), dormant=ids(5)).check()


def test_no_ids_is_a_move_of_nothing() -> None:
    pools = Pools.start(labeled=[], unlabeled=[])
    assert pools.ask([]).all_ids().size == 0
    assert is_in(ids(1, 2), pools.asked).tolist() == [False, False]
