"""Typical samples: cover the client's own density (MaxHerding, Bae et al. 2024; in the spirit of TypiClust).

A set S covers a sample x by max over s in S of k(x, s), k a Gaussian kernel on the features. Labelled samples cover
already; each pick is the candidate that adds most to the mean coverage of the pool. It needs no label and no trained
model, so it is the first request of a client that starts with nothing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, argmax_random
from chase.core.pools import SampleIds

Points = NDArray[np.floating]
REACH = 0.5
"""Width of the kernel, as a share of the median distance between two samples."""
MOST = 1500
"""Candidates and covered samples that are looked at; more are drawn at random."""


def squared_distances(points: Points, others: Points) -> NDArray[np.float32]:
    """Squared distances (points, others) of float32 vectors."""
    square = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2.0 * (points @ others.T)
    return np.asarray(np.maximum(square, 0.0), dtype=np.float32)


def greedy_coverage(
    kernel: Points, covered: Points, k: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Scores]:
    """Rows of the k candidates that add most coverage, in order, and what each candidate would add at first.

    kernel (candidates, samples), covered (samples,): how well each sample is covered already.
    """
    now = covered.astype(np.float64)
    picked: list[int] = []
    first: Scores | None = None
    for _ in range(min(k, kernel.shape[0])):
        gain = np.maximum(kernel - now, 0.0).mean(axis=1, dtype=np.float64)
        first = gain.copy() if first is None else first
        gain[picked] = -1.0
        row = argmax_random(gain, rng)
        picked.append(row)
        now = np.maximum(now, kernel[row])
    return np.array(picked, dtype=np.int64), np.zeros(kernel.shape[0]) if first is None else first


class Typical:
    """The samples that stand for most others."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates by coverage."""
        if budget == 0:
            return pool.ids[:0]
        points = pool.features().astype(np.float32)
        most = max(MOST, budget)
        rows = np.arange(len(pool)) if len(pool) <= most else np.sort(rng.choice(len(pool), most, replace=False))
        some = points[rows]
        distance = squared_distances(some, some)
        apart = distance[~np.eye(len(rows), dtype=bool)]
        width = REACH**2 * (float(np.median(apart)) if apart.size else 1.0) or 1.0
        covered = np.zeros(len(rows))
        if pool.labeled_ids.size:
            near = squared_distances(some, pool.labeled_features().astype(np.float32)).min(axis=1)
            covered = np.exp(-near / (2.0 * width)).astype(np.float64)
        chosen, _ = greedy_coverage(np.exp(-distance / (2.0 * width)), covered, budget, rng)
        return pool.ids[rows[chosen]]
