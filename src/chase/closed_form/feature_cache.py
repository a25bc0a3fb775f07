"""Features on disk, computed once: shared by the processes of a run and by runs on the same data.

A file of int16 codes and a file of flags ("this row is there"), memory-mapped, keyed by the bytes of the samples and of
the parameters. Every process computes the same bits for a row, so it does not matter who writes it first. Memory
stays bounded: the operating system keeps in memory what is used. Without a writable cache the codes stay in memory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.closed_form.feature_map import Codes, FeatureMap, transform
from chase.core.weights import Arrays
from chase.data.cache import cache_root
from chase.data.resident import Samples

KEPT = 24
"""Files of features that are kept; the ones not used for longest are removed."""
CHUNK = 512


class FeatureCache:
    """The features of one set of samples under one set of parameters."""

    def __init__(self, feature_map: FeatureMap, params: Arrays, samples: Samples, key: str) -> None:
        """``key`` stands for the parameters, those inside the feature map included."""
        self._map, self._params, self._samples = feature_map, dict(params), samples
        shape = (len(samples), feature_map.width)
        self._codes, self._there = _open(f"{fingerprint(samples)}-{key[:24]}", shape)

    def codes(self, rows: Tensor) -> Codes:
        """Features of rows, computed where they are not there yet."""
        wanted = rows.numpy()
        missing = wanted[self._there[wanted] == 0]
        for at in range(0, missing.size, CHUNK):
            part = missing[at : at + CHUNK]
            self._codes[part] = transform(self._map, self._params, self._samples, torch.from_numpy(part))
            self._there[part] = 1
        return np.asarray(self._codes[wanted])


def fingerprint(samples: Samples) -> str:
    """A key for the bytes of the samples and what their numbers mean."""
    sha = hashlib.blake2b(digest_size=12)
    about = (samples.kind, samples.inputs.dtype, tuple(samples.inputs.shape), samples.vocabulary, samples.columns)
    sha.update(repr(about).encode())
    if samples.kind in ("vectors", "table"):
        sha.update(repr((samples.mean, samples.std)).encode())
    for part in torch.split(samples.inputs, 4096):
        sha.update(np.ascontiguousarray(part.numpy()).data)
    return sha.hexdigest()


def _open(key: str, shape: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
    root = cache_root() / "features"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root, key)
        codes = _mapped(root / f"{key}.codes", np.int16, shape)
        return codes, _mapped(root / f"{key}.there", np.uint8, shape[:1])
    except OSError:
        return np.zeros(shape, dtype=np.int16), np.zeros(shape[0], dtype=np.uint8)


def _mapped(path: Path, kind: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if size == 0:
        return np.zeros(shape, dtype=kind)
    with path.open("ab") as file:
        file.truncate(size)
    path.touch()
    return np.memmap(path, dtype=kind, mode="r+", shape=shape)


def _sweep(root: Path, key: str) -> None:
    """Remove the files that were not used for longest; a process that has one open keeps it."""
    found = sorted(root.glob("*.codes"), key=lambda path: path.stat().st_mtime)
    for path in found[: max(0, len(found) - KEPT)]:
        if path.stem != key:
            path.with_suffix(".there").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
