"""What a strategy is, and how the best are taken.

A strategy gets a ``PoolView`` of the candidates: predictions, features and tracked label changes,
computed on demand, cached and counted; never a model, and never the label of a candidate. It
returns the ids it would ask a person about. Higher scores ask first; ties go to the seeded
generator, through ``top_k``, never to array order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from chase.acquisition.pool_view import PoolView, Which
from chase.acquisition.uncertainty import Scores, argmax_random
from chase.core.errors import SettingsError
from chase.core.pools import SampleIds

NEEDS = {
    "label_changes": "EV is tracked, and candidates are the samples it was tracked for",
    "model": "reads the model that the setting `model` names",
    "local_model": "reads the last local model, for either value of `model`",
    "before": "reads the local model before the one that `model` names",
    "loss_module": "a loss-prediction module is trained beside the network and averaged with it",
}
"""What a strategy may ask to be kept for it; the global model is always there."""


class AcquisitionStrategy(Protocol):
    """Picks what to ask for."""

    @property
    def needs(self) -> frozenset[str]:
        """What must be kept for it: names out of ``NEEDS``."""
        ...

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds | Sequence[int]:
        """At most ``budget`` distinct ids among ``pool.ids``, as an array or a list."""
        ...


def top_k(ids: SampleIds, scores: Scores, k: int, rng: np.random.Generator) -> SampleIds:
    """The k ids of highest score, best first, ties broken by the generator; independent of the order of ids."""
    if not np.isfinite(scores).all():
        raise SettingsError(f"{int((~np.isfinite(scores)).sum())} scores are not finite; a strategy must mask them")
    order = np.argsort(ids)
    tie = rng.random(ids.size)
    best = order[np.lexsort((tie, -scores[order]))][:k]
    return ids[best]


def best_of(pool: PoolView, scores: Scores, budget: int, rng: np.random.Generator) -> SampleIds:
    """The candidates of highest score; the scores are kept for the person who is asked."""
    pool.scores = scores
    return top_k(pool.ids, scores, budget, rng)


def picks_by_chance(scores: Scores, chosen: Scores) -> int:
    """How many of the picks were decided by the tie-break: those of the lowest score picked, if not all of it were."""
    if chosen.size == 0:
        return 0
    lowest = chosen.min()
    taken, tied = int((chosen == lowest).sum()), int((scores == lowest).sum())
    return taken if tied > taken else 0


__all__ = ["NEEDS", "AcquisitionStrategy", "PoolView", "Scores", "Which", "argmax_random", "picks_by_chance", "top_k"]
