"""What a feature map is, and the number format that makes its sums exact.

A feature map is fitted in a few preparatory messages. In each step every client sends sums over its samples
(labelled or not; no label is used), the sums are added over the clients, and ``solve`` turns the total into
new parameters, which everybody gets. After the last step ``transform`` gives the features of a sample.

Everything that is summed is first rounded to a fixed grid and kept within fixed bounds. A sum in float64 is then a
sum of integers below 2**53: it is *exact*, so neither the partition of the samples over clients, nor the order
of clients, nor the number of processes changes a single bit, and a sample can be taken out again without trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from chase.core.errors import DataError
from chase.core.weights import Array, Arrays
from chase.data.resident import Column, Kind, Samples

Codes = NDArray[np.int16]
"""Features as whole multiples of ``GRID`` (samples, width)."""
Reals = NDArray[np.float64]

GRID = 2.0**-9
"""Step of a feature; features have mean 0 and deviation 1, so 0.002 is far below what a label tells."""
LIMIT = 2**15 - 1
LEAST_RIDGE = 1e-6
"""Lower bound of a chosen ridge weight, as a multiple of the mean eigenvalue of the features that vary."""
MOMENT_SAMPLES = 5_000
"""About how many samples, over all clients, the last step measures mean and deviation of the features on."""


@dataclass(frozen=True)
class InputSpec:
    """What every site must know of the samples to build the same feature map."""

    kind: Kind
    shape: tuple[int, ...]
    """Shape of one stored sample."""
    vocabulary: int = 0
    columns: tuple[Column, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    """How samples are normalised for a network: what ``embed`` has to undo."""
    std: tuple[float, ...] = (1.0,)

    @classmethod
    def of(cls, samples: Samples) -> InputSpec:
        """For these samples."""
        shape = tuple(samples.inputs.shape[1:])
        return cls(samples.kind, shape, samples.vocabulary, samples.columns, samples.mean, samples.std)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        columns = [column.to_json() for column in self.columns]
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "vocabulary": self.vocabulary,
            "columns": columns,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> InputSpec:
        """What ``to_json`` gave."""
        columns = tuple(Column.from_json(column) for column in body["columns"])
        shape, mean, std = tuple(body["shape"]), tuple(body["mean"]), tuple(body["std"])
        return cls(body["kind"], shape, body["vocabulary"], columns, mean, std)


class FeatureMap(Protocol):
    """Samples to features; parameters are named arrays, so that they travel and are saved like weights."""

    @property
    def steps(self) -> int:
        """Preparatory messages."""
        ...

    @property
    def width(self) -> int:
        """Numbers per sample."""
        ...

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters after the last step, by name; float32, those in ``byte_params`` int8."""
        ...

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """What a client sends in a step: float64 arrays that add up over clients."""
        ...

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """The parameters after a step, from the sums of all clients."""
        ...

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Features before standardisation (rows, width); a sample's row does not depend on the others."""
        ...

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """``raw`` in plain torch on samples as a network takes them, for export: equal to rounding."""
        ...


def least_ridge(feature_map: FeatureMap) -> float:
    """The lower bound that a feature map sets by an attribute ``least_ridge``; the usual one without it."""
    return float(getattr(feature_map, "least_ridge", LEAST_RIDGE))


def byte_params(feature_map: FeatureMap) -> tuple[str, ...]:
    """Parameters that a feature map keeps as int8, by an attribute ``byte_params``; all others are float32."""
    return tuple(getattr(feature_map, "byte_params", ()))


def encode(values: NDArray[np.floating[Any]], grid: float = GRID, limit: int = LIMIT) -> Codes:
    """Values as whole multiples of ``grid``, clipped to what int16 holds."""
    codes: Codes = np.clip(np.rint(values / grid), -limit, limit).astype(np.int16)
    return codes


def transform(feature_map: FeatureMap, params: Arrays, samples: Samples, rows: Tensor) -> Codes:
    """Standardised features of the rows, as codes."""
    scaled = feature_map.raw(params, samples, rows)
    scaled -= params["mean"].astype(np.float32)
    scaled /= params["std"].astype(np.float32)
    return encode(scaled)


