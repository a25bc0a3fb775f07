"""How the training samples are divided among clients.

Every partition returns one sorted array of row numbers per client, no row in two of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.core.pools import SampleIds
from chase.core.randomness import rng

Labels = NDArray[np.int64]


def by_classes(labels: Labels, clients: int, classes_per_client: int, seed: int) -> list[SampleIds]:
    """C_k classes a client: every class is held (if the places suffice), each split evenly among its holders.

    Places are dealt to the client that is next, from the classes with most places left, ties by the
    seeded generator, so no client draws a class twice.
    """
    classes = np.unique(labels[labels >= 0])
    if classes_per_client > classes.size:
        raise DataError(
            f"classes_per_client = {classes_per_client}, but the data has {classes.size} classes: "
            f"give at most {classes.size}"
        )
    draw = rng(seed, "partition", "classes")
    places = clients * classes_per_client
    left = np.full(classes.size, places // classes.size)
    left[draw.permutation(classes.size)[: places % classes.size]] += 1
    holders: list[list[int]] = [[] for _ in classes]
    for client in draw.permutation(clients):
        tie = draw.random(classes.size)
        for c in np.lexsort((tie, -left))[:classes_per_client]:
            holders[c].append(int(client))
            left[c] -= 1
    parts: list[list[Labels]] = [[] for _ in range(clients)]
    for c, owners in zip(classes, holders, strict=True):
        rows = draw.permutation(np.flatnonzero(labels == c))
        for owner, rows_of_owner in zip(owners, np.array_split(rows, max(1, len(owners))), strict=False):
            parts[owner].append(rows_of_owner)
    return [np.sort(np.concatenate(p)).astype(np.int64) for p in parts]


def initial_labels(
    part: SampleIds, labels: Labels, fraction: float, per_class: int, draw: np.random.Generator
) -> SampleIds:
    """round(fraction * n) rows at random; with ``per_class``, at least that many of each class held."""
    known = part[labels[part] >= 0]
    count = min(known.size, round(fraction * part.size))
    order = draw.permutation(known)
    first = [order[labels[order] == c][:per_class] for c in np.unique(labels[known])] if per_class else []
    sure = np.concatenate(first) if first else np.empty(0, dtype=np.int64)
    rest = order[~np.isin(order, sure)]
    return np.sort(np.concatenate([sure, rest[: max(0, count - sure.size)]]))
