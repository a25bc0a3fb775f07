"""The files of a site that hold arrays, each replaced whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chase.client.state import ClientState
from chase.core.pools import SampleIds
from chase.core.weights import Array, Arrays, read, to_bytes
from chase.home.home import write_durably


def write_arrays(path: Path, name: str, arrays: Arrays) -> None:
    """Write one of a site's files."""
    write_durably(path / f"{name}.safetensors", to_bytes(arrays))


def read_arrays(path: Path, name: str) -> dict[str, Array]:
    """Read one of a site's files."""
    return read(path / f"{name}.safetensors")


def write_start(path: Path, start: ClientState) -> None:
    """Write the state before the first turn."""
    labeled = start.pools.labeled
    write_arrays(path, "start", {"ids": start.ids, "labeled": labeled, "labels": start.labels_of(labeled)})


def read_start(path: Path) -> ClientState:
    """The state before the first turn."""
    arrays = read_arrays(path, "start")
    return ClientState.start(arrays["ids"], arrays["labeled"], arrays["labels"])


@dataclass(frozen=True)
class Holdout:
    """Labelled samples that are never trained on.

    Their ids are negative: no pool can hold one, and none is taken for a sample that is trained on.
    """

    ids: SampleIds
    inputs: Array
    labels: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def new(cls, inputs: Array, labels: NDArray[np.int64], names: Sequence[str] | None = None) -> Holdout:
        """The held-out part of a new site; without names of their own the samples are called by number."""
        called = [f"held-out-{row}" for row in range(labels.size)] if names is None else names
        return cls(-1 - np.arange(labels.size, dtype=np.int64), inputs, labels, tuple(called))

    def without(self, ids: SampleIds) -> Holdout:
        """Less these."""
        stay = ~np.isin(self.ids, ids)
        names = tuple(name for name, here in zip(self.names, stay.tolist(), strict=True) if here)
        return Holdout(self.ids[stay], self.inputs[stay], self.labels[stay], names)

    def write(self, path: Path) -> None:
        """Write it; a site with nothing held out has no such file."""
        if not self.ids.size:
            (path / "holdout.safetensors").unlink(missing_ok=True)
            return
        names = np.frombuffer(json.dumps(self.names).encode(), dtype=np.uint8)
        arrays = {"ids": self.ids, "inputs": self.inputs, "labels": self.labels, "names": names}
        write_arrays(path, "holdout", arrays)

    @classmethod
    def read(cls, path: Path) -> Holdout | None:
        """The held-out part of a site, if it has one; a file of an earlier version has no names."""
        if not (path / "holdout.safetensors").is_file():
            return None
        arrays = read_arrays(path, "holdout")
        if "names" not in arrays:
            return cls.new(arrays["inputs"], arrays["labels"])
        names = tuple(json.loads(arrays["names"].tobytes()))
        return cls(arrays["ids"], arrays["inputs"], arrays["labels"], names)
