"""The pools of one client, and the only moves between them.

Every sample is in exactly one pool. A move takes ids from where they must be and returns new
pools; a move from anywhere else is refused with the ids that do not fit.

    unlabeled --ask--> asked --label--> labeled
    asked --give_back--> unlabeled          (nobody answered in time)
    asked | unlabeled | dormant | labeled --put_aside--> set aside   (a person cannot tell)
    unlabeled --freeze--> dormant --awaken--> unlabeled
    unlabeled | dormant | set aside --volunteer--> labeled   (a label nobody waits for any more)
    (new) --add--> unlabeled,   any --forget--> (gone)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chase.core.errors import PoolError

SampleIds = NDArray[np.int64]

NAMES = ("labeled", "unlabeled", "asked", "dormant", "set_aside")


def in_words(pool: str) -> str:
    """The name of a pool as people read it."""
    return {"labeled": "labelled", "unlabeled": "unlabelled", "set_aside": "set aside"}.get(pool, pool)


def as_ids(ids: ArrayLike) -> SampleIds:
    """Ids as a sorted int64 array; a repeated id is refused."""
    array = np.sort(np.asarray(ids, dtype=np.int64).reshape(-1))
    if array.size > 1 and (array[1:] == array[:-1]).any():
        raise PoolError(f"an id is given twice: {_few(array[1:][array[1:] == array[:-1]])}")
    return array


def is_in(ids: SampleIds, pool: SampleIds) -> NDArray[np.bool_]:
    """For each id, whether the sorted pool holds it."""
    if pool.size == 0:
        return np.zeros(ids.shape, dtype=np.bool_)
    at = np.searchsorted(pool, ids)
    at[at == pool.size] = 0
    found: NDArray[np.bool_] = pool[at] == ids
    return found


def without(pool: SampleIds, ids: SampleIds) -> SampleIds:
    """The pool (sorted) less the ids (sorted)."""
    return pool[~is_in(pool, ids)]


def together(pool: SampleIds, ids: SampleIds) -> SampleIds:
    """The pool and the ids as one sorted array (they share nothing)."""
    return np.sort(np.concatenate([pool, ids]))


def _few(ids: SampleIds) -> str:
    shown = ", ".join(str(i) for i in ids[:5])
    return f"{shown}, ... ({ids.size} in all)" if ids.size > 5 else shown


def _empty() -> SampleIds:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Pools:
    """Sorted ids per pool; build with ``Pools.start`` and change by moves only."""

    labeled: SampleIds = field(default_factory=_empty)
    unlabeled: SampleIds = field(default_factory=_empty)
    asked: SampleIds = field(default_factory=_empty)
    dormant: SampleIds = field(default_factory=_empty)
    set_aside: SampleIds = field(default_factory=_empty)

    @classmethod
    def start(cls, *, labeled: ArrayLike, unlabeled: ArrayLike) -> Pools:
        """The pools before the first turn."""
        pools = cls(labeled=as_ids(labeled), unlabeled=as_ids(unlabeled))
        pools.check()
        return pools

    def __iter__(self) -> Iterator[tuple[str, SampleIds]]:
        return ((name, getattr(self, name)) for name in NAMES)

    def sizes(self) -> dict[str, int]:
        """How many samples each pool holds."""
        return {name: int(ids.size) for name, ids in self}

    def all_ids(self) -> SampleIds:
        """Every id of this client, sorted."""
        return np.sort(np.concatenate([ids for _, ids in self]))

    def check(self) -> None:
        """Refuse pools in which a sample is twice; also used on state that is read back."""
        as_ids(np.concatenate([ids for _, ids in self]))

    def _move(self, verb: str, ids: ArrayLike, source: str, target: str) -> Pools:
        moved = as_ids(ids)
        if moved.size == 0:
            return self
        pool: SampleIds = getattr(self, source)
        stray = moved[~is_in(moved, pool)]
        if stray.size:
            where = source.replace("_", " ")
            raise PoolError(f"cannot {verb} {_few(stray)}: not in the pool '{where}' ({pool.size} there)")
        changed = {source: without(pool, moved), target: together(getattr(self, target), moved)}
        return replace(self, **changed)

    def ask(self, ids: ArrayLike) -> Pools:
        """unlabeled -> asked."""
        return self._move("ask for", ids, "unlabeled", "asked")

    def label(self, ids: ArrayLike) -> Pools:
        """asked -> labeled."""
        return self._move("label", ids, "asked", "labeled")

    def give_back(self, ids: ArrayLike) -> Pools:
        """asked -> unlabeled."""
        return self._move("give back", ids, "asked", "unlabeled")

    def put_aside(self, ids: ArrayLike) -> Pools:
        """asked (or, said late, unlabeled, dormant or labeled) -> set aside."""
        return self._move_from_any("set aside", ids, ("asked", "unlabeled", "dormant", "labeled"), "set_aside")

    def freeze(self, ids: ArrayLike) -> Pools:
        """unlabeled -> dormant."""
        return self._move("freeze", ids, "unlabeled", "dormant")

    def awaken(self, ids: ArrayLike) -> Pools:
        """dormant -> unlabeled."""
        return self._move("awaken", ids, "dormant", "unlabeled")

    def volunteer(self, ids: ArrayLike) -> Pools:
        """unlabeled, dormant or set aside -> labeled: a label that nobody waits for any more."""
        return self._move_from_any("label", ids, ("unlabeled", "dormant", "set_aside"), "labeled")

    def _move_from_any(self, verb: str, ids: ArrayLike, sources: tuple[str, ...], target: str) -> Pools:
        rest, pools = as_ids(ids), self
        for source in sources:
            here = rest[is_in(rest, getattr(pools, source))]
            pools = pools._move(verb, here, source, target)
            rest = without(rest, here)
        if rest.size:
            where = ", ".join(source.replace("_", " ") for source in sources)
            raise PoolError(f"cannot {verb} {_few(rest)}: in none of the pools {where}")
        return pools

    def add(self, ids: ArrayLike) -> Pools:
        """(new) -> unlabeled."""
        new = as_ids(ids)
        twice = new[is_in(new, self.all_ids())]
        if twice.size:
            raise PoolError(f"cannot add {_few(twice)}: already in a pool")
        return replace(self, unlabeled=together(self.unlabeled, new))

    def forget(self, ids: ArrayLike) -> Pools:
        """any pool -> gone."""
        gone = as_ids(ids)
        stray = gone[~is_in(gone, self.all_ids())]
        if stray.size:
            raise PoolError(f"cannot forget {_few(stray)}: not in any pool")
        return Pools(**{name: without(pool, gone) for name, pool in self})
