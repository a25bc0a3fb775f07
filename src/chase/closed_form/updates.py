"""Rank-one updates of a solved ridge system: what one more sample changes, without solving again.

With P = H^-1 and one more sample of centred features x and one-hot label y (Sherman and Morrison 1950):

    P' = P - (P x)(P x)' / (1 + x'P x),    W' = W + (P x)(y - x'W) / (1 + x'P x).

(The variance x'P x of candidates, as a batch grows, is in ``chase.acquisition.posterior``.)
"""

from __future__ import annotations

import numpy as np

from chase.closed_form.feature_map import Reals


class LiveHead:
    """A head that learns one label at a time: for re-ranking questions while a person answers."""

    def __init__(self, inverse: Reals, weight: Reals, mean: Reals, share: Reals) -> None:
        """``inverse`` is P = H^-1; ``mean`` and ``share`` are the centre of features and labels, which stay."""
        self.inverse, self.weight, self.mean, self.share = inverse.copy(), weight.copy(), mean, share

    def learn(self, features: Reals, label: int) -> None:
        """Add one labelled sample (width,)."""
        x = features - self.mean
        reach = self.inverse @ x
        truth = -self.share.copy()
        truth[label] += 1.0
        spread = 1.0 + float(x @ reach)
        self.weight += np.outer(reach, truth - x @ self.weight) / spread
        self.inverse -= np.outer(reach, reach) / spread

    def scores(self, features: Reals) -> Reals:
        """Scores (samples, classes) of features (samples, width)."""
        return np.asarray((features - self.mean) @ self.weight + self.share)
