"""Updates of an open round: up to a bound in memory, the others on disk until the round is closed.

How far an update may change the model depends on the median of all of them, so none can be added to the sum before the
round is closed. Then they are added one by one, in blocks of clients, as in a simulation.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from chase.core.files import writing
from chase.core.messages import ClientId, ClientUpdate
from chase.core.weights import Arrays, Weights, part_of, prefixed, read, to_bytes
from chase.server.intake import without_arrays
from chase.server.robust import scaled_change

IN_MEMORY = 256 * 2**20
"""Bytes of updates that an open round holds in memory."""


def size_of(update: ClientUpdate) -> int:
    """Bytes of an update's arrays."""
    return sum(a.nbytes for arrays in (update.weights, update.extras) for a in arrays.values())


@dataclass
class Waiting:
    """Keeps the arrays of updates; a directory is made when memory does not hold them."""

    most: int = field(default_factory=lambda: IN_MEMORY)
    held: int = 0
    """Bytes in memory."""
    _files: dict[ClientId, Path] = field(default_factory=dict)
    _directory: tempfile.TemporaryDirectory[str] | None = None
    _cuts: dict[ClientId, tuple[Weights, float]] = field(default_factory=dict)

    def keep(self, update: ClientUpdate) -> ClientUpdate:
        """The update as it is, or without its arrays where they are on disk now."""
        size = size_of(update)
        if self.held + size <= self.most:
            self.held += size
            return update
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="chase-round-")
        path = Path(self._directory.name) / f"{update.client}.safetensors"
        arrays: Arrays = prefixed("w.", update.weights) | prefixed("x.", update.extras)
        with writing(path):
            path.write_bytes(to_bytes(arrays))
        self._files[update.client] = path
        return without_arrays(update)

    def cut(self, update: ClientUpdate, start: Weights, factor: float) -> ClientUpdate:
        """The update with its change from ``start`` made smaller, now or when it is read."""
        if update.client in self._files:
            self._cuts[update.client] = start, factor
            return update
        return replace(update, weights=scaled_change(start, update.weights, factor))

    def whole(self, update: ClientUpdate) -> ClientUpdate:
        """The update with its arrays."""
        path = self._files.get(update.client)
        if path is None:
            return update
        arrays = read(path)
        weights: Weights = part_of(arrays, "w.")
        if update.client in self._cuts:
            start, factor = self._cuts[update.client]
            weights = scaled_change(start, weights, factor)
        return replace(update, weights=weights, extras=part_of(arrays, "x."))

    def close(self) -> None:
        """Remove what is on disk."""
        if self._directory is not None:
            self._directory.cleanup()
        self._files, self._directory = {}, None
