"""The server of a network whose last layer is solved: ``head = "closed-form"``.

Two models are kept. ``trained`` is the average that clients train on, with the last layer that training gave it: the
same as without this setting. The model of the run, which is scored, saved and exported, has the features that clients
received and measured in this round, and the head solved from their sums; so it is one round of training behind.

Clients that sat out are missing in a round's sums: earlier sums count on with the share of clients that were missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chase.client.solved_head import HEAD_SITES, HEAD_SUM, SOLVED, with_linear_head
from chase.closed_form.model import build_model
from chase.closed_form.sums import Sums
from chase.core.errors import UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Arrays, Weights, check_fits, part_of, prefixed, without
from chase.models.catalog import NetSpec
from chase.server.aggregation import Mean
from chase.server.head import NotEnough, solved_head
from chase.server.server import Server
from chase.settings import Settings


class SolvedHeadServer(Server):
    """Averages networks like the plain server, and solves a head for the features that were sent out."""

    def __init__(self, run: str, settings: Settings, weights: Weights, extras: Arrays, spec: NetSpec) -> None:
        super().__init__(run, settings, weights, extras, spec)
        with_linear_head(build_model(spec, settings.seed))
        self._trained: Weights = dict(weights)
        self._head = {"head.weight": weights["head.weight"], "head.bias": weights["head.bias"]}
        self._sums: dict[str, Array] = {}

    def orders(self, round: int) -> dict[ClientId, RoundOrder]:
        """The averaged network, and beside it the head that was solved last."""
        found = super().orders(round)
        sent: dict[int, RoundOrder] = {}
        for order in found.values():
            if id(order) not in sent:
                extras = {**order.extras, **prefixed(SOLVED, self._head)}
                sent[id(order)] = replace(order, weights=self._trained, extras=extras)
        return {client: sent[id(order)] for client, order in found.items()}

    def aggregate(
        self, orders: Mapping[ClientId, RoundOrder], updates: Sequence[ClientUpdate], mean: Mean | None = None
    ) -> None:
        """Average the networks; solve the head of the features that were sent out."""
        ordered = sorted(updates, key=lambda update: update.client)
        plain = [replace(u, extras=without(u.extras, HEAD_SUM)) for u in ordered]
        published, measured = self.weights, self._trained
        self.weights = self._trained
        try:
            super().aggregate(orders, plain, mean)
            self._trained = self.weights
        finally:
            self.weights = published
        self._add([update for update in ordered if part_of(update.extras, HEAD_SUM)])
        if self._sums:
            self._solve()
        self.weights = {**measured, **self._head}

    def _add(self, updates: Sequence[ClientUpdate]) -> None:
        """The sums of this round in client order, and of earlier ones for the clients that are missing."""
        sent = sum(update.metrics.get(HEAD_SITES, 1.0) for update in updates)
        absent = max(0.0, 1.0 - sent / self.settings.clients)
        total = {name: array * absent for name, array in self._sums.items()} if absent else {}
        for update in updates:
            part = part_of(update.extras, HEAD_SUM)
            if total:
                check_fits(part, total, f"update of client {update.client} for round {update.round}")
            total = {name: total[name] + array if total else array for name, array in part.items()}
        self._sums = total

    def _solve(self) -> None:
        try:
            found = solved_head(Sums.from_arrays(self._sums), self.settings.ridge or None)
        except (NotEnough, UpdateError) as error:  # training is not affected: the head before stays
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return
        self.facts, self._head = found.facts, found.weights

    def to_arrays(self) -> dict[str, Array]:
        """The model of the run, the average that training continues with, and the sums."""
        arrays = super().to_arrays() | prefixed("trained/", self._trained) | prefixed("head_sums/", self._sums)
        return arrays | prefixed("solved/", self._head)

    def restore(self, arrays: Arrays) -> None:
        """Continue from what ``to_arrays`` gave."""
        super().restore(arrays)
        self._trained, self._sums = part_of(arrays, "trained/"), part_of(arrays, "head_sums/")
        self._head = part_of(arrays, "solved/")


def check_head_sums(update: ClientUpdate, order: RoundOrder, who: str) -> None:
    """Refuse sums that do not fit the head of the order; no sums at all are fine."""
    part = part_of(update.extras, HEAD_SUM)
    classes, width = order.weights["head.weight"].shape
    if not part:
        return
    check_fits(part, Sums.empty(width, classes).to_arrays(), who)
    if (part["counts"] < 0).any() or part["counts"].sum() > update.num_labeled:
        raise UpdateError(f"{who}: its sums count {part['counts'].sum():g} labels, it has {update.num_labeled}")
