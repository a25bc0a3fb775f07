"""Freeze, awaken, watch (the paper's Alg. 2), as moves on the pools.

Frozen: watched, not asked for, EV 0. Awakened: when fewer than B' unlabelled samples remain, a
random ceil(beta * |dormant|) returns. Watched: a random subset of the unlabelled, all in the first
turn and when fewer remain. The paper writes "N >= N_s" for drawing a subset; at N = N_s both
readings watch all.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from chase.core.pools import Pools, SampleIds, is_in


def freeze(pools: Pools, watched: SampleIds, watched_ev: NDArray[np.int64]) -> Pools:
    """Watched samples of EV 0 that are still unlabelled go dormant."""
    calm = watched[watched_ev == 0]
    return pools.freeze(calm[is_in(calm, pools.unlabeled)])


def awaken(pools: Pools, below: float, beta: float, rng: np.random.Generator) -> Pools:
    """If fewer than ``below`` are unlabelled, a random ceil(beta * |dormant|) returns."""
    if pools.unlabeled.size >= below or pools.dormant.size == 0:
        return pools
    count = math.ceil(beta * pools.dormant.size - 1e-9)  # 0.55 * 100 is 55.00000000000001 in binary
    return pools.awaken(rng.choice(pools.dormant, size=count, replace=False))


def watch(
    unlabeled: SampleIds, first_turn: bool, subset_size: int | None, first_watch: int, rng: np.random.Generator
) -> SampleIds:
    """The samples to watch this turn, sorted; ``subset_size`` None watches all, ``first_watch`` 0 is no cap."""
    limit = (first_watch or None) if first_turn else subset_size
    if limit is None or unlabeled.size <= limit:
        return unlabeled
    return np.sort(rng.choice(unlabeled, size=limit, replace=False))
