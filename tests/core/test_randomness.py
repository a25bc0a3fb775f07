from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from chase.core.randomness import fold, rng, torch_rng

coordinates = st.lists(st.integers(-50, 50) | st.text("abc1-", max_size=4), max_size=4).map(tuple)


def test_the_same_place_gives_the_same_draws_whatever_was_drawn_before() -> None:
    first = rng(7, "select", 3, 1).random(5)
    rng(7, "select", 3, 2).random(1000)
    np.random.default_rng().random(10)
    torch.rand(3)
    assert (rng(7, "select", 3, 1).random(5) == first).all()
    assert torch.equal(torch.rand(4, generator=torch_rng(7, "init")), torch.rand(4, generator=torch_rng(7, "init")))


def test_every_coordinate_its_type_and_its_order_matter() -> None:
    places = [
        (0, "select", 1, 2),
        (0, "select", 2, 1),
        (0, "select", "1", 2),
        (0, "select", 1, "2"),
        (0, "select", 12),
        (0, "select", 1),
        (0, "select1", 2),
        (0, "watch", 1, 2),
        (1, "select", 1, 2),
        (0,),
    ]
    for one, other in itertools.combinations(places, 2):
        assert fold(*one) != fold(*other), (one, other)
        assert rng(*one).random() != rng(*other).random()


@given(st.integers(0, 2**62), coordinates, coordinates)
def test_two_places_share_a_number_only_if_they_are_the_same(seed: int, one: tuple, other: tuple) -> None:
    assert (fold(seed, *one) == fold(seed, *other)) == (one == other)
    assert 0 <= fold(seed, *one) < 2**63


def test_numpy_integers_stand_for_the_same_place_as_python_ones() -> None:
    assert fold(np.int64(3), np.int64(4)) == fold(3, 4)


def test_neighbouring_places_are_not_alike() -> None:
    draws = np.array([rng(0, "select", round, client).random() for round in range(40) for client in range(25)])
    assert abs(draws.mean() - 0.5) < 0.04
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.1
    assert np.unique(draws).size == draws.size
