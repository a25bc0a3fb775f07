"""The server's side of a round: orders out, labelled-size-weighted average in."""

from __future__ import annotations

from collections.abc import Sequence

from chase.core.errors import UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.randomness import rng
from chase.core.weights import Weights, average, check_fits
from chase.settings import Settings


def participants(settings: Settings, round: int) -> list[ClientId]:
    """The clients that take part in a round, each by chance, in order of their ids."""
    if settings.take_part >= 1.0:
        return list(range(settings.clients))
    return [
        client
        for client in range(settings.clients)
        if rng(settings.seed, "take-part", round, client).random() < settings.take_part
    ]


def check_update(update: ClientUpdate, order: RoundOrder) -> None:
    """Refuse an update that does not fit the order it answers."""
    who = f"update of client {update.client} for round {order.round}"
    if update.round != order.round:
        raise UpdateError(f"{who}: it answers round {update.round}")
    if update.num_labeled < 0:
        raise UpdateError(f"{who}: its labelled count is {update.num_labeled}")
    check_fits(update.weights, order.weights, who)


def fed_avg(updates: Sequence[ClientUpdate], weights: Weights) -> Weights:
    """The mean of the updates by labelled-set size, in client-id order; without any, the model as it was."""
    counted = sorted((u for u in updates if u.num_labeled > 0), key=lambda u: u.client)
    if not counted:
        return weights
    return average([(u.weights, float(u.num_labeled)) for u in counted])


class Server:
    """Holds the global model."""

    def __init__(self, run: str, settings: Settings, weights: Weights) -> None:
        self.run, self.settings, self.weights = run, settings, weights

    def orders(self, round: int) -> dict[ClientId, RoundOrder]:
        """What each client that takes part is asked to do."""
        order = RoundOrder(self.run, round, self.settings.seed, self.weights)
        return dict.fromkeys(participants(self.settings, round), order)

    def aggregate(self, orders: dict[ClientId, RoundOrder], updates: Sequence[ClientUpdate]) -> None:
        """Average the updates into the global model."""
        answered: set[ClientId] = set()
        for update in updates:
            if update.client not in orders:
                raise UpdateError(f"update of client {update.client} answers no order of this round")
            if update.client in answered:
                raise UpdateError(f"update of client {update.client} came twice in this round")
            answered.add(update.client)
            check_update(update, orders[update.client])
        self.weights = fed_avg(updates, self.weights)
