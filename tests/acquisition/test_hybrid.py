from __future__ import annotations

import numpy as np
import pytest
from fakes import fake_pool

from chase.acquisition.hybrid import Hybrid, places_per_class
from chase.core.errors import SettingsError
from chase.core.randomness import rng

EV = np.array([3, 3, 3, 1, 0])
PROBS = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.5, 0.5]])


def picks(keys: list[str], budget: int, seed: int = 0, **pool: np.ndarray) -> set[int]:
    return set(Hybrid(keys).select(fake_pool(**pool), budget, rng(seed, "t")).tolist())


def test_ev_decides_first_and_margin_only_among_its_ties() -> None:
    """Margins .8 .2 .4 0 0: of the three with EV 3 the two closest calls, not the two of margin 0."""
    assert picks(["ev", "margin"], 2, label_changes=EV, probs=PROBS) == {1, 2}
    assert picks(["ev", "margin"], 4, label_changes=EV, probs=PROBS) == {0, 1, 2, 3}
    assert picks(["margin", "ev"], 2, label_changes=EV, probs=PROBS) == {3, 4}
    assert picks(["margin", "ev"], 1, label_changes=EV, probs=PROBS) == {3}


def test_entropy_and_least_confidence_are_keys_too() -> None:
    assert picks(["ev", "entropy"], 1, label_changes=EV, probs=PROBS) == {1}
    assert picks(["ev", "least-confidence"], 1, label_changes=EV, probs=PROBS) == {1}


def test_diversity_moves_away_from_the_labelled_and_from_what_is_picked() -> None:
    """EV picks 5; among the tied 0, 1, 9 with labelled at 0 the farthest from {0, 5} is 9."""
    features = np.array([[0.5], [1.0], [9.0], [5.0]])
    pool = {"features": features, "labeled_features": np.zeros((1, 1)), "label_changes": np.array([1, 1, 1, 2])}
    assert picks(["ev", "diversity"], 2, **pool) == {3, 2}
    pool["labeled_features"] = np.array([[9.0]])
    assert picks(["ev", "diversity"], 2, **pool) == {3, 0}


def test_class_balance_fills_the_classes_that_have_least() -> None:
    assert places_per_class(np.array([5, 1, 0]), np.array([9, 9, 1]), 4, rng(0, "t")).tolist() == [0, 3, 1]
    assert places_per_class(np.array([0, 0]), np.array([1, 1]), 9, rng(0, "t")).tolist() == [1, 1]


def test_class_balance_leaves_the_choice_within_a_class_to_the_next_key() -> None:
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.4, 0.6]])
    pool = {"probs": probs, "labeled_classes": np.array([0, 0, 0]), "label_changes": np.zeros(4, dtype=int)}
    assert picks(["ev", "class-balance", "margin"], 2, **pool) == {2, 3}
    pool["labeled_classes"] = np.array([1])
    assert picks(["ev", "class-balance", "margin"], 1, **pool) == {1}


def test_random_and_exhausted_keys_draw_by_the_seed() -> None:
    same = {"label_changes": np.zeros(20, dtype=int), "probs": np.full((20, 2), 0.5)}
    for keys in (["ev", "random"], ["ev"], ["ev", "margin"]):
        assert picks(keys, 5, 1, **same) == picks(keys, 5, 1, **same)
        assert picks(keys, 5, 1, **same) != picks(keys, 5, 2, **same)


def test_needs_follow_the_keys_and_an_unknown_key_is_named() -> None:
    assert Hybrid(["ev", "random"]).needs == {"label_changes"}
    assert Hybrid(["margin"]).needs == {"model"}
    with pytest.raises(SettingsError, match="did you mean 'margin'"):
        Hybrid(["ev", "margn"])
