"""What nobody has labelled decides nothing, and what goes up is weights and counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support import simulate, small_settings

from chase.client.build import build_net
from chase.core.pools import NAMES
from chase.core.randomness import rng
from chase.data.resident import DataSet
from chase.models.net import get_weights
from chase.simulation.world import split_among_clients

COUNTS = {"labels", "inferences", "inferred_samples", "ev_sum", "ev_count", *(f"pool_{name}" for name in NAMES)}
COUNTS |= {"picks", "ranked_picks", "chance_picks", "turn", "easy_sum", "easy_count"}
SECONDS = {"seconds_select", "seconds_teachers", "seconds_train", "seconds_track"}
AGREED = COUNTS | SECONDS | {"train_loss"}
"""All that a client may say of itself."""


def scrambled(truth: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The truth with another class at every one of the rows."""
    other = truth.copy()
    other[rows] = (truth[rows] + rng(0, "scramble").integers(1, 10, rows.size)) % 10
    assert (other[rows] != truth[rows]).all()
    return other


@pytest.mark.parametrize("strategy", ["chase", "+gev", "random"])
def test_truths_that_were_never_asked_for_change_no_selection_and_no_weight(
    strategy: str, digits: DataSet, tmp_path: Path
) -> None:
    settings = small_settings(strategy=strategy)
    truth = digits.train_labels
    real = simulate(settings, digits, tmp_path / "real")
    asked = {line["sample"] for line in real.asked}
    never = np.array(sorted(set(range(truth.size)) - asked - real.initial))
    assert len(asked) == 4 * 5 * 3
    assert never.size > 1000

    blind = simulate(settings, digits, tmp_path / "blind", scrambled(truth, never))
    assert blind.asked == real.asked
    assert blind.weights == real.weights

    # The control: one truth that was asked for does change the weights.
    first = np.array([real.asked[0]["sample"]])
    told = simulate(settings, digits, tmp_path / "told", scrambled(truth, first))
    assert told.weights[0] == real.weights[0]
    assert told.weights[1] != real.weights[1]


def test_nothing_changes_before_a_scrambled_truth_is_asked_for(digits: DataSet, tmp_path: Path) -> None:
    settings = small_settings(rounds=2)
    real = simulate(settings, digits, tmp_path / "real")
    hidden = np.array(sorted(set(range(digits.train_labels.size)) - real.initial))
    blind = simulate(settings, digits, tmp_path / "blind", scrambled(digits.train_labels, hidden))
    unlabelled = [{key: line[key] for key in ("round", "client", "sample", "ev")} for line in real.asked]
    assert [{key: line[key] for key in ("round", "client", "sample", "ev")} for line in blind.asked] == unlabelled
    assert blind.weights[0] == real.weights[0]


def test_what_a_client_and_a_strategy_hold_has_no_place_for_a_truth(digits: DataSet) -> None:
    assert [f.name for f in dataclasses.fields(digits.train) if "label" in f.name or "class" in f.name] == []
    settings = small_settings()
    part = split_among_clients(settings, digits)[0]
    assert part.size > 100


@pytest.mark.parametrize("strategy", ["chase", "random"])
def test_an_update_carries_weights_of_the_model_and_agreed_counts_only(
    strategy: str, digits: DataSet, tmp_path: Path
) -> None:
    settings = small_settings(strategy=strategy, rounds=3)
    model = get_weights(build_net(settings, digits.train, digits.num_classes))
    story = simulate(settings, digits, tmp_path)
    assert len(story.updates) == 12
    for update in story.updates:
        assert type(update.client) is int
        assert type(update.round) is int
        assert type(update.num_labeled) is int
        assert {n: (a.shape, a.dtype) for n, a in update.weights.items()} == {
            n: (a.shape, a.dtype) for n, a in model.items()
        }
        assert update.extras == {}
        assert set(update.metrics) <= AGREED
        assert all(type(value) is float for value in update.metrics.values())
        assert all(update.metrics[name].is_integer() for name in COUNTS & set(update.metrics))
