"""Margin, balanced over predicted classes: the class with the fewest labels asks next.

With few labels plain margin asks again and again between the same two classes. Here each pick goes to the class that
has the fewest labels, those picked so far counted by their predicted class, and takes that class's smallest margin.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from chase.acquisition.strategy import PoolView
from chase.acquisition.uncertainty import balanced, margin
from chase.core.pools import SampleIds


class BalancedMargin:
    """The samples between two classes, evenly over the classes."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates of small margin, balanced over predicted classes."""
        if budget == 0:
            return pool.ids[:0]
        probs = pool.probs()
        pool.scores = -margin(probs)
        predicted = probs.argmax(axis=1).astype(np.int64)
        return pool.ids[balanced(predicted, pool.scores, pool.class_counts, budget, rng)]
