"""What the server and a site must agree on before a model can be shared.

Class list and order, preprocessing, network and message format. The comparison is made at the site: nothing but
the differences goes up.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.client.build import build_net
from chase.client.spec import net_spec
from chase.closed_form.catalog import make_map
from chase.closed_form.feature_map import InputSpec, fit, transform
from chase.closed_form.model import FeatureSpec
from chase.core.errors import ContractError
from chase.core.messages import FORMAT
from chase.core.randomness import rng
from chase.core.weights import Weights
from chase.data.resident import Column, Samples
from chase.models.net import get_weights
from chase.settings import Settings

HEADER = "agreement"
"""The contract's key in a message: the word that sites of earlier versions read."""


@dataclass(frozen=True)
class Contract:
    """One side's view."""

    format: int
    classes: tuple[str, ...]
    kind: str
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: tuple[float, float]
    """The values of the pictures that become 0 and 255."""
    columns: tuple[str, ...]
    """Of a table: every column with its categories, as JSON."""
    vocabulary: int
    """Number of distinct tokens of texts; 0 for images."""
    net: str
    arrays: tuple[str, ...]
    """The network's arrays: name, type and shape of each."""
    features: str = ""
    """The closed-form learner: a fingerprint of the features of some drawn samples, equal only bit for bit."""

    def to_json(self) -> str:
        """As text that ``from_json`` reads back to an equal value."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Contract:
        """Read one; what is not whole is refused."""
        try:
            body: dict[str, Any] = json.loads(text)
            _check(body)
            made = cls(**(body | {name: tuple(body[name]) for name in (*LISTS, "columns")}))
            if made.kind == "table" and not made.table:
                raise ValueError("it names no columns")
            return made
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(
                f"a contract cannot be read ({error}): it is damaged, or of another version of chase"
            ) from None

    @property
    def table(self) -> tuple[Column, ...]:
        """The columns of a table."""
        return tuple(Column.from_json(json.loads(text)) for text in self.columns)

    def digest(self) -> str:
        """A fingerprint that travels with every order."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


PROBES = 16
"""Samples drawn to compare feature maps."""
LISTS: dict[str, Any] = {
    "classes": str,
    "shape": int,
    "mean": float | int,
    "std": float | int,
    "scale": float | int,
    "arrays": str,
}
"""The fields that are lists, and what is in them."""
AXES = {"image": ("channels", "height", "width"), "text": ("length",), "vectors": ("width",), "table": ("width",)}
"""What the numbers of a sample's shape are."""


def _check(body: dict[str, Any]) -> None:
    """Refuse what could not be followed, with a sentence on the first point."""
    for name, kind in LISTS.items():
        if not isinstance(body[name], list) or not body[name] or not all(isinstance(v, kind) for v in body[name]):
            raise ValueError(f"its {name} is {_shown(body[name])}")
    if body["kind"] not in AXES:
        raise ValueError(f"its kind is {_shown(body['kind'])}, not {' or '.join(AXES)}")
    axes = AXES[body["kind"]]
    if len(body["shape"]) != len(axes) or min(body["shape"]) < 1:
        raise ValueError(f"its shape is {_shown(body['shape'])}, not {', '.join(axes)}")
    if min(body["std"]) <= 0:
        raise ValueError(f"its std is {_shown(body['std'])}, which nothing can be divided by")
    if len(body["scale"]) != 2 or body["scale"][0] >= body["scale"][1]:
        raise ValueError(f"its scale is {_shown(body['scale'])}, not a lowest and a highest value")


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]


def arrays_of(weights: Weights) -> tuple[str, ...]:
    """Name, type and shape of every array."""
    return tuple(f"{name} {array.dtype}{list(array.shape)}" for name, array in sorted(weights.items()))


def contract_of(settings: Settings, samples: Samples, classes: tuple[str, ...]) -> Contract:
    """What the holder of these samples would agree to under these settings."""
    return Contract(
        format=FORMAT,
        classes=tuple(classes),
        kind=samples.kind,
        shape=samples.shape,
        mean=tuple(samples.mean),
        std=tuple(samples.std),
        scale=samples.scale,
        columns=tuple(json.dumps(column.to_json()) for column in samples.columns),
        vocabulary=samples.vocabulary,
        net=settings.net,
        arrays=arrays_of(get_weights(build_net(settings, samples, len(classes)))),
        features=features_digest(settings, samples, len(classes)),
    )


@lru_cache(maxsize=16)
def _probed(features: str) -> str:
    """Fit the feature map on some drawn samples and transform them: what software and machine make of it."""
    about = FeatureSpec.from_text(features)
    feature_map = make_map(about.features, about.inputs, **about.options)
    probe = drawn_samples(about.inputs)
    rows = torch.arange(len(probe))
    codes = transform(feature_map, fit(feature_map, [(probe, rows)]), probe, rows)
    return hashlib.sha256(codes.tobytes()).hexdigest()[:16]


def features_digest(settings: Settings, samples: Samples, classes: int) -> str:
    """What both sides must get from the same drawn samples; a network's own features come with the weights."""
    spec = net_spec(settings, samples, classes)
    if not spec.features or FeatureSpec.from_text(spec.features).features == "net":
        return ""
    return _probed(spec.features)


def drawn_samples(inputs: InputSpec) -> Samples:
    """Samples of a kind, drawn from a fixed seed."""
    draw, shape = rng(0, "probe-features"), (PROBES, *inputs.shape)
    if inputs.kind == "image":
        values: NDArray[Any] = draw.integers(0, 256, shape).astype(np.uint8)
    elif inputs.kind == "text":
        values = draw.integers(0, max(2, inputs.vocabulary), shape)
    else:
        values = draw.standard_normal(shape).astype(np.float32)
        for at, column in enumerate(inputs.columns):
            if column.values:
                values[:, at] = draw.integers(0, len(column.values), PROBES)
    numbers = np.arange(PROBES, dtype=np.int64)
    more = (numbers, inputs.vocabulary, inputs.columns)
    return Samples(torch.from_numpy(values), inputs.kind, inputs.mean, inputs.std, *more)


SAYS = {
    "format": "message format",
    "classes": "class list",
    "kind": "kind of samples",
    "shape": "shape of a sample",
    "mean": "normalisation mean",
    "std": "normalisation standard deviation",
    "scale": "range of the pictures' values (pixel_range)",
    "columns": "columns of the table",
    "vocabulary": "number of tokens",
    "net": "network",
    "arrays": "arrays of the network",
    "features": "features of drawn samples, bit for bit (use the same versions of chase, torch and numpy)",
}


def differences(server: Contract, site: Contract) -> list[str]:
    """One sentence for each point on which the two differ."""
    found = []
    for field, name in SAYS.items():
        ours, theirs = getattr(server, field), getattr(site, field)
        if ours != theirs:
            found.append(f"{name}: the server has {_few(ours, theirs)}, the site {_few(theirs, ours)}")
    return found


def _few(value: Any, other: Any) -> str:
    """The value, or of a long list the part that the other lacks."""
    if not isinstance(value, tuple):
        return str(value)
    if len(value) <= 12:
        return f"({', '.join(str(v) for v in value)})"
    odd = [str(v) for v in value if v not in other]
    return f"{len(value)} entries, of its own: {', '.join(odd[:5]) or 'none (the order differs)'}"
