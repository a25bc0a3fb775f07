"""Who holds what before the first round: samples, classes and initial labels per client, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.pools import SampleIds
from chase.data.partition import Parts

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """Counts of a simulation's clients; made with the truth, so for the eyes of the experimenter only."""

    classes: tuple[str, ...]
    clients: tuple[str, ...]
    """A name per client: its number, or its owner's name."""
    held: Counts
    """(clients, classes): samples of each class."""
    labeled: Counts
    """(clients, classes): initial labels of each class."""
    unknown: Counts
    """(clients,): samples whose class nobody knows."""
    partition: str = ""
    """A fingerprint of who holds which sample."""

    @property
    def samples(self) -> Counts:
        """Samples per client."""
        return np.asarray(self.held.sum(axis=1) + self.unknown, dtype=np.int64)

    @property
    def classes_held(self) -> Counts:
        """Classes a client."""
        return np.asarray((self.held > 0).sum(axis=1), dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain values for coverage.json."""
        return {
            "classes": list(self.classes),
            "clients": list(self.clients),
            "held": self.held.tolist(),
            "labeled": self.labeled.tolist(),
            "unknown": self.unknown.tolist(),
            "partition": self.partition,
        }


def coverage(
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    parts: Sequence[SampleIds],
    labeled: Sequence[SampleIds],
    names: Sequence[str] = (),
) -> Coverage:
    """Count the classes in every client's rows and among its initial labels."""
    columns = len(classes) + 1  # the first is for rows whose class nobody knows

    def count(some: Parts) -> Counts:
        cells = some.owners * columns + np.maximum(labels[some.rows], -1) + 1
        return np.bincount(cells, minlength=len(some) * columns).reshape(len(some), columns)

    all_parts = Parts.of(parts)
    held, known = count(all_parts), count(Parts.of(labeled))
    shown = tuple(names) or tuple(str(client) for client in range(len(parts)))
    return Coverage(classes, shown, held[:, 1:], known[:, 1:], held[:, 0], all_parts.digest(labels))


def _some(names: Sequence[str], limit: int = 8) -> str:
    return ", ".join(name if name.strip() else repr(name) for name in names[:limit]) + (
        f", ... ({len(names)} in all)" if len(names) > limit else ""
    )


def warnings(table: Coverage, batch_size: int) -> list[str]:
    """What an experimenter should know before the run; empty when all is well."""
    found: list[str] = []
    names = np.array(table.classes)
    nobody = table.held.sum(axis=0) == 0
    unlabeled = ~nobody & (table.labeled.sum(axis=0) == 0)
    if nobody.any() and not table.unknown.any():
        found.append(f"no client holds any sample of: {_some(names[nobody].tolist())}")
    elif nobody.any() and not nobody.all():  # the others may be among those that have no label yet
        found.append(f"no sample has a label yet of: {_some(names[nobody].tolist())}")
    if unlabeled.any():
        found.append(f"no client has an initial label of: {_some(names[unlabeled].tolist())}")
    clients = np.array(table.clients)
    without = table.labeled.sum(axis=1) == 0
    small = ~without & (table.samples < batch_size)
    if without.any():
        found.append(
            f"no initial label, so no training until someone labels: client {_some(clients[without].tolist())}"
        )
    if small.any():
        found.append(f"fewer samples than one batch of {batch_size}: client {_some(clients[small].tolist())}")
    return found
