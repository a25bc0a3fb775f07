"""Margin: the difference between the two most likely classes, smallest first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView, best_of
from chase.acquisition.uncertainty import margin
from chase.core.pools import SampleIds


class Margin:
    """The samples between two classes."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of smallest margin."""
        return best_of(pool, -margin(pool.probs()), budget, rng)
