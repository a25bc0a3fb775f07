"""Model weights as named arrays: comparing, reading and writing.

Weights are plain NumPy arrays by name, so a message can cross a process, a file or a network
without pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from chase.core.errors import CheckpointError, UpdateError

Array = NDArray[Any]
Weights = Mapping[str, Array]
Arrays = Mapping[str, Array]


_CODES = {
    np.dtype(kind): (rank, code)
    for rank, (code, kind) in enumerate(
        {
            "U64": "<u8",
            "I64": "<i8",
            "F64": "<f8",
            "F32": "<f4",
            "U32": "<u4",
            "I32": "<i4",
            "F16": "<f2",
            "U16": "<u2",
            "I16": "<i2",
            "I8": "|i1",
            "U8": "|u1",
            "BOOL": "|b1",
        }.items()
    )
}
"""What the safetensors format calls a type, and the place of its arrays in a file: larger items come first."""
_quoted = json.JSONEncoder(ensure_ascii=False).encode
_BY_CODE = {code: kind for kind, (_, code) in _CODES.items()}


_JOINED = 4096
"""Arrays of up to this many numbers are checked together: a call costs more than the numbers."""


def not_finite(arrays: Arrays) -> str | None:
    """The name of an array that holds NaN or infinity, if there is one; integers never do."""
    floating = {name: array for name, array in arrays.items() if array.dtype.kind in "fc"}
    small = [array.reshape(-1) for array in floating.values() if array.size <= _JOINED]
    large = [array for array in floating.values() if array.size > _JOINED]
    if all(np.isfinite(array).all() for array in ([np.concatenate(small), *large] if small else large)):
        return None
    return next(name for name, array in floating.items() if not np.isfinite(array).all())


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
    odd_one = not_finite(weights)
    if odd_one is not None:
        raise UpdateError(f"{who}: '{odd_one}' holds NaN or infinity")


def prefixed(prefix: str, arrays: Arrays) -> dict[str, Array]:
    """The arrays under names with a prefix, so that several sets fit into one file or message."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def part_of(arrays: Arrays, prefix: str) -> dict[str, Array]:
    """The set that ``prefixed`` put in: the arrays that have the prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def without(arrays: Arrays, *prefixes: str) -> dict[str, Array]:
    """The arrays that have none of these prefixes."""
    return {name: array for name, array in arrays.items() if not name.startswith(prefixes)}


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
    """Arrays as a safetensors blob: what the library's ``save`` gives, bit for bit, several times as fast if small."""
    if any(array.dtype not in _CODES for array in arrays.values()):
        return save({name: contiguous(a) for name, a in arrays.items()}, metadata=dict(note or {}))
    order = sorted((*_CODES[array.dtype], name) for name, array in arrays.items())
    notes = ",".join(f"{_quoted(key)}:{_quoted(value)}" for key, value in (note or {}).items())
    about = [f'"__metadata__":{{{notes}}}']
    at = 0
    for _, code, name in order:
        array = arrays[name]
        end = at + array.nbytes
        about.append(f"{_entry(name, code, array.shape)}[{at},{end}]}}")
        at = end
    head = f"{{{','.join(about)}}}".encode()
    head += b" " * (-len(head) % 8)
    values = [np.ascontiguousarray(arrays[name]).data for _, _, name in order]
    return b"".join([len(head).to_bytes(8, "little"), head, *values])


@lru_cache(maxsize=4096)
def _entry(name: str, code: str, shape: tuple[int, ...]) -> str:
    """What the head of a blob says of an array, up to its place."""
    return f'{_quoted(name)}:{{"dtype":"{code}","shape":[{",".join(map(str, shape))}],"data_offsets":'


def from_bytes(blob: bytes | bytearray) -> dict[str, Array]:
    """The arrays of a blob that ``to_bytes`` gave and that has been checked; of a bytearray they are views."""
    blob = blob if isinstance(blob, bytearray) else bytearray(blob)
    start = 8 + int.from_bytes(blob[:8], "little")
    about = json.loads(blob[8:start])
    about.pop("__metadata__", None)
    found: dict[str, Array] = {}
    for name, body in about.items():
        shape, first = body["shape"], start + body["data_offsets"][0]
        flat = np.frombuffer(blob, _BY_CODE[body["dtype"]], math.prod(shape), first)
        found[name] = flat if len(shape) == 1 else flat.reshape(shape)
    return found


def read(path: Path) -> dict[str, Array]:
    """Arrays from a safetensors file; a damaged file is named."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def read_part(path: Path, prefix: str) -> dict[str, Array]:
    """``part_of`` the arrays in a safetensors file; the others are not read."""
    try:
        with safe_open(path, framework="numpy") as held:
            names = [name for name in held.keys() if name.startswith(prefix)]  # noqa: SIM118  (not a mapping)
            return part_of({name: held.get_tensor(name) for name in names}, prefix)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
