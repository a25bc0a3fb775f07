"""Epistemic variation as a score, with the paper's two finer variants.

Plain: EV itself. ``number-class``: EV + number of distinct classes seen. ``+gev``: EV +
|H(new global) - H(local)|, natural logarithm, not normalised. Freezing and the easy/hard split
use plain EV whatever the score.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.acquisition.uncertainty import entropy
from chase.core.pools import SampleIds


def number_class_score(label_changes: NDArray[np.int64], classes_seen: NDArray[np.int64]) -> Scores:
    """EV + distinct classes seen."""
    return np.asarray(label_changes + classes_seen, dtype=np.float64)


def gev_score(
    label_changes: NDArray[np.int64], global_probs: NDArray[np.float64], local_probs: NDArray[np.float64]
) -> Scores:
    """EV + |H(global) - H(local)|."""
    return np.asarray(label_changes + np.abs(entropy(global_probs) - entropy(local_probs)), dtype=np.float64)


class EpistemicVariation:
    """The samples whose predictions changed most often."""

    needs: ClassVar[frozenset[str]] = frozenset({"label_changes"})

    def scores(self, pool: PoolView) -> Scores:
        """EV."""
        return pool.label_changes.astype(np.float64)

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of highest score."""
        return best_of(pool, self.scores(pool), budget, rng)


class NumberClass(EpistemicVariation):
    """EV + number of distinct classes seen."""

    def scores(self, pool: PoolView) -> Scores:
        """See ``number_class_score``."""
        return number_class_score(pool.label_changes, pool.classes_seen)


class WithGlobalVariation(EpistemicVariation):
    """EV + |H(new global) - H(local)|."""

    needs: ClassVar[frozenset[str]] = frozenset({"label_changes", "local_model"})

    def scores(self, pool: PoolView) -> Scores:
        """See ``gev_score``."""
        return gev_score(pool.label_changes, pool.probs("global"), pool.probs("local"))
