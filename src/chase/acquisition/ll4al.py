"""Learning loss (LL4AL, Yoo and Kweon 2019): the samples with the highest predicted loss.

The module that predicts is trained beside the network: see ``chase.learning.loss_prediction``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView, best_of
from chase.core.pools import SampleIds


class LearningLoss:
    """The samples on which the model expects to be most wrong."""

    needs: ClassVar[frozenset[str]] = frozenset({"model", "loss_module"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of highest predicted loss."""
        return best_of(pool, pool.predicted_losses().astype(np.float64), budget, rng)
