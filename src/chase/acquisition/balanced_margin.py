"""Margin, balanced over predicted classes: the class with the fewest labels asks next.

With few labels plain margin asks again and again between the same two classes. Here each pick goes to the class that
has the fewest labels, those picked so far counted by their predicted class, and takes that class's smallest margin.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.margin import margin
from chase.acquisition.strategy import PoolView, Scores, argmax_random
from chase.core.pools import SampleIds


def balanced(
    predicted: NDArray[np.int64], scores: Scores, counts: NDArray[np.int64], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of k samples: each of the predicted class with the fewest labels, the one of highest score.

    predicted (samples,), scores (samples,), counts (classes,): labels that each class has.
    """
    held = counts.astype(np.float64)
    free = np.ones(predicted.size, dtype=bool)
    picked: list[int] = []
    for _ in range(min(k, predicted.size)):
        there = np.bincount(predicted[free], minlength=held.size) > 0
        which = argmax_random(np.where(there, -held, -np.inf), rng)
        rows = np.flatnonzero(free & (predicted == which))
        row = int(rows[argmax_random(scores[rows], rng)])
        picked.append(row)
        free[row] = False
        held[which] += 1.0
    return np.array(picked, dtype=np.int64)


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
