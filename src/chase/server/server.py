"""The server's side of a round: orders out, weighted average in.

The form of a run (the setting ``form``) is decided here alone: which rounds begin with a fresh
start, in which a client asks, and which are tracked.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chase.closed_form.model import ClosedFormNet, build_model
from chase.core.errors import SettingsError, UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.randomness import fold, rng
from chase.core.weights import Array, Arrays, Weights, check_fits, part_of, prefixed
from chase.learning.loss_prediction import new_predictor, to_extras, with_taps
from chase.models.catalog import NetSpec
from chase.models.net import get_weights, start_from
from chase.server.aggregation import Mean, ServerPlan, Summand, average, client_weights, find_server
from chase.server.robust import capped_shares, median, trimmed_mean
from chase.settings import Settings

UNEVEN = 2.0
"""A client with more than this many times an equal share of the average is worth a warning."""
UNEVEN_SHARE = "more than twice an equal share"
"""Part of that warning, by which it is known again when a run is resumed."""


def participants(settings: Settings, round: int) -> list[ClientId]:
    """The clients that take part in a round: an exact share is drawn, then each comes by chance; in id order."""
    clients: list[ClientId] = present(settings, round).tolist()
    if settings.share_of_clients < 1.0:
        count = max(1, math.floor(settings.share_of_clients * settings.clients + 0.5))
        draw = rng(settings.seed, "share-of-clients", round)
        among = clients if settings.away else settings.clients
        clients = sorted(draw.choice(among, size=min(count, len(clients)), replace=False).tolist())
    if settings.take_part >= 1.0:
        return clients
    return [c for c in clients if rng(settings.seed, "take-part", round, c).random() < settings.take_part]


def present(settings: Settings, round: int) -> NDArray[np.int64]:
    """The clients that are there in a round, where clients come and go (``away``); in id order.

    Each client's rounds are cut into stays of ``stay`` rounds, from a first cut of its own; for each stay it is drawn
    whether the client is there.
    """
    everyone = np.arange(settings.clients)
    if not settings.away:
        return everyone
    cut = rng(settings.seed, "stay").integers(settings.stay, size=settings.clients)
    stays = (round - 1 + cut) // settings.stay
    here = np.zeros(settings.clients, dtype=np.bool_)
    for number in np.unique(stays).tolist():
        inside = stays == number
        here[inside] = rng(settings.seed, "away", number).random(settings.clients)[inside] >= settings.away
    return everyone[here]


def check_update(update: ClientUpdate, order: RoundOrder, extras: Arrays) -> None:
    """Refuse an update that does not fit the order it answers."""
    who = check_round(update, order)
    if update.num_labeled < 0:
        raise UpdateError(f"{who}: its labelled count is {update.num_labeled}")
    check_fits(update.weights, order.weights, who)
    check_fits(update.extras, extras, who)


def check_round(update: ClientUpdate, order: RoundOrder) -> str:
    """Refuse an update that answers another round; returns how to name it in a refusal."""
    who = f"update of client {update.client} for round {order.round}"
    if update.round != order.round:
        raise UpdateError(f"{who}: it answers round {update.round}")
    return who


def answers_order(orders: Mapping[ClientId, RoundOrder], updates: Sequence[ClientUpdate]) -> None:
    """Refuse updates that nobody asked for, that answer another round or that come twice."""
    answered: set[ClientId] = set()
    for update in updates:
        check_asked(update.client, orders, answered)
        answered.add(update.client)
        check_round(update, orders[update.client])


def check_asked(client: ClientId, orders: Container[ClientId], answered: Container[ClientId]) -> None:
    """Refuse an update that nobody asked for, or a second one of a client."""
    if client not in orders:
        raise UpdateError(f"update of client {client} answers no order of this round")
    if client in answered:
        raise UpdateError(f"update of client {client} arrived twice in this round")


@dataclass(frozen=True)
class Start:
    """Weights to begin with, and whatever travels beside them."""

    weights: Weights
    extras: Arrays = field(default_factory=dict)


def new_start(spec: NetSpec, settings: Settings, number: int = 0) -> Start:
    """Seeded initial weights, or those of ``init_weights``; number 0 begins the run, later starts count on."""
    seed = settings.seed if number == 0 else fold(settings.seed, "start", number)
    net = build_model(spec, seed)
    if settings.init_weights:
        inner = net.inner if isinstance(net, ClosedFormNet) else None
        start_from(inner or net, Path(settings.init_weights))
    if "loss_module" not in settings.needs:
        return Start(get_weights(net))
    return Start(get_weights(net), to_extras(new_predictor(with_taps(net), spec.shape, seed)))


def start_number(settings: Settings, round: int) -> int:
    """Which fresh start the round begins with; 0 when it continues from the global model."""
    if settings.form == "reset":
        return round - 1
    if settings.form == "cycles" and (round - 1) % settings.cycle_rounds == 0:
        return (round - 1) // settings.cycle_rounds
    return 0


def phase(settings: Settings, round: int) -> str:
    """In cycles all clients ask at the start of each cycle but the first; otherwise each by its calendar."""
    if settings.form != "cycles":
        return "turn"
    return "select" if start_number(settings, round) else "train"


def tracked(settings: Settings, round: int) -> bool:
    """In cycles only the last round of each counts, unless alignment or the user wants EV in all."""
    last = round % settings.cycle_rounds == 0
    return settings.form != "cycles" or last or settings.aligns or settings.track_ev


class Server:
    """Holds the global model, what travels beside it, and the state of the server rule."""

    def __init__(
        self, run: str, settings: Settings, weights: Weights, extras: Arrays | None = None, spec: NetSpec | None = None
    ) -> None:
        self.run, self.settings, self.weights, self.extras = run, settings, weights, dict(extras or {})
        self._spec, self._rule_state = spec, dict[str, Array]()
        self._start: Start | None = None
        self.largest_share = 0.0
        """The largest share that one client had in the last average."""
        self.facts: dict[str, float] = {}
        """Numbers of the last model that belong in the metrics."""
        self.notes: list[str] = []
        """What the user should know of the averages so far."""
        self.uneven = ""
        """The note that a client has a share of the average that is out of proportion, of this process or before it."""
        self.names: Sequence[str] = ()
        """The clients' names by number, where the data names them."""
        self.outdated: set[str] = set()
        """Notes that no longer hold, such as that there are too few labels."""
        self.refused: dict[ClientId, str] = {}
        """Clients whose part of the last round was left out by the server, and why."""
        self._plan = ServerPlan(
            lr=find_server(settings.server).lr if settings.server_lr is None else settings.server_lr,
            momentum=settings.server_momentum,
            beta2=settings.server_beta2,
            tau=settings.server_tau,
        )

    @property
    def preparation(self) -> range:
        """Rounds before the first, in which clients help to prepare the model; a network needs none."""
        return range(0)

    def orders(self, round: int) -> dict[ClientId, RoundOrder]:
        """What each client that takes part is asked to do."""
        settings, number = self.settings, start_number(self.settings, round)
        self._start = self._fresh(number) if number else None
        extras = dict(self.extras)
        if self._start is not None:
            extras |= prefixed("start.", self._start.extras)
        order = RoundOrder(
            self.run,
            round,
            settings.seed,
            self.weights,
            phase=phase(settings, round),
            start=None if self._start is None else self._start.weights,
            track=tracked(settings, round),
            extras=extras,
        )
        return dict.fromkeys(participants(settings, round), order)

    @property
    def num_classes(self) -> int:
        """Classes of the network; 0 where the server does not know it."""
        return 0 if self._spec is None else self._spec.classes

    def _fresh(self, number: int) -> Start:
        if self._spec is None:
            raise SettingsError(
                f"form = '{self.settings.form}' starts from fresh weights, so the server must know the network"
            )
        return new_start(self._spec, self.settings, number)

    def begin_anew(self) -> bool:
        """Forget sums that updates build on; False where updates build on nothing."""
        return False

    def aggregate(
        self, orders: Mapping[ClientId, RoundOrder], updates: Sequence[ClientUpdate], mean: Mean | None = None
    ) -> None:
        """Average the updates, weighted as ``client_weights`` says, in blocks of clients, into the global model.

        A round without updates keeps the model; in isolation there is nothing to average. With ``mean`` the updates
        were checked and averaged as they came (``Intake``) and hold no arrays.
        """
        if mean is None:
            self._check(orders, updates)
        weights = self._weights_of(updates)
        if self.settings.form == "isolated":
            return
        if self._start is not None and (weights or self.settings.form == "cycles"):
            self.weights, self.extras, self._rule_state = self._start.weights, dict(self._start.extras), {}
        if not weights:
            return
        if mean is None:
            counted = [update for update in updates if update.client in weights]
            extras = [(u.client, u.extras, weights[u.client]) for u in counted]
            combined = self._combined([(u.client, u.weights, weights[u.client]) for u in counted], orders)
            mean = combined, self._combined(extras, orders) if self.extras else {}
        rule = find_server(self.settings.server).rule
        self.weights, self._rule_state = rule(self.weights, mean[0], self._rule_state, self._plan)
        self.extras = mean[1]

    def _check(self, orders: Mapping[ClientId, RoundOrder], updates: Sequence[ClientUpdate]) -> None:
        """Refuse updates that answer no order, answer one twice or do not fit it."""
        answers_order(orders, updates)
        for update in updates:
            check_update(update, orders[update.client], self.extras)

    def _combined(self, parts: list[Summand], asked: Iterable[ClientId]) -> dict[str, Array]:
        """One set of arrays of several, as ``combine`` says."""
        if self.settings.combine == "median":
            return median([arrays for _, arrays, _ in parts])
        if self.settings.combine == "trimmed-mean":
            return trimmed_mean([arrays for _, arrays, _ in parts], self.settings.trim)
        return average(parts, asked)

    def _weights_of(self, updates: Sequence[ClientUpdate]) -> dict[ClientId, float]:
        """The weight of each client that has labels; a share of the average that is out of proportion is noted once.

        Shuffled weights change hands every round, so that no client keeps such a share.
        """
        settings, counts = self.settings, {update.client: update.num_labeled for update in updates}
        round = updates[0].round if updates else 0
        weights = client_weights(counts, settings.client_weights, settings.seed, round)
        if len(weights) >= 3:  # of two, each would be capped at a half
            weights = capped_shares(weights, settings.most_share)
        total = sum(weights.values())
        self.largest_share = max(weights.values(), default=0.0) / total if total else 0.0
        lasting = settings.form != "isolated" and settings.client_weights != "shuffled"
        if lasting and self.largest_share * len(weights) > UNEVEN and not self.uneven:
            heaviest = max(weights, key=lambda client: weights[client])
            who = self.names[heaviest] if heaviest < len(self.names) else heaviest
            self.uneven = (
                f"from round {round} on client {who} has {self.largest_share:.0%} of the average of "
                f"{len(weights)} clients, {UNEVEN_SHARE} ({1 / len(weights):.0%}): bought labels can "
                "then lower the accuracy; client_weights=equal gives every client the same weight"
            )
            self.notes.append(self.uneven)
        return weights

    def to_arrays(self) -> dict[str, Array]:
        """Everything for a file: the model under its own names, the rest under names with a slash."""
        arrays = dict(self.weights)
        return arrays | prefixed("extras/", self.extras) | prefixed("rule/", self._rule_state)

    def restore(self, arrays: Arrays) -> None:
        """Go on from what ``to_arrays`` gave."""
        self.weights = model_of(arrays)
        self.extras = part_of(arrays, "extras/")
        self._rule_state = part_of(arrays, "rule/")


def model_of(arrays: Arrays) -> dict[str, Array]:
    """The global model out of a saved server state."""
    return {name: array for name, array in arrays.items() if "/" not in name}
