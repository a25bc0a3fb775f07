"""The data of jobs on a cluster: decoded here, known by a name that its content decides, sent to nodes without it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from chase.data import sources
from chase.data.cache import entry_path
from chase.settings import Settings

PIECE = 32 * 2**20
"""Bytes of one object in the cluster's store."""

Pieces = dict[str, list[Any]]
"""By file of an entry of the cache: references to its pieces."""


class DataForNodes:
    """Hands out the decoded data of jobs; each data set goes into the cluster's store once, when a node lacks it."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._entries: dict[tuple[str, str, str], str] = {}
        self._sent: dict[str, Pieces] = {}
        self._weights: dict[str, tuple[str, Any]] = {}

    def entry(self, settings: Settings) -> str:
        """The cache's name for the data of a job; empty where each node makes it by itself (digits)."""
        key = (settings.data, settings.data_dir, settings.data_options.key())
        if key not in self._entries:
            found = sources.decoded(settings.data, settings.data_dir, settings.data_options)
            self._entries[key] = "" if found is None else found.entry
        return self._entries[key]

    def weights(self, settings: Settings) -> tuple[str, Any]:
        """The checksum of the file of ``init_weights`` and a reference to its content; both empty without one."""
        path = settings.init_weights
        if not path or not os.path.isfile(path):  # a job says itself that the file is missing
            return "", None
        if path not in self._weights:
            content = Path(path).read_bytes()
            self._weights[path] = hashlib.sha256(content).hexdigest(), self._ray.put(content)
        return self._weights[path]

    def pieces(self, entry: str) -> Pieces:
        """References to the files of an entry."""
        if entry not in self._sent:
            self._sent[entry] = {}
            for file in sorted(p for p in entry_path(entry).iterdir() if p.is_file()):
                octets = np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))
                cuts = range(0, octets.size, PIECE)
                self._sent[entry][file.name] = [self._ray.put(octets[at : at + PIECE]) for at in cuts]
        return self._sent[entry]
