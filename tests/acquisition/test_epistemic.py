from __future__ import annotations

from math import log

import numpy as np
import pytest

from chase.acquisition.epistemic import gev_score
from chase.acquisition.uncertainty import entropy


def test_entropy_in_nats_with_zero_log_zero() -> None:
    probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    assert entropy(probs) == pytest.approx([0.0, log(2), -(0.25 * log(0.25) + 0.75 * log(0.75))])


def test_gev_adds_the_absolute_difference_of_entropies() -> None:
    certain, even = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    assert gev_score(np.array([3]), even, certain) == pytest.approx([3 + log(2)])
    assert gev_score(np.array([3]), certain, even) == pytest.approx([3 + log(2)])
    assert gev_score(np.array([2]), even, even) == pytest.approx([2.0])
