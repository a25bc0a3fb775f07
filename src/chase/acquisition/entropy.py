"""Entropy: -sum p log p of the predicted classes, largest first (FedEntropy; with the global model FAL(Entropy))."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.core.pools import SampleIds


def entropy(probs: NDArray[np.float64]) -> Scores:
    """-sum p log p of probs (..., classes), natural logarithm, with 0 log 0 = 0 -> (...)."""
    safe = np.where(probs > 0, probs, 1.0)
    return np.asarray(-(probs * np.log(safe)).sum(axis=-1), dtype=np.float64)


class Entropy:
    """The samples whose predictions are most spread out."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of highest entropy."""
        return best_of(pool, entropy(pool.probs()), budget, rng)
