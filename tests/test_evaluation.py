from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch

from chase.server.evaluation import score


def test_scores_worked_by_hand() -> None:
    """Truth 0 0 0 1 1 (no 2); predicted 0 0 1 1 2."""
    outputs = torch.eye(3)[[0, 0, 1, 1, 2]]
    found = score(outputs, np.array([0, 0, 0, 1, 1]), 3)
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.per_class == [pytest.approx(2 / 3), pytest.approx(1 / 2), None]
    # class 0: precision 1, recall 2/3, F1 0.8; class 1: precision 1/2, recall 1/2, F1 0.5; class 2 is not in the test
    assert found.macro_f1 == pytest.approx((0.8 + 0.5) / 2)
    right, wrong = -log(exp(1) / (exp(1) + 2)), -log(1 / (exp(1) + 2))
    assert found.loss == pytest.approx((3 * right + 2 * wrong) / 5)
