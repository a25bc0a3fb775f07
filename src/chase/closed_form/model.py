"""The closed-form model as a network: features with fixed parameters, and a linear head that the server solves.

As a ``Net`` it goes wherever networks go: evaluation, selection, the labelling page, export and prediction. Features of
stored samples come from the cache, with the exact kernels; ``embed`` is the same in plain torch, for export.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chase.closed_form.catalog import make_map
from chase.closed_form.feature_cache import FeatureCache
from chase.closed_form.feature_map import GRID, LIMIT, Codes, FeatureMap, InputSpec, byte_params, decode
from chase.core.weights import Array, digest
from chase.data.resident import Samples
from chase.models.catalog import NetSpec, build
from chase.models.layers import Init
from chase.models.net import Net

NAME = "closed-form"
"""What a ``NetSpec`` of such a model is called."""
STORES = 4
"""Sets of samples whose features stay open."""


@dataclass(frozen=True)
class FeatureSpec:
    """Which feature map, for which samples; enough to build the same one elsewhere."""

    features: str
    inputs: InputSpec
    filters: int = 200
    passes: int = 6
    text_features: int = 768
    levels: float = 0.0
    seed: int = 0
    net: str = ""
    """The network whose features are used, for ``features = "net"``."""
    init: Init = "xavier"

    @property
    def options(self) -> dict[str, Any]:
        """What ``make_map`` takes beside the name and the inputs."""
        return {name: getattr(self, name) for name in ("filters", "passes", "text_features", "levels", "seed")}

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps({**vars(self), "inputs": self.inputs.to_json()}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> FeatureSpec:
        """What ``to_text`` gave."""
        body = json.loads(text)
        return cls(**{**body, "inputs": InputSpec.from_json(body["inputs"])})


class ClosedFormNet(Net):
    """A feature map and a linear head; probabilities are the softmax of its outputs."""

    def __init__(self, feature_map: FeatureMap, classes: int, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.params: list[str] = sorted(feature_map.shapes)
        for name, shape in feature_map.shapes.items():
            kind = torch.int8 if name in byte_params(feature_map) else torch.float32
            start = torch.ones(shape) if name == "std" else torch.zeros(shape, dtype=kind)
            self.register_buffer(f"feature_{name}", start)
        self.inner = inner
        self.head = nn.Linear(feature_map.width, classes)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.bias.zero_()
        self._stores: list[tuple[Samples, str, FeatureCache]] = []

    def embed(self, x: Tensor) -> Tensor:
        """x as a network takes it -> standardised features (batch, width)."""
        params = {name: getattr(self, f"feature_{name}") for name in self.params}
        scaled: Tensor = (self.feature_map.embed(params, x) - params["mean"]) / params["std"]
        return scaled.clamp(-LIMIT * GRID, LIMIT * GRID)  # not rounded: a program elsewhere may round the other way

    def fitted(self) -> dict[str, Array]:
        """The parameters of the feature map."""
        return {name: getattr(self, f"feature_{name}").detach().numpy() for name in self.params}

    def codes(self, samples: Samples, rows: Tensor) -> Codes:
        """Features of stored samples as codes, out of the cache."""
        params = {name: array.copy() for name, array in self.fitted().items()}
        fixed = {name: t.numpy() for name, t in self.state_dict().items() if not name.startswith("head.")}
        key = digest(fixed)
        for known, fitted, store in self._stores:
            if known is samples and fitted == key:
                return store.codes(rows)
        store = FeatureCache(self.feature_map, params, samples, key)
        self._stores = [*self._stores[-(STORES - 1) :], (samples, key, store)]
        return store.codes(rows)

    def stored_features(self, samples: Samples, rows: Tensor) -> Tensor:
        """Features of stored samples (rows, width)."""
        return torch.from_numpy(decode(self.codes(samples, rows)))


def build_model(spec: NetSpec, seed: int) -> nn.Module:
    """The network or closed-form model of a spec, with its first weights."""
    if not spec.features:
        return build(spec, seed)
    about = FeatureSpec.from_text(spec.features)
    inner = None
    if about.features == "net":
        inner = build(NetSpec(about.net, spec.shape, spec.classes, 0.0, spec.vocabulary, about.init), seed)
        inner.kernels = "fused"  # type: ignore[assignment]  # the cache and the run do not say which kernel it was
        inner.own_forms = 1  # type: ignore[assignment]  # features of one run must not differ between versions
    return ClosedFormNet(make_map(about.features, about.inputs, net=inner, **about.options), spec.classes, inner)
