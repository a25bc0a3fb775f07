"""What outputs tell beyond accuracy, on numbers worked by hand and against scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from support import small_settings

from chase.report.html import render
from chase.report.runs import read_run
from chase.run.experiment import Experiment
from chase.server.evaluation import score
from chase.server.quality import auc, expected_calibration_error, quality, reliability, sensitivity_specificity, wilson

LABELS = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1], [0.1, 0.1, 0.8]]
)


def test_sensitivity_and_specificity_by_hand() -> None:
    rows = sensitivity_specificity(LABELS, PROBABILITIES.argmax(axis=1), 3)
    assert rows[0] == {"sensitivity": pytest.approx(2 / 3), "specificity": pytest.approx(2 / 3)}
    assert rows[1] == {"sensitivity": pytest.approx(1 / 2), "specificity": pytest.approx(3 / 4)}
    assert rows[2] == {"sensitivity": 1.0, "specificity": 1.0}


def test_auc_is_scikit_learns_with_ties() -> None:
    draw = np.random.default_rng(0)
    scores, positive = draw.integers(0, 8, 200) / 8.0, draw.random(200) < 0.3
    assert auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert auc(scores, np.ones(200, dtype=bool)) is None


def test_wilson_by_hand_and_at_the_ends() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    assert wilson(0, 0) == (0.0, 1.0)


def test_calibration_of_a_model_that_is_always_sure_and_half_right() -> None:
    sure = np.array([[1.0, 0.0]] * 4)
    labels = np.array([0, 0, 1, 1])
    assert expected_calibration_error(sure, labels) == pytest.approx(0.5)
    assert reliability(sure, labels) == [{"count": 4, "confidence": 1.0, "accuracy": 0.5}]


def test_all_together() -> None:
    found = quality(PROBABILITIES, LABELS, ("a", "b", "c"))
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["majority_accuracy"] == pytest.approx(3 / 6)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(LABELS, PROBABILITIES.argmax(axis=1)))
    assert found["accuracy_interval"][0] < found["accuracy"] < found["accuracy_interval"][1]
    assert [row["tested"] for row in found["classes"]] == [3, 2, 1]


def test_the_calibration_error_of_the_report_is_that_of_the_metrics() -> None:
    """One number by two paths: bins of the reliability diagram, and the line of metrics."""
    draw = np.random.default_rng(1)
    outputs = torch.from_numpy(draw.normal(size=(300, 4)))
    labels = draw.integers(0, 4, 300)
    found = quality(outputs.softmax(dim=1).numpy(), labels, ("a", "b", "c", "d"))
    assert found["ece"] == pytest.approx(score(outputs, labels, 4).calibration_error)


def test_a_reliability_diagram_is_in_the_report_of_every_learner(tmp_path: Path) -> None:
    for name, changes in {"network": {}, "closed": {"learner": "closed-form", "filters": 8, "fit_passes": 1}}.items():
        experiment = Experiment.begin(small_settings(strategy="random", rounds=2, **changes), tmp_path / name)
        line = experiment.run()[-1]
        page = render([read_run(tmp_path / name)])
        assert "Reliability: how often a prediction is right, by how sure the model was" in page
        assert f"random (ECE {line['calibration_error']:.3f})" in page
