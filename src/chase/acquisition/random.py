"""Random selection (FedRandom): every candidate is equally likely."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView, top_k
from chase.core.pools import SampleIds


class Random:
    """Looks at nothing, so it costs nothing."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates at random."""
        return top_k(pool.ids, np.zeros(len(pool)), budget, rng)
