"""Least confidence: the probability of the most likely class, smallest first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.core.pools import SampleIds


def confidence(probs: NDArray[np.float64]) -> Scores:
    """max p of probs (samples, classes) -> (samples,)."""
    return np.asarray(probs.max(axis=1), dtype=np.float64)


class LeastConfidence:
    """The samples of whose class the model is least sure."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of lowest confidence."""
        return best_of(pool, -confidence(pool.probs()), budget, rng)
