"""What a strategy is, and what it may see.

A strategy gets a ``PoolView`` of the candidates: predictions, features and tracked label changes,
computed on demand, cached and counted; never a model, and never the label of a candidate. It
returns the ids it would ask a person about. Higher scores ask first; ties go to the seeded
generator, through ``top_k``, never to array order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chase.core.errors import SettingsError
from chase.core.pools import SampleIds
from chase.core.weights import Weights
from chase.data.resident import Samples
from chase.learning.inference import run_chunks
from chase.models.net import Net, set_weights

Which = Literal["local", "global"]
Scores = NDArray[np.float64]


class AcquisitionStrategy(Protocol):
    """Picks what to ask for."""

    needs: ClassVar[frozenset[str]]
    """What must be kept for it: "label_changes" (EV tracking), "local_model" (the last local weights)."""

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """At most ``budget`` distinct ids among ``pool.ids``."""
        ...


def top_k(ids: SampleIds, scores: Scores, k: int, rng: np.random.Generator) -> SampleIds:
    """The k ids of highest score, best first, ties broken by the generator; independent of the order of ids."""
    if not np.isfinite(scores).all():
        raise SettingsError(f"{int((~np.isfinite(scores)).sum())} scores are not finite; a strategy must mask them")
    order = np.argsort(ids)
    tie = rng.random(ids.size)
    best = order[np.lexsort((tie, -scores[order]))][:k]
    return ids[best]


class PoolView:
    """The candidates of one selection, as a strategy may see them."""

    def __init__(
        self,
        ids: SampleIds,
        samples: Samples,
        net: nn.Module,
        weights: dict[Which, Weights],
        *,
        label_changes: NDArray[np.int64],
        classes_seen: NDArray[np.int64],
        labeled_ids: SampleIds,
        labeled_classes: NDArray[np.int64],
        num_classes: int,
        model: Which = "local",
    ) -> None:
        self.ids, self.model, self.num_classes = ids, model, num_classes
        self.label_changes, self.classes_seen = label_changes, classes_seen
        self.labeled_ids, self.labeled_classes = labeled_ids, labeled_classes
        self.inferences = 0
        self.inferred = np.zeros(ids.size, dtype=bool)
        self._samples, self._net, self._weights = samples, net, weights
        self._loaded: Which | None = None
        self._cache: dict[tuple[str, Which, bool], NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return int(self.ids.size)

    def logits(self, which: Which | None = None) -> NDArray[np.float32]:
        """Outputs before the softmax (candidates, classes)."""
        return self._infer("logits", which or self.model, labeled=False)

    def probs(self, which: Which | None = None) -> NDArray[np.float64]:
        """Class probabilities (candidates, classes)."""
        return torch.from_numpy(self.logits(which)).double().softmax(dim=1).numpy()

    def features(self, which: Which | None = None) -> NDArray[np.float32]:
        """Penultimate features (candidates, width)."""
        return self._infer("features", which or self.model, labeled=False)

    def labeled_features(self, which: Which | None = None) -> NDArray[np.float32]:
        """Penultimate features of the labelled samples (labelled, width)."""
        return self._infer("features", which or self.model, labeled=True)

    def _infer(self, what: str, which: Which, labeled: bool) -> NDArray[np.float32]:
        key = (what, which, labeled)
        if key not in self._cache:
            if which not in self._weights:
                raise SettingsError(f"the strategy reads the {which} model without declaring needs 'local_model'")
            if self._loaded != which:
                set_weights(self._net, self._weights[which])
                self._loaded = which
            ids = self.labeled_ids if labeled else self.ids
            rows = self._samples.rows(ids)
            forward: Callable[[torch.Tensor], torch.Tensor] = self._net
            if what == "features":
                if not isinstance(self._net, Net):
                    raise SettingsError("the strategy reads features, so the network must be a chase.models.net.Net")
                forward = self._net.embed
            self._cache[key] = run_chunks(forward, self._net, self._samples, rows).numpy()
            self.inferences += int(ids.size)
            if not labeled:
                self.inferred[:] = True
        return self._cache[key]
