from __future__ import annotations

import math

import numpy as np
import pytest

from chase.federation.privacy import epsilon, noise_multiplier, private_weights, site_sigma
from chase.server.robust import change_norm

START = {"w": np.zeros(20_000, dtype=np.float32), "n": np.array(7)}


def test_epsilon_is_that_of_the_gaussian_mechanism() -> None:
    """One release: converted from RDP it is at most sqrt(2 ln(1/delta)) / z + 1 / (2 z^2)."""
    assert 0 < epsilon(5.0, 1, 1e-5) < math.sqrt(2 * math.log(1e5)) / 5 + 1 / 50
    assert epsilon(5.0, 10, 1e-5) > epsilon(5.0, 1, 1e-5)
    assert epsilon(1.0, 0, 1e-5) == 0.0


@pytest.mark.parametrize("target", [0.5, 3.0, 20.0])
def test_the_noise_keeps_the_budget_and_is_no_larger_than_needed(target: float) -> None:
    found = noise_multiplier(target, 50, 1e-5)
    assert epsilon(found, 50, 1e-5) <= target
    assert epsilon(found / 1.01, 50, 1e-5) > target


def test_a_change_is_clipped_and_noised_and_counters_stay() -> None:
    weights = {"w": np.full(20_000, 3.0, dtype=np.float32), "n": np.array(9)}
    quiet = private_weights(START, weights, 2.0, 0.0, np.random.default_rng(0))
    assert change_norm(START, quiet) == pytest.approx(2.0, rel=1e-5)
    assert quiet["n"] == 7
    small = private_weights(
        START, {"w": START["w"] + np.float32(1e-4), "n": np.array(9)}, 2.0, 0.0, np.random.default_rng(0)
    )
    assert np.array_equal(small["w"], START["w"] + np.float32(1e-4))
    noisy = private_weights(START, weights, 2.0, 0.5, np.random.default_rng(0))
    assert (noisy["w"] - quiet["w"]).std() == pytest.approx(0.5, rel=0.02)


def test_the_noise_of_the_quorum_adds_up() -> None:
    assert math.sqrt(4) * site_sigma(2.0, 3.0, 4) == pytest.approx(6.0)
