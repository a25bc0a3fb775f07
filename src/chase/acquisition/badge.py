"""BADGE (Ash et al. 2020): k-means++ seeding in the gradients of the last layer.

A sample's gradient is g = (p - onehot(yhat)) outer features. It is never written down: with
a = p - onehot(yhat) and h the features, ||g - g'||^2 = ||a||^2 ||h||^2 + ||a'||^2 ||h'||^2 - 2 (a.a')(h.h').
The first pick has the largest norm; each further one is drawn with chance proportional to the squared
distance to the nearest pick.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, argmax_random
from chase.core.pools import SampleIds


def residuals(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """p - onehot(most likely class) of probs (samples, classes)."""
    out = probs.copy()
    out[np.arange(probs.shape[0]), probs.argmax(axis=1)] -= 1.0
    return out


def gradient_seeding(
    residual: NDArray[np.float64], features: NDArray[np.floating], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of k samples by k-means++ seeding on residual (samples, classes) outer features (samples, width)."""
    h = features.astype(np.float64)
    norms = (residual**2).sum(axis=1) * (h**2).sum(axis=1)
    distance = np.full(norms.size, np.inf)
    picked: list[int] = []
    for _ in range(min(k, norms.size)):
        row = _next(norms, distance, picked, rng)
        picked.append(row)
        cross = (residual @ residual[row]) * (h @ h[row])
        distance = np.minimum(distance, (norms + norms[row] - 2.0 * cross).clip(min=0.0))
        distance[picked] = 0.0
    return np.array(picked, dtype=np.int64)


def _next(
    norms: NDArray[np.float64], distance: NDArray[np.float64], picked: list[int], rng: np.random.Generator
) -> int:
    """The largest norm first, then by squared distance; evenly among the rest when all distances are 0."""
    if not picked:
        return argmax_random(norms, rng)
    total = distance.sum()
    if total > 0:
        return int(rng.choice(distance.size, p=distance / total))
    free = np.ones(distance.size, dtype=bool)
    free[picked] = False
    return int(rng.choice(np.flatnonzero(free)))


class Badge:
    """Samples that would change the last layer much, each in another direction."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates by seeding in gradient space."""
        if budget == 0:
            return pool.ids[:0]
        features = pool.features()  # before the probabilities, which then need no pass of their own
        return pool.ids[gradient_seeding(residuals(pool.probs()), features, budget, rng)]
