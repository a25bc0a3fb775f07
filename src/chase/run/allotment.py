"""``total_budget``: how many samples each client may ask for in a round, so that all together never exceed it.

What is left (the budget minus labels given and questions open) is divided evenly among the clients of a round. An order
that has not been answered yet, as in a federation with a slow site, keeps its share reserved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.run.client_counts import ClientCounts


def share_out(left: int, clients: Sequence[ClientId], round: int) -> dict[ClientId, int]:
    """Requests for each client: even shares, and the odd ones for other clients in every round."""
    each, odd = divmod(max(0, left), max(1, len(clients)))
    first = round * odd
    return {client: each + ((place - first) % len(clients) < odd) for place, client in enumerate(sorted(clients))}


class Allotment:
    """What may still be asked for, over the rounds of a run."""

    def __init__(self, total_budget: int, counts: ClientCounts) -> None:
        self._total, self._counts = total_budget, counts
        self._reserved: dict[ClientId, int] = {}

    def limit(self, orders: Mapping[ClientId, RoundOrder], none: bool = False) -> Mapping[ClientId, RoundOrder]:
        """The orders with the number that each client may ask for, ``none`` at all or as many as the total allows."""
        if none:
            return _with(orders, {})
        if not self._total or not orders:
            return orders
        round = next(iter(orders.values())).round
        left = self._total - self._counts.spent - sum(self._reserved.values())
        shares = share_out(left, list(orders), round)
        for client, share in shares.items():
            self._reserved[client] = max(share, self._reserved.get(client, 0))
        return _with(orders, shares)

    def answered(self, updates: Sequence[ClientUpdate]) -> None:
        """These clients have taken their turn: what they asked for is in the counts now."""
        for client in (client for update in updates for client in update.joint or (update.client,)):
            self._reserved.pop(client, None)


def _with(orders: Mapping[ClientId, RoundOrder], shares: Mapping[ClientId, int]) -> dict[ClientId, RoundOrder]:
    limited = {id(order): replace(order, allowances=shares) for order in orders.values()}  # engines share orders
    return {client: limited[id(order)] for client, order in orders.items()}
