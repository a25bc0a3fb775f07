"""The candidates of one selection, as a strategy may see them.

Ids are sorted, whatever order they came in, and every pass runs over them in that order: a selection
cannot depend on the order of candidates, not even in the last bit. Every forward pass is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chase.core.errors import SettingsError
from chase.core.pools import SampleIds
from chase.core.weights import Arrays, Weights
from chase.data.resident import Samples
from chase.learning.inference import features, logits, run_chunks
from chase.learning.loss_prediction import from_extras, predict, with_taps
from chase.models.layers import Dropout, MaskSource, seed_dropout
from chase.models.net import Net, set_weights

Which = Literal["local", "global", "before", "alone", "distilled"]
"""The client's last local model, the model just received, the local model before, one trained here alone, and the local
model distilled from the one received."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Models:
    """The weights that a strategy may look through; a strategy itself never holds them."""

    net: nn.Module
    weights: Mapping[Which, Weights]
    losses: Mapping[Which, Arrays] = field(default_factory=dict)
    """The loss-prediction module beside each of them."""
    trained: Mapping[Which, Callable[[], tuple[Weights, int]]] = field(default_factory=dict)
    """Models that are trained when a strategy first reads them -> weights and the forward passes outside training."""
    seed: tuple[str | int, ...] = (0,)
    """Where the draws of stochastic passes are seeded."""


class PoolView:
    """Predictions and features of the candidates, computed on demand, cached and counted."""

    def __init__(
        self,
        ids: SampleIds,
        samples: Samples,
        models: Models,
        *,
        label_changes: NDArray[np.int64],
        classes_seen: NDArray[np.int64],
        labeled_ids: SampleIds,
        labeled_classes: NDArray[np.int64],
        num_classes: int,
        model: Which = "local",
    ) -> None:
        order = np.argsort(ids)
        self.ids, self.model, self.num_classes = ids[order], model, num_classes
        self.label_changes, self.classes_seen = label_changes[order], classes_seen[order]
        self.labeled_ids, self.labeled_classes = labeled_ids, labeled_classes
        self.scores: NDArray[np.float64] | None = None
        """What a strategy that ranks by a score gave each candidate; for people who ask why."""
        self.groups: NDArray[np.int64] | None = None
        """The group of each candidate, where the best of several groups are taken: ties are counted within a group."""
        self.judge: Which | None = None
        """The model that decided, where a strategy chooses between two."""
        self.inferences = 0
        self.inferred = np.zeros(ids.size, dtype=bool)
        self._samples, self._models, self._net = samples, models, models.net
        self._weights = dict(models.weights)
        self._loaded: Which | None = None
        self._cache: dict[tuple[Any, ...], Floats] = {}

    def __len__(self) -> int:
        return int(self.ids.size)

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """How many labelled samples the client has of each class (classes,)."""
        return np.bincount(self.labeled_classes, minlength=self.num_classes).astype(np.int64)

    def logits(self, which: Which | None = None) -> Floats:
        """Outputs before the softmax (candidates, classes)."""
        return self._infer("logits", which or self.model, self.ids)

    def probs(self, which: Which | None = None) -> NDArray[np.float64]:
        """Class probabilities (candidates, classes)."""
        return torch.from_numpy(self.logits(which)).double().softmax(dim=1).numpy()

    def features(self, which: Which | None = None) -> Floats:
        """Penultimate features (candidates, width)."""
        return self._infer("features", which or self.model, self.ids)

    def labeled_features(self, which: Which | None = None) -> Floats:
        """Penultimate features of the labelled samples (labelled, width)."""
        return self._infer("features", which or self.model, self.labeled_ids)

    def labeled_probs(self, which: Which | None = None) -> NDArray[np.float64]:
        """Class probabilities of the labelled samples (labelled, classes)."""
        outputs = self._infer("logits", which or self.model, self.labeled_ids)
        return torch.from_numpy(outputs).double().softmax(dim=1).numpy()

    def predicted_losses(self, which: Which | None = None) -> Floats:
        """What the loss-prediction module expects of each candidate (candidates,)."""
        return self._infer("losses", which or self.model, self.ids)

    def mc_probs(self, passes: int, dropout: float, which: Which | None = None) -> NDArray[np.float64]:
        """Class probabilities of several passes with dropout on and all else in eval mode.

        (passes, candidates, classes); ``dropout`` is used where the network's own is 0.
        """
        drops = [module for module in self._net.modules() if isinstance(module, Dropout)]
        if not drops:
            raise SettingsError("passes with dropout need a network with chase.models.layers.Dropout, and it has none")
        off = [module for module in drops if module.p == 0.0]
        for module in drops:
            module.always = True
        for module in off:
            module.p = dropout
        seed, *place = self._models.seed
        self._load(which or self.model)
        outputs = []
        try:
            for number in range(passes):
                seed_dropout(self._net, MaskSource(int(seed), "mc", number, *place))
                outputs.append(self._infer(f"mc {number} {dropout!r}", which or self.model, self.ids))
        finally:
            seed_dropout(self._net, None)
            for module in drops:
                module.always = False
            for module in off:
                module.p = 0.0
        return torch.from_numpy(np.stack(outputs)).double().softmax(dim=2).numpy()

    def _load(self, which: Which) -> None:
        """Put the weights into the network."""
        if which not in self._weights and which in self._models.trained:
            self._weights[which], passes = self._models.trained[which]()
            self.inferences += passes
            self._loaded = None
        if which not in self._weights:
            raise SettingsError(f"the strategy reads the {which} model, which its `needs` do not declare")
        if self._loaded != which:
            set_weights(self._net, self._weights[which])
            self._loaded = which

    def _infer(self, what: str, which: Which, ids: SampleIds) -> Floats:
        key = (what, which, ids is self.ids)
        if key not in self._cache:
            self._load(which)
            features = self._cache.get(("features", which, ids is self.ids))
            if what == "logits" and features is not None:
                self._cache[key] = self._head(features)  # the features came from the same pass: no further one
            else:
                self._cache[key] = self._pass(what, which, self._samples.rows(ids)).numpy()
                self.inferences += int(ids.size)
                if ids is self.ids:
                    self.inferred[:] = True
        return self._cache[key]

    def _pass(self, what: str, which: Which, rows: torch.Tensor) -> torch.Tensor:
        if what == "logits":
            return logits(self._net, self._samples, rows)
        if what == "features":
            return features(self._split_net(), self._samples, rows)
        if what == "losses":
            return self._predict_losses(which, rows)
        return run_chunks(self._net, self._net, self._samples, rows)

    def _split_net(self) -> Net:
        if not isinstance(self._net, Net):
            raise SettingsError("the strategy reads features, so the network must be a chase.models.net.Net")
        return self._net

    def _head(self, features: Floats) -> Floats:
        device = next(self._net.parameters()).device
        with torch.inference_mode():
            out: torch.Tensor = self._split_net().head(torch.from_numpy(features).to(device))
        return out.cpu().numpy()

    def _predict_losses(self, which: Which, rows: torch.Tensor) -> torch.Tensor:
        if which not in self._models.losses:
            raise SettingsError("the strategy reads predicted losses without declaring needs 'loss_module'")
        return predict(with_taps(self._net), from_extras(self._models.losses[which]), self._samples, rows)
