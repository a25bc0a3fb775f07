"""BALD (Houlsby et al. 2011; Gal et al. 2017): what passes with dropout disagree about.

H[mean_t p_t] - mean_t H[p_t] over passes with dropout on and everything else, batch norm included,
in eval mode.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.acquisition.uncertainty import entropy
from chase.core.pools import SampleIds


def bald(probs: NDArray[np.float64]) -> Scores:
    """H[mean_t p] - mean_t H[p] of probs (passes, samples, classes) -> (samples,)."""
    return np.asarray(entropy(probs.mean(axis=0)) - entropy(probs).mean(axis=0), dtype=np.float64)


class Bald:
    """The samples on which the passes are sure, each of something else."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def __init__(self, mc_passes: int = 20, mc_dropout: float = 0.5) -> None:
        self._passes, self._dropout = mc_passes, mc_dropout

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of highest mutual information."""
        return best_of(pool, bald(pool.mc_probs(self._passes, self._dropout)), budget, rng)
