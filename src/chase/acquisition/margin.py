"""Margin: the difference between the two most likely classes, smallest first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.core.pools import SampleIds


def margin(probs: NDArray[np.float64]) -> Scores:
    """p1 - p2 of probs (samples, classes); with one class, p1 -> (samples,)."""
    if probs.shape[1] < 2:
        return np.asarray(probs.sum(axis=1), dtype=np.float64)
    second, first = np.partition(probs, -2, axis=1)[:, -2:].T
    return np.asarray(first - second, dtype=np.float64)


class Margin:
    """The samples between two classes."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of smallest margin."""
        return best_of(pool, -margin(pool.probs()), budget, rng)