def decode(codes: Codes) -> NDArray[np.float32]:
    """The features that codes stand for."""
    return codes.astype(np.float32) * np.float32(GRID)


def fit(feature_map: FeatureMap, parts: list[tuple[Samples, Tensor]], start: Arrays | None = None) -> dict[str, Array]:
    """All steps in one place, over the parts of several clients: what a federation does by messages."""
    params: dict[str, Array] = dict(start or {})
    for step in range(feature_map.steps):
        total = add([feature_map.sums(step, params, samples, rows) for samples, rows in parts])
        params = feature_map.solve(step, params, total)
    return params


def add(parts: Sequence[Arrays]) -> dict[str, Array]:
    """Named sums added up in the order given; a part need not have all of them."""
    total: dict[str, Array] = {}
    for part in parts:
        for name, array in part.items():
            if name not in total:
                total[name] = array.astype(np.float64)
                continue
            if array.shape != total[name].shape:
                raise DataError(
                    f"sums '{name}' have shape {list(array.shape)} at one site and {list(total[name].shape)} at "
                    "another: all sites must have samples of the same shape"
                )
            total[name] += array
    if not total:
        raise DataError("no client sent sums, so features cannot be fitted: check that somebody takes part")
    return total


def mixed(numbers: NDArray[np.integer[Any]], salt: int) -> NDArray[np.uint64]:
    """Well-mixed 64-bit numbers (splitmix64), the same for the same id wherever the sample is."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def sample_ids(samples: Samples, rows: Tensor) -> NDArray[np.int64]:
    """The ids of rows."""
    numbers = rows.numpy().astype(np.int64)
    return numbers if samples.ids is None else samples.ids[numbers]


def moment_rows(samples: Samples, rows: Tensor, count: float, salt: int) -> Tensor:
    """The rows that the moments are measured on: about ``MOMENT_SAMPLES`` of ``count``, chosen by their ids."""
    every = max(1, int(count) // MOMENT_SAMPLES)
    keep = mixed(sample_ids(samples, rows), salt) % np.uint64(every) == 0
    return rows[keep]


MOMENT_GRID = 2.0**-10
MOMENT_LIMIT = 2**21


def moments(values: NDArray[np.floating[Any]]) -> dict[str, Array]:
    """Exact count, sum and sum of squares of the columns of values (samples, width)."""
    codes = np.clip(np.rint(values.astype(np.float64) / MOMENT_GRID), -MOMENT_LIMIT, MOMENT_LIMIT)
    return {
        "moment.count": np.array([float(codes.shape[0])]),
        "moment.sum": codes.sum(axis=0),
        "moment.square": (codes**2).sum(axis=0),
    }


class Standardised(ABC):
    """Features that are fitted in one step: their mean and deviation over all samples."""

    steps = 1

    @property
    @abstractmethod
    def width(self) -> int:
        """Features per sample."""

    @abstractmethod
    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """The features (rows, width) before they are standardised."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Mean and deviation."""
        return {"mean": (self.width,), "std": (self.width,)}

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """Moments of the features."""
        return moments(self.raw(params, samples, rows))

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """Mean and deviation."""
        return standard(total)


def standard(total: Mapping[str, Array]) -> dict[str, Array]:
    """``mean`` and ``std`` of the columns, float32; a constant column gets std 1 and so stays 0."""
    count = max(1.0, float(total["moment.count"][0]))
    mean = total["moment.sum"] / count
    variance = np.maximum(total["moment.square"] / count - mean**2, 0.0)
    std = np.sqrt(variance) * MOMENT_GRID
    constant = std <= 1e-6 * np.maximum(1.0, np.abs(mean) * MOMENT_GRID)
    return {
        "mean": (mean * MOMENT_GRID).astype(np.float32),
        "std": np.where(constant, 1.0, std).astype(np.float32),
    }
