"""Core-set (Sener and Savarese 2018): k-centre greedy in the penultimate features, L2.

The centres start at *all* labelled samples; each pick is the candidate farthest from every centre so
far, and becomes one. Without a labelled sample the first pick is random.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, argmax_random
from chase.core.pools import SampleIds

Points = NDArray[np.floating]
CHUNK = 1024


def squared_distances(points: Points, centres: Points) -> Scores:
    """Squared L2 distance to the nearest centre; infinity without centres.

    points (samples, width), centres (centres, width) -> (samples,).
    """
    nearest = np.full(points.shape[0], np.inf)
    for start in range(0, points.shape[0], CHUNK):
        part = points[start : start + CHUNK].astype(np.float64)
        for at in range(0, centres.shape[0], CHUNK):
            some = centres[at : at + CHUNK].astype(np.float64)
            square = (part**2).sum(axis=1)[:, None] + (some**2).sum(axis=1) - 2.0 * (part @ some.T)
            rows = slice(start, start + CHUNK)
            nearest[rows] = np.minimum(nearest[rows], square.min(axis=1).clip(min=0.0))
    return nearest


def k_centre_greedy(points: Points, centres: Points, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of the k points that are farthest from the centres and from each other, in the order picked.

    points (samples, width), centres (centres, width); ties are broken by the generator.
    """
    exact = points.astype(np.float64)
    nearest = squared_distances(exact, centres)
    picked: list[int] = []
    for _ in range(min(k, exact.shape[0])):
        row = argmax_random(nearest, rng)
        picked.append(row)
        nearest = np.minimum(nearest, ((exact - exact[row]) ** 2).sum(axis=1))
        nearest[picked] = -1.0
    return np.array(picked, dtype=np.int64)


class CoreSet:
    """The samples that cover the pool best."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates by k-centre greedy."""
        if budget == 0:
            return pool.ids[:0]
        points = pool.features()
        centres = pool.labeled_features() if pool.labeled_ids.size else points[:0]
        return pool.ids[k_centre_greedy(points, centres, budget, rng)]
