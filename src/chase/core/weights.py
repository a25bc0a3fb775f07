"""Model weights as named arrays: comparing, reading and writing.

Weights are plain NumPy arrays by name, so a message can cross a process, a file or a network
without pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from chase.core.errors import CheckpointError, UpdateError

Array = NDArray[Any]
Weights = Mapping[str, Array]
Arrays = Mapping[str, Array]


def check_fits(weights: Weights, like: Weights, who: str) -> None:
    """Refuse weights whose names, shapes or types differ from ``like`` or that are not finite."""
    if weights.keys() != like.keys():
        odd = sorted(weights.keys() ^ like.keys())
        raise UpdateError(f"{who}: arrays do not match the model: {', '.join(odd[:5])}")
    for name, array in weights.items():
        wanted = like[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise UpdateError(
                f"{who}: '{name}' is {array.dtype}{list(array.shape)}, the model has {wanted.dtype}{list(wanted.shape)}"
            )
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise UpdateError(f"{who}: '{name}' holds NaN or infinity")


def prefixed(prefix: str, arrays: Arrays) -> dict[str, Array]:
    """The arrays under names with a prefix, so that several sets fit into one file or message."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def part_of(arrays: Arrays, prefix: str) -> dict[str, Array]:
    """The set that ``prefixed`` put in: the arrays that have the prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def contiguous(array: Array) -> Array:
    """The array in one piece of memory; a single number (a batch-norm counter) keeps its empty shape."""
    return np.ascontiguousarray(array).reshape(array.shape)


def digest(weights: Weights) -> str:
    """A fingerprint that two sets of weights share only if they are equal bit for bit."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        array = np.asarray(weights[name], order="C")
        sha.update(f"{name}:{array.dtype}:{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def to_bytes(arrays: Arrays, note: Mapping[str, str] | None = None) -> bytes:
    """Arrays as a safetensors blob."""
    return save({name: contiguous(a) for name, a in arrays.items()}, metadata=dict(note or {}))


def read(path: Path) -> dict[str, Array]:
    """Arrays from a safetensors file; a damaged file is named."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
