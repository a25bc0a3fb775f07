"""How the training samples are divided among clients.

Every partition returns one sorted array of row numbers per client, no row in two of them except in
``shards_reference``. Rows without a label are spread evenly where a partition goes by labels. Written here
and not taken from flwr-datasets: see docs/decisions/0004-partitions.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.core.pools import SampleIds
from chase.core.randomness import rng

Labels = NDArray[np.int64]

LEAST = 10
"""Samples that a Dirichlet draw must leave every client."""
DIRICHLET_TRIES = 1000


class Parts(Sequence[SampleIds]):
    """The rows of every client as one array and its cuts: 100,000 clients cost no object each."""

    def __init__(self, rows: SampleIds, ends: SampleIds) -> None:
        self.rows, self.ends = rows, ends

    @classmethod
    def of(cls, parts: Sequence[SampleIds]) -> Parts:
        """The same as separate arrays."""
        if isinstance(parts, Parts):
            return cls(parts.rows, parts.ends)
        ends = np.cumsum([part.size for part in parts], dtype=np.int64)
        return cls(np.concatenate([*parts, np.empty(0, dtype=np.int64)]).astype(np.int64), ends)

    @property
    def sizes(self) -> SampleIds:
        """Rows per client."""
        return np.diff(self.ends, prepend=0)

    @property
    def owners(self) -> SampleIds:
        """The client of each of ``rows``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __len__(self) -> int:
        return int(self.ends.size)

    @overload
    def __getitem__(self, client: int) -> SampleIds: ...

    @overload
    def __getitem__(self, client: slice) -> list[SampleIds]: ...

    def __getitem__(self, client: int | slice) -> SampleIds | list[SampleIds]:
        if isinstance(client, slice):
            return [self[at] for at in range(*client.indices(len(self)))]
        if not -len(self) <= client < len(self):
            raise IndexError(client)
        client %= len(self)
        first = int(self.ends[client - 1]) if client else 0
        return self.rows[first : int(self.ends[client])]

    def digest(self, labels: Labels) -> str:
        """A fingerprint of who holds which row with which label."""
        sha = hashlib.sha256()
        for array in (self.ends, self.rows, labels[self.rows]):
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()


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
    return _with_unlabeled(parts, labels, draw)


def _with_unlabeled(parts: list[list[Labels]], labels: Labels, draw: np.random.Generator) -> list[SampleIds]:
    """Each client's rows as one sorted array, those without a label dealt out evenly."""
    unknown = draw.permutation(np.flatnonzero(labels < 0))
    dealt = np.array_split(unknown, len(parts))
    return [np.sort(np.concatenate([*p, more])).astype(np.int64) for p, more in zip(parts, dealt, strict=True)]


def dirichlet(labels: Labels, clients: int, alpha: float, seed: int, least: int = LEAST) -> list[SampleIds]:
    """Shares of each class ~ Dirichlet(alpha), self-balancing; drawn again until every client has ``least`` samples.

    Self-balancing: a client that has its even share of all samples takes no more. The shares of the
    others, scaled to one, are again Dirichlet(alpha), so they are drawn directly.
    """
    if alpha <= 0:
        raise DataError(f"alpha = {alpha}, but a Dirichlet distribution needs alpha > 0: small is uneven, 100 is even")
    known = np.flatnonzero(labels >= 0)
    if known.size < least * clients:
        raise DataError(
            f"{known.size} labelled samples cannot give {clients} clients at least {least} each: use fewer clients"
        )
    rows_of = {int(c): np.flatnonzero(labels == c) for c in np.unique(labels[known])}
    for attempt in range(DIRICHLET_TRIES):
        draw = rng(seed, "partition", "dirichlet", attempt)
        shares = _dirichlet_shares({c: rows.size for c, rows in rows_of.items()}, clients, alpha, draw)
        if np.sum(list(shares.values()), axis=0).min() >= least:
            parts: list[list[Labels]] = [[] for _ in range(clients)]
            for c, counts in shares.items():
                cuts = np.split(draw.permutation(rows_of[c]), np.cumsum(counts)[:-1])
                for part, rows in zip(parts, cuts, strict=True):
                    part.append(rows)
            return _with_unlabeled(parts, labels, draw)
    raise DataError(
        f"alpha = {alpha} left a client with fewer than {least} samples in {DIRICHLET_TRIES} draws: "
        "use a larger alpha or fewer clients"
    )


