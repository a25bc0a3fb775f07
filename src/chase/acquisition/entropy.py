"""Entropy: -sum p log p of the predicted classes, largest first (FedEntropy; with the global model FAL(Entropy))."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView, best_of
from chase.acquisition.uncertainty import entropy
from chase.core.pools import SampleIds


class Entropy:
    """The samples whose predictions are most spread out."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of highest entropy."""
        return best_of(pool, entropy(pool.probs()), budget, rng)
