"""Temporal output discrepancy (TOD, Huang et al. 2021): what the model has changed its mind about.

1/2 ||softmax f_now - softmax f_before||^2. Now is the model that the setting ``model`` names; before is the
client's local model previous to it: with ``local`` the one of the turn before the last, with ``global``
the last local one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.core.pools import SampleIds


def discrepancy(now: NDArray[np.float64], before: NDArray[np.float64]) -> Scores:
    """Half the squared distance between probabilities (samples, classes) -> (samples,)."""
    return np.asarray(0.5 * ((now - before) ** 2).sum(axis=1), dtype=np.float64)


class TemporalDiscrepancy:
    """The samples on which two successive models differ most."""

    needs: ClassVar[frozenset[str]] = frozenset({"model", "before"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of largest discrepancy."""
        return best_of(pool, discrepancy(pool.probs(), pool.probs("before")), budget, rng)
