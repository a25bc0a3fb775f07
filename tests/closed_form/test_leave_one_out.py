"""Temperatures by leave-one-out scores: against solving again without each sample, and in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import final_weights, small_settings, timeless

from chase.closed_form.calibration import TEMPERATURES, left_out, log_losses
from chase.closed_form.feature_map import GRID
from chase.closed_form.leave_one_out import leverage, sharpness, system
from chase.closed_form.ridge import solve
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError
from chase.data.resident import DataSet
from chase.run.experiment import Experiment
from chase.run.record import Record

CLOSED = {"learner": "closed-form", "strategy": "margin", "filters": 8, "fit_passes": 1, "temperature": "leave-one-out"}


def test_scores_are_those_of_a_head_solved_without_the_sample() -> None:
    draw = np.random.default_rng(0)
    codes = np.rint(draw.normal(size=(40, 6)) / GRID).astype(np.int16)
    labels = draw.integers(0, 3, 40)
    values, ridge = codes.astype(np.float64) * GRID, 2.5
    whole = solve(Sums.of(codes, labels, 3), ridge)
    found = left_out(whole.scores(values), labels, leverage(values, system(Sums.of(codes, labels, 3), ridge, 1.0)))
    for place in range(40):
        others = np.arange(40) != place
        alone = solve(Sums.of(codes[others], labels[others], 3), ridge).scores(values[place : place + 1])[0]
        assert found[place] == pytest.approx(alone, abs=1e-5)


def test_the_temperature_of_least_loss_is_taken_as_a_share_of_the_error() -> None:
    losses = (np.log(TEMPERATURES) - np.log(TEMPERATURES[20])) ** 2
    assert sharpness(losses, 0.04) == pytest.approx(TEMPERATURES[20] / 0.2)
    assert sharpness(losses, 0.0) == 0.5


def test_losses_add_up_over_clients() -> None:
    draw = np.random.default_rng(1)
    scores, labels = draw.normal(size=(30, 4)), draw.integers(0, 4, 30)
    parts = log_losses(scores[:11], labels[:11]) + log_losses(scores[11:], labels[11:])
    assert log_losses(scores, labels) == pytest.approx(parts)


def run(out: Path, data: DataSet, **changes: Any) -> list[dict[str, Any]]:
    return Experiment(Record.create(out, small_settings(**{**CLOSED, **changes})), data, []).run()


def test_the_same_bits_resumed_and_with_workers_and_another_temperature_than_by_the_sums(
    digits: DataSet, tmp_path: Path
) -> None:
    def stop(metrics: dict[str, Any]) -> None:
        if metrics["round"] == 3:
            raise KeyboardInterrupt

    whole = run(tmp_path / "whole", digits, rounds=5)
    with pytest.raises(KeyboardInterrupt):
        Experiment(Record.create(tmp_path / "cut", small_settings(**CLOSED, rounds=5)), digits, []).run(stop)
    assert timeless(Experiment.resume(tmp_path / "cut").run()) == timeless(whole)
    assert timeless(run(tmp_path / "workers", digits, rounds=5, engine="workers", workers=2)) == timeless(whole)
    assert len({final_weights(tmp_path / name) for name in ("whole", "cut", "workers")}) == 1
    plain = run(tmp_path / "plain", digits, rounds=5, temperature="closed-form")
    assert whole[0]["temperature"] == plain[0]["temperature"]
    assert whole[-1]["temperature"] != plain[-1]["temperature"]
    assert whole[-1]["test_accuracy"] > 0.6


def test_a_network_has_no_such_temperature() -> None:
    with pytest.raises(SettingsError, match="is for learner = 'closed-form' and one global model"):
        small_settings(temperature="leave-one-out", strategy="random")
