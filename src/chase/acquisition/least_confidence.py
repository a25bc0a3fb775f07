"""Least confidence: the probability of the most likely class, smallest first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView, best_of
from chase.acquisition.uncertainty import confidence
from chase.core.pools import SampleIds


class LeastConfidence:
    """The samples of whose class the model is least sure."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of lowest confidence."""
        return best_of(pool, -confidence(pool.probs()), budget, rng)
