from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from site_room.sites import tiny_site

from chase.core.errors import FederationError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.federation.privacy import Budget, epsilon, noise_multiplier, private_weights, site_sigma
from chase.federation.secure_site import with_noise
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


def test_releases_with_different_noise_add_up(tmp_path: Path) -> None:
    """Equal shares by the formula: three rounds with z are one with z / sqrt(3)."""
    account = Budget(tmp_path / "privacy.json", 8.0, 1e-5)
    z = noise_multiplier(8.0, 3, 1e-5)
    for round in (1, 2, 3):
        assert account.plan("run", round, 4 - round) == pytest.approx(z, rel=2e-3)
        assert account.plan("run", round, 99) == pytest.approx(z, rel=2e-3)  # the same release again
        account = Budget(tmp_path / "privacy.json", 8.0, 1e-5)
        assert account.spent == pytest.approx(epsilon(z, round, 1e-5), rel=5e-3)
    with pytest.raises(FederationError, match="is spent"):
        account.plan("run", 4, 1)


def test_a_site_keeps_its_own_account_and_never_sends_a_round_with_two_kinds_of_noise(tmp_path: Path) -> None:
    account, z = Budget(tmp_path / "privacy.json", 8.0, 1e-5), noise_multiplier(8.0, 2, 1e-5)
    account.spend("run", 1, z)
    account.spend("run", 1, z)
    with pytest.raises(FederationError, match="other noise"):
        account.spend("run", 1, 2 * z)
    for bad in (0.0, -1.0, math.inf, math.nan, 0.1 * z):
        with pytest.raises(FederationError, match="more than the dp_epsilon"):
            Budget(tmp_path / "privacy.json", 8.0, 1e-5).spend("run", 2, bad)
    account.spend("run", 2, z)
    with pytest.raises(FederationError, match="more than the dp_epsilon"):
        account.spend("another run", 1, z)


def test_the_noise_of_the_quorum_adds_up() -> None:
    assert math.sqrt(4) * site_sigma(2.0, 3.0, 4) == pytest.approx(6.0)


def test_a_round_that_is_asked_for_again_with_another_scale_or_other_sites_has_other_noise_and_costs(
    tmp_path: Path,
) -> None:
    """Two releases with the same noise at two scales: their difference would reveal the noise, and so the weights."""
    site = tiny_site(tmp_path / "home", 1)
    rules = {"dp_epsilon": 1000.0, "dp_delta": 1e-5, "dp_clip": 1.0}
    start = {"w": np.zeros(500)}
    update = ClientUpdate(0, 1, {"w": np.full(500, 0.01)}, 1, {})

    def release(round: int, multiplier: float, sites: int = 3) -> np.ndarray:
        asked = {"multiplier": multiplier, "sites": sites}
        return with_noise(site, update, RoundOrder("run", round, 0, start), rules, asked)["w"] - 0.01

    def spent() -> float:
        return Budget(site.path / "privacy.json", 1000.0, 1e-5).spent

    first = release(1, 1.0)
    assert np.array_equal(first, release(1, 1.0))  # the same one again
    once = spent()
    others = [release(1, 1.0, sites=4)]
    assert spent() > once
    release(2, 1.0)
    others.append(release(1, 2.0))
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.2
    site.close()


def test_a_turn_that_was_taken_again_has_other_noise_and_costs(tmp_path: Path) -> None:
    """After a restore a site may answer a round for the second time, with other weights: one noise on both is none."""
    site = tiny_site(tmp_path / "home", 1)
    rules = {"dp_epsilon": 1000.0, "dp_delta": 1e-5, "dp_clip": 1.0}
    asked, order = {"multiplier": 1.0, "sites": 3}, RoundOrder("run", 1, 0, {"w": np.zeros(500)})

    def noise(value: float) -> np.ndarray:
        update = ClientUpdate(0, 1, {"w": np.full(500, value)}, 1, {})
        return with_noise(site, update, order, rules, asked)["w"] - value

    first, once = noise(0.01), Budget(site.path / "privacy.json", 1000.0, 1e-5).spent
    assert abs(np.corrcoef(first, noise(0.02))[0, 1]) < 0.2
    assert Budget(site.path / "privacy.json", 1000.0, 1e-5).spent > once
    site.close()
