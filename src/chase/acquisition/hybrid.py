"""Hybrid: an ordered list of keys; each decides among what the keys before it left tied.

EV takes few values, so most of a pool ties. ``hybrid_keys = ["ev", "margin"]`` breaks its ties on principle.
Four keys are scores: ``ev``, ``margin``, ``entropy``, ``least-confidence``. Three look at the whole pick:
``diversity`` is k-centre greedy among the tied, away from all labelled and all that is picked;
``class-balance`` shares the places out so that the predicted classes end as even as they can with the labels
that the client has, and leaves the choice within a class to the keys after it; ``random`` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.coreset import k_centre_greedy
from chase.acquisition.strategy import PoolView, Scores, argmax_random
from chase.acquisition.uncertainty import confidence, entropy, margin
from chase.core.errors import SettingsError, unknown
from chase.core.pools import SampleIds

Rows = NDArray[np.int64]

SCORES: dict[str, Callable[[PoolView], Scores]] = {
    "ev": lambda pool: pool.label_changes.astype(np.float64),
    "margin": lambda pool: -margin(pool.probs()),
    "entropy": lambda pool: entropy(pool.probs()),
    "least-confidence": lambda pool: -confidence(pool.probs()),
}
KEYS = (*SCORES, "diversity", "class-balance", "random")
DEFAULT_KEYS = ("ev", "margin", "entropy", "diversity", "class-balance", "random")


def places_per_class(
    have: NDArray[np.int64], on_offer: NDArray[np.int64], places: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Share ``places`` out, one at a time to the class that has least and still has samples on offer.

    have, on_offer (classes,): samples that count already, and tied candidates -> places (classes,).
    """
    given = np.zeros_like(on_offer)
    for _ in range(min(places, int(on_offer.sum()))):
        short = np.where(given < on_offer, -(have + given).astype(np.float64), -np.inf)
        given[argmax_random(short, rng)] += 1
    return given


@dataclass
class _Picking:
    """One selection under way: ``picked`` grows key by key."""

    pool: PoolView
    rng: np.random.Generator
    picked: list[int]

    def fill(self, tied: Rows, places: int, keys: Sequence[str]) -> None:
        """Pick ``places`` of the tied rows by the keys."""
        if tied.size <= places or places == 0:
            self.picked += tied[:places].tolist()
        elif not keys or keys[0] == "random":
            self.picked += self.rng.permutation(tied)[:places].tolist()
        elif keys[0] in SCORES:
            self._by_score(tied, places, SCORES[keys[0]](self.pool)[tied], keys[1:])
        elif keys[0] == "diversity":
            self._by_diversity(tied, places)
        else:
            self._by_class(tied, places, keys[1:])

    def _by_score(self, tied: Rows, places: int, scores: Scores, keys: Sequence[str]) -> None:
        """All above the score of the last place; among those that have just that score the next key decides."""
        last = np.sort(scores)[-places]
        above = tied[scores > last]
        self.picked += above.tolist()
        self.fill(tied[scores == last], places - above.size, keys)

    def _by_diversity(self, tied: Rows, places: int) -> None:
        points = self.pool.features()
        centres = [points[self.picked]]
        if self.pool.labeled_ids.size:
            centres.append(self.pool.labeled_features())
        self.picked += tied[k_centre_greedy(points[tied], np.concatenate(centres), places, self.rng)].tolist()

    def _by_class(self, tied: Rows, places: int, keys: Sequence[str]) -> None:
        predicted, classes = self.pool.logits().argmax(axis=1), self.pool.num_classes
        have = self.pool.class_counts + np.bincount(predicted[self.picked], minlength=classes)
        on_offer = np.bincount(predicted[tied], minlength=classes)
        for c, count in enumerate(places_per_class(have, on_offer, places, self.rng)):
            self.fill(tied[predicted[tied] == c], int(count), keys)


class Hybrid:
    """Keys in order: a later one only decides what the earlier ones leave open."""

    def __init__(self, hybrid_keys: Sequence[str] = DEFAULT_KEYS) -> None:
        for key in hybrid_keys:
            if key not in KEYS:
                raise SettingsError(unknown("key in hybrid_keys", key, KEYS))
        self._keys = tuple(hybrid_keys)

    @property
    def needs(self) -> frozenset[str]:
        """EV tracking only with the key ``ev``, a model only where a key reads one."""
        reads_model = set(self._keys) - {"ev", "random"}
        return frozenset({"label_changes"} if "ev" in self._keys else ()) | frozenset({"model"} if reads_model else ())

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates by the keys."""
        picking = _Picking(pool, rng, [])
        picking.fill(np.arange(len(pool)), budget, self._keys)
        return pool.ids[picking.picked]
