"""Takes the updates of a round in as they come, so that they are not all held until the last one is there.

An update waits only for the others of its block of clients; then the block is added to a running sum and its
arrays are dropped. What is said of the clients (labelled counts, metrics) stays. The sums are the same in whatever
order updates come and wherever blocks were added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from chase.client.contribute import SUM
from chase.core.errors import UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Arrays, part_of, prefixed, without
from chase.server.aggregation import BlockSum, Mean, RunningSum, Summand, block_sum, in_blocks
from chase.server.closed_form import MERGED, check_answer_fits, sums_only
from chase.server.server import check_asked
from chase.settings import Settings

EXTRAS = "extras/"
"""Prefix of the arrays that travel beside the weights, in a sum of both."""


def adds_up(settings: Settings) -> bool:
    """Whether an update can be added as it comes: not where each one is needed, or a weight depends on the others."""
    alone = settings.client_weights != "shuffled" and settings.most_share >= 1.0
    averaged = settings.combine == "mean" and settings.learner == "network" and settings.head == "trained"
    return settings.form != "isolated" and alone and averaged


def extras_of(order: RoundOrder) -> dict[str, Array]:
    """What an update must bring beside its weights."""
    return without(order.extras, "start.")


def summed_arrays(update: ClientUpdate) -> dict[str, Array]:
    """Weights and what travels beside them, as one."""
    return {**update.weights, **prefixed(EXTRAS, update.extras)}


def weighted(update: ClientUpdate, settings: Settings) -> Summand:
    """The update as a part of a sum."""
    weight = 1.0 if settings.client_weights == "equal" else float(update.num_labeled)
    return update.client, summed_arrays(update), weight


def without_arrays(update: ClientUpdate) -> ClientUpdate:
    """What is said of the client."""
    return replace(update, weights={}, extras={})


def blocks_of(clients: Sequence[ClientId]) -> dict[int, list[ClientId]]:
    """The clients of a round by block, both in order."""
    found: dict[int, list[ClientId]] = {}
    for client, block in in_blocks(clients).items():
        found.setdefault(block, []).append(client)
    return found


class Intake:
    """The updates of one round."""

    def __init__(self, settings: Settings, orders: Mapping[ClientId, RoundOrder]) -> None:
        self._settings, self._orders = settings, orders
        self._adds_up = adds_up(settings)
        self._block = in_blocks(orders)
        self._missing = {block: set(clients) for block, clients in blocks_of(list(orders)).items()}
        self._waiting: dict[int, list[Summand]] = {}
        self._sum = RunningSum(self._missing)
        self._updates: dict[ClientId, ClientUpdate] = {}
        self._merges = settings.learner == "closed-form" and settings.form != "isolated"
        self._merged: dict[str, Array] = {}
        self._merged_clients: list[ClientId] = []

    def take(self, update: ClientUpdate) -> None:
        """One client's update, checked."""
        check_asked(update.client, self._orders, self._updates)
        order = self._orders[update.client]
        check_answer_fits(update, order)
        if self._merges:
            update = self._merge(update) if order.round >= 1 else self._merge_whole(update)
        if not self._adds_up:
            self._updates[update.client] = update
            return
        self._updates[update.client] = without_arrays(update)
        block = self._block[update.client]
        if update.num_labeled > 0:
            self._waiting.setdefault(block, []).append(weighted(update, self._settings))
        self._missing[block].discard(update.client)
        if not self._missing[block]:
            parts = self._waiting.pop(block, [])
            self._add(block, block_sum(block, parts) if parts else None)

    def _merge(self, update: ClientUpdate) -> ClientUpdate:
        """Add a client's sums, which are exact in any order, to those of the others; what is left of the update.

        One that removes labels stays by itself: the server has to see whether it has them.
        """
        change = sums_only(update.extras)
        if not change or (change[f"{SUM}counts"] < 0).any():
            return update
        self._merged_clients.append(update.client)
        return self._without(update, change)

    def _merge_whole(self, update: ClientUpdate) -> ClientUpdate:
        """Of what features are fitted from, add the arrays of whole numbers: only their sums are exact in any order."""
        change = sums_only(update.extras)
        return self._without(update, {name: a for name, a in change.items() if (a == np.rint(a)).all()})

    def _without(self, update: ClientUpdate, change: Arrays) -> ClientUpdate:
        """Add arrays to those of the others; what is left of the update."""
        for name, array in change.items():
            if name in self._merged:
                self._merged[name] += array
            else:
                self._merged[name] = np.array(array)
        return replace(update, extras={name: a for name, a in update.extras.items() if name not in change})

    def take_block(self, block: int, part: BlockSum | None, said: Sequence[ClientUpdate]) -> None:
        """A block that was added up elsewhere (None: none of its clients has labels), and what its clients said."""
        for update in said:
            check_asked(update.client, self._orders, self._updates)
            self._updates[update.client] = update
            self._missing[block].discard(update.client)
        if self._missing[block]:
            raise UpdateError(f"block {block} of the clients arrived without {len(self._missing[block])} of them")
        self._add(block, part)

    def _add(self, block: int, part: BlockSum | None) -> None:
        if part is None:
            self._sum.skip(block)
        else:
            self._sum.add(part)

    @property
    def updates(self) -> list[ClientUpdate]:
        """All that came, in id order; without their arrays where they are in ``mean``."""
        return [self._updates[client] for client in sorted(self._updates)]

    def mean(self) -> Mean | None:
        """The weighted mean of the round, empty if nobody has labels; None where updates were kept.

        Of the closed-form learner: the sums that were added as they came, and whose they are.
        """
        if self._merged:
            return {}, {**self._merged, MERGED: np.array(sorted(self._merged_clients))}
        counted = [client for client, update in self._updates.items() if update.num_labeled > 0]
        if not self._adds_up:
            return None
        if not counted:
            return {}, {}
        for block in sorted(self._waiting):  # some of its clients did not answer
            self._sum.add(block_sum(block, self._waiting.pop(block)))
        order = self._orders[counted[0]]
        like = {**order.weights, **prefixed(EXTRAS, extras_of(order))}
        return split_extras(self._sum.mean(like))


def split_extras(arrays: Arrays) -> Mean:
    """What ``summed_arrays`` put together."""
    return without(arrays, EXTRAS), part_of(arrays, EXTRAS)
