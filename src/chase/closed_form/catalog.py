"""Feature maps by name, and which one fits which kind of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from chase.closed_form.feature_map import FeatureMap, InputSpec
from chase.closed_form.given import GivenFeatures
from chase.closed_form.hashed_text import HashedText
from chase.closed_form.net_features import NetFeatures
from chase.closed_form.patches import Patches
from chase.closed_form.table import TableFeatures
from chase.core import plugins
from chase.core.errors import SettingsError
from chase.data.resident import Kind

MAPS: dict[str, tuple[str, Callable[..., FeatureMap]]] = {
    "patches": ("images: responses of learnt patch filters", Patches),
    "hashed-text": ("texts: directions of hashed words and parts of words", HashedText),
    "table": ("table rows: columns and random Fourier features", TableFeatures),
    "given": ("your own vectors, such as embeddings", GivenFeatures),
    "net": ("what the last layer of the network in init_weights sees", NetFeatures),
}
BY_KIND: dict[Kind, str] = {"image": "patches", "text": "hashed-text", "table": "table", "vectors": "given"}


def make_map(
    name: str,
    spec: InputSpec,
    *,
    seed: int = 0,
    filters: int = 200,
    passes: int = 6,
    text_features: int = 768,
    levels: float = 0.0,
    net: nn.Module | None = None,
) -> FeatureMap:
    """The feature map of a name ("auto": by the kind of data)."""
    name = BY_KIND[spec.kind] if name == "auto" else name
    if name not in MAPS:
        made: FeatureMap = plugins.find("features", name, ["auto", *MAPS])(spec, seed=seed)
        return made
    options: dict[str, Any] = {}
    if name == "net":
        if net is None:
            raise SettingsError(
                "features = 'net' use the network of init_weights: set init_weights to a safetensors file"
            )
        options = {"net": net}
    elif name == "patches":
        options = {"filters": filters, "passes": passes, "seed": seed, "levels": levels}
    elif name == "hashed-text":
        options = {"wide": text_features, "seed": seed}
    elif name != "given":
        options = {"seed": seed}
    return MAPS[name][1](spec, **options)