def _dirichlet_shares(
    class_sizes: Mapping[int, int], clients: int, alpha: float, draw: np.random.Generator
) -> dict[int, Labels]:
    """How many samples of each class every client takes (clients,), classes in random order."""
    even = sum(class_sizes.values()) / clients
    total = np.zeros(clients, dtype=np.int64)
    shares: dict[int, Labels] = {}
    for c in draw.permutation(list(class_sizes)):
        open_clients = np.flatnonzero(total < even)
        upto = np.rint(np.cumsum(draw.dirichlet(np.full(open_clients.size, alpha))) * class_sizes[c])
        upto[-1] = class_sizes[c]
        counts = np.zeros(clients, dtype=np.int64)
        counts[open_clients] = np.diff(upto, prepend=0).astype(np.int64)
        shares[int(c)] = counts
        total += counts
    return shares


def iid(labels: Labels, clients: int, seed: int) -> list[SampleIds]:
    """Stratified: equal numbers of every class a client, to within one, and equal sizes, to within one."""
    draw = rng(seed, "partition", "iid")
    rows = np.concatenate([draw.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)])
    dealt = draw.permutation(clients)
    each, more = divmod(rows.size, clients)
    table = np.full((each + 1, clients), np.iinfo(np.int64).max)  # dealt out in turn: column k is of client dealt[k]
    table.reshape(-1)[: rows.size] = rows
    parts = np.empty((clients, each + 1), dtype=np.int64)
    parts[dealt] = table.T
    parts.sort(axis=1)
    sizes = np.empty(clients, dtype=np.int64)
    sizes[dealt] = each + (np.arange(clients) < more)
    return [part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)]


def natural_owners(sizes: Sequence[int], clients: int, more_than: int, seed: int) -> SampleIds:
    """The owners that become clients: ``clients`` of those with more than ``more_than`` samples, seeded, sorted."""
    fit = np.flatnonzero(np.asarray(sizes, dtype=np.int64) > more_than)
    if fit.size < clients:
        which = f" with more than {more_than} samples" if more_than else ""
        raise DataError(
            f"clients = {clients}, but the data has {fit.size} owners{which}: use clients={fit.size} or fewer"
        )
    chosen = rng(seed, "partition", "natural").choice(fit, size=clients, replace=False)
    return np.sort(chosen).astype(np.int64)


def natural(groups: SampleIds, owners: SampleIds) -> list[SampleIds]:
    """The rows of each of these owners."""
    order = np.argsort(groups, kind="stable")
    first, last = (np.searchsorted(groups[order], owners, side=side) for side in ("left", "right"))
    return [np.sort(order[a:b]).astype(np.int64) for a, b in zip(first, last, strict=True)]


def shards_reference(labels: Labels, clients: int, classes_per_client: int, seed: int) -> list[SampleIds]:
    """As the paper's authors did it: clients share samples, and some samples belong to nobody.

    Rows sorted by label are cut into clients * C_k equal shards. Each client draws C_k distinct classes and
    then one random shard of each class's block, independently of the others. A shard belongs to the
    class of its middle row.
    """
    known = np.flatnonzero(labels >= 0)
    order = known[np.argsort(labels[known], kind="stable")]
    shards = clients * classes_per_client
    size = order.size // shards
    if size == 0:
        raise DataError(f"{order.size} labelled samples do not fill {shards} shards: use fewer clients or classes")
    cut = order[: shards * size].reshape(shards, size)
    owner_class = labels[cut[:, size // 2]]
    classes = np.unique(owner_class)
    if classes_per_client > classes.size:
        raise DataError(
            f"classes_per_client = {classes_per_client}, but the shards hold {classes.size} classes: "
            f"give at most {classes.size}"
        )
    parts = []
    for client in range(clients):
        draw = rng(seed, "partition", "shards", client)
        picked = draw.choice(classes, size=classes_per_client, replace=False)
        taken = [cut[draw.choice(np.flatnonzero(owner_class == c))] for c in picked]
        parts.append(np.sort(np.concatenate(taken)).astype(np.int64))
    return parts


def initial_labels(
    part: SampleIds, labels: Labels, fraction: float, per_class: int, draw: np.random.Generator
) -> SampleIds:
    """round(fraction * n) rows at random; with ``per_class``, at least that many of each class held."""
    known = part[labels[part] >= 0]
    count = min(known.size, round(fraction * part.size))
    order = draw.permutation(known)
    first = [order[labels[order] == c][:per_class] for c in np.unique(labels[known])] if per_class else []
    if not first:
        return np.sort(order[:count])
    sure = np.concatenate(first)
    rest = order[~np.isin(order, sure)]
    return np.sort(np.concatenate([sure, rest[: max(0, count - sure.size)]]))


def some_rows(part: SampleIds, share: float, seed: int, client: int) -> SampleIds:
    """A seeded share of a client's rows, at least one; sorted as they were."""
    if share == 1.0 or part.size == 0:
        return part
    kept = rng(seed, "data-share", client).choice(part, size=max(1, round(share * part.size)), replace=False)
    return np.sort(kept).astype(np.int64)
