"""EV can be observed where the method does not need it: nothing changes, and its cost is reported apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Site, simulate, small_settings

from chase.core.errors import SettingsError
from chase.core.messages import ClientUpdate
from chase.data.resident import DataSet
from chase.site.turn import agreed_metrics


@pytest.mark.parametrize("strategy", ["random", "entropy"])
def test_observing_changes_nothing_and_costs_apart(strategy: str, digits: DataSet, tmp_path: Path) -> None:
    plain = simulate(small_settings(strategy=strategy, rounds=3), digits, tmp_path / "plain")
    seen = simulate(small_settings(strategy=strategy, rounds=3, track_ev=True), digits, tmp_path / "seen")
    assert seen.weights == plain.weights
    assert [q["sample"] for q in seen.asked] == [q["sample"] for q in plain.asked]
    for a, b in zip(plain.updates, seen.updates, strict=True):
        assert a.metrics["inferences"] == b.metrics["inferences"]
        assert a.metrics["inferred_samples"] == b.metrics["inferred_samples"]
        assert "ev_sum" not in a.metrics
        assert b.metrics["observed_inferences"] == 3 * b.metrics["ev_count"] > 0
        assert "seconds_observe" in b.metrics
        assert "seconds_track" not in b.metrics


def test_what_the_method_needs_is_its_own_cost() -> None:
    site = Site(small_settings(strategy="ev", track_ev=True))
    metrics = site.turn(1).update.metrics
    assert "observed_inferences" not in metrics
    assert metrics["inferences"] == 3 * metrics["ev_count"]


def test_two_losses_of_ones_own_are_refused() -> None:
    with pytest.raises(SettingsError, match="trains with its own loss"):
        small_settings(strategy="ll4al", loss="kcfu")
    assert small_settings(strategy="kafal").loss == "kcfu"
    assert small_settings(strategy="kafal", loss="cross-entropy").loss == "cross-entropy"
    assert small_settings(strategy="ev", loss="kcfu").loss == "kcfu"


def test_a_site_sends_up_what_observing_cost() -> None:
    update = ClientUpdate(0, 1, {}, 3, {"observed_inferences": 30.0, "samples_seen": 1.0}, {})
    assert agreed_metrics(update) == {"observed_inferences": 30.0}
