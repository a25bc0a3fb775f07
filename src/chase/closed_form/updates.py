"""Rank-one updates of a solved ridge head, for samples that may get a label soon: no system is solved again.

With P the inverse of the regularised system, intercept included, the scores of some samples X are S, and K = X P X'.
One of them, x, gets the one-hot label y (Sherman and Morrison 1950); only S and K are needed for what that changes:

    S' = S + K_x (y - s_x) / (1 + k_xx),    K' = K - K_x K_x' / (1 + k_xx).

The result equals a new solution with the same ridge weight. The diagonal of K is the variance of the samples' scores.
This module works without torch: the labelling page uses it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class LiveScores:
    """Scores of samples by a head that learns their labels one at a time."""

    def __init__(self, kernel: Floats, scores: Floats) -> None:
        """``kernel`` K (samples, samples), ``scores`` (samples, classes)."""
        self.kernel, self.scores = kernel.copy(), scores.copy()

    def learn(self, row: int, label: int) -> None:
        """The sample of a row gets its label."""
        reach = self.kernel[:, row].copy()
        error = -self.scores[row]
        error[label] += 1.0
        spread = 1.0 + float(reach[row])
        self.scores += np.outer(reach, error) / spread
        self.kernel -= np.outer(reach, reach) / spread


def softmax(scores: Floats) -> Floats:
    """Probabilities (samples, classes)."""
    lifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(lifted / lifted.sum(axis=1, keepdims=True))
