"""The server of the closed-form learner: fits features from sums, adds up sums of labelled samples, solves the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chase.client.contribute import FIT, NEVER, PREPARE, RECEIVED, SUM, received_of, sum_shapes
from chase.client.solved_head import HEAD_SUM, SOLVED
from chase.closed_form.calibration import SHARPNESS, TEMPERATURES
from chase.closed_form.feature_map import Reals, add, byte_params, least_ridge
from chase.closed_form.leave_one_out import LOO, LOSSES, leverage_from, sharpness, system
from chase.closed_form.model import ClosedFormNet, build_model
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError, UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Arrays, Weights, check_fits, part_of, prefixed, without
from chase.models.catalog import NetSpec
from chase.server.aggregation import Mean
from chase.server.head import NotEnough, solved_head
from chase.server.server import Server, Start, answers_order, check_round, check_update
from chase.server.solved_head import SolvedHeadServer, check_head_sums
from chase.settings import Settings

MERGED = "merged"
"""In a mean: the clients whose sums were added up as they came."""


def make_server(run: str, settings: Settings, first: Start, spec: NetSpec) -> Server:
    """The server of the learner that the settings name."""
    make: Callable[..., Server] = Server
    if settings.learner == "closed-form":
        make = ClosedFormServer
    elif settings.head == "closed-form":
        make = SolvedHeadServer
    return make(run, settings, first.weights, first.extras, spec)


class ClosedFormServer(Server):
    """Holds the sums of all labels received so far and the model that they give."""

    def __init__(self, run: str, settings: Settings, weights: Weights, extras: Arrays, spec: NetSpec) -> None:
        super().__init__(run, settings, weights, extras, spec)
        net = build_model(spec, settings.seed)
        if not isinstance(net, ClosedFormNet):
            raise SettingsError("learner = 'closed-form' needs a closed-form model")
        self._map, self._classes = net.feature_map, spec.classes
        self._sums: dict[str, Array] = Sums.empty(net.feature_map.width, spec.classes).to_arrays()
        """Named sums as they travel; added up exactly."""
        self._received = np.full(settings.clients, NEVER, dtype=np.int64)
        self._fit: dict[str, Array] = {}
        self._solved = np.array([0.0, 0.0, 0.0, SHARPNESS])
        """Ridge weight, temperature and expected error of the last head, and how sharp its probabilities are."""

    @property
    def preparation(self) -> range:
        """Rounds before the first, in which features are fitted."""
        return range(1 - self._map.steps, 1)

    @property
    def received(self) -> NDArray[np.int64]:
        """The last round in which each client's sums arrived."""
        return self._received

    @property
    def temperature(self) -> float:
        """What scores were divided by in the last head; 0 before one was solved."""
        return float(self._solved[1])

    def leverage(self, features: Reals) -> Reals:
        """How much each of these labelled samples (samples, width) decides its own score by the last head."""
        return leverage_from(features, Sums.from_arrays(self._sums), float(self._solved[0]))

    def orders(self, round: int) -> dict[ClientId, RoundOrder]:
        """In preparation everybody sums; later an order also says whose sums arrived."""
        if round < 1:
            extras = prefixed(FIT, self._fit)
            order = RoundOrder(self.run, round, self.settings.seed, self.weights, phase=PREPARE, extras=extras)
            return dict.fromkeys(range(self.settings.clients), order)
        self.extras = {RECEIVED: self._received.copy()}
        if self.settings.temperature == "leave-one-out" and self._solved[1] > 0:
            self.extras |= system(Sums.from_arrays(self._sums), float(self._solved[0]), float(self._solved[1]))
        return super().orders(round)

    def aggregate(
        self, orders: Mapping[ClientId, RoundOrder], updates: Sequence[ClientUpdate], mean: Mean | None = None
    ) -> None:
        """Add what came, in client order, and solve; sums are never averaged."""
        answers_order(orders, updates)
        self.refused = {}
        if not updates:
            return
        ordered = sorted(updates, key=lambda update: update.client)
        if ordered[0].round < 1:
            parts = [part_of(update.extras, SUM) for update in ordered]
            self._fit_step(ordered[0].round, parts if mean is None else [part_of(mean[1], SUM), *parts])
            return
        if mean is not None and MERGED in mean[1]:
            self._add(part_of(mean[1], SUM), mean[1][MERGED].tolist(), ordered[0].round)
        self._sharpen([update.extras[LOSSES] for update in ordered if LOSSES in update.extras])
        for update in ordered:
            try:
                if any(name.startswith(SUM) for name in update.extras):
                    self._take(update, orders[update.client])
            except UpdateError as error:  # one client's sums must not stop the others
                self.refused |= dict.fromkeys(update.joint or (update.client,), str(error))
        if self.settings.form != "isolated":
            self._solve()

    def _sharpen(self, losses: Sequence[Array]) -> None:
        """Fit how sharp probabilities are by the clients' losses under the last head; the next one keeps it."""
        if losses:
            self._solved[3] = sharpness(np.sum(losses, axis=0), float(self._solved[2]))

    def _take(self, update: ClientUpdate, order: RoundOrder) -> None:
        """Add a client's change; one that does not fit, or removes what is not there, is refused whole.

        So is one to sums that the server no longer has: a late one, after the sums were dropped.
        """
        whose = (
            f"sum of clients {', '.join(map(str, update.joint))}"
            if update.joint
            else f"update of client {update.client}"
        )
        who, change = f"{whose} for round {update.round}", part_of(update.extras, SUM)
        check_fits(change, self._sums, who)
        clients = update.joint or (update.client,)
        now = {RECEIVED: self._received}
        if any(received_of(order.extras, client) != received_of(now, client) for client in clients):
            raise UpdateError(f"{who}: it is a change of sums that the server has dropped since; all are sent again")
        if (self._sums["counts"] + change["counts"] < 0).any():
            raise UpdateError(f"{who}: it removes labels that the server does not have")
        self._add(change, clients, update.round)

    def _add(self, change: Arrays, clients: Sequence[ClientId], round: int) -> None:
        self._sums = {name: array + change[name] for name, array in self._sums.items()}
        for client in clients:
            if client >= self._received.size:  # a site that was admitted later, beyond ``clients``
                more = np.full(client + 1 - self._received.size, NEVER, dtype=np.int64)
                self._received = np.concatenate([self._received, more])
            self._received[client] = round

    def begin_anew(self) -> bool:
        """Drop all sums, so that every client sends all of its labels again; the model stays until they have come."""
        self._sums = {name: np.zeros_like(array) for name, array in self._sums.items()}
        self._received[:] = NEVER
        self._solved[:3] = 0.0  # of a head of other sums: nothing is left out of these before they give one
        return True

    def _fit_step(self, round: int, parts: Sequence[Arrays]) -> None:
        step = round + self._map.steps - 1
        self._fit = self._map.solve(step, self._fit, add(parts))
        if step == self._map.steps - 1:
            kept = byte_params(self._map)
            fitted = {f"feature_{n}": a.astype(np.int8 if n in kept else np.float32) for n, a in self._fit.items()}
            check_fits(fitted, {name: self.weights[name] for name in fitted}, "the fitted features")
            self.weights = {**self.weights, **fitted}
            self._fit = {}

    def _solve(self) -> None:
        try:
            sums, least = Sums.from_arrays(self._sums), least_ridge(self._map)
            found = solved_head(sums, self.settings.ridge or None, float(self._solved[3]), least)
        except (NotEnough, UpdateError) as error:  # more labels may solve it: the head before stays
            if str(error) not in self.notes:
                self.notes.append(str(error))
            self.outdated.discard(str(error))
            return
        self.outdated = set(self.notes)  # all of them say that there was no head
        self.facts = found.facts
        self._solved[:3] = found.facts["ridge"], found.facts["temperature"], found.noise
        self.weights = {**self.weights, **found.weights}

    def to_arrays(self) -> dict[str, Array]:
        """The model, the sums and who is included in them."""
        sums = prefixed("sums/", self._sums)
        return {**self.weights, **sums, f"server/{RECEIVED}": self._received, "server/solved": self._solved.copy()}

    def restore(self, arrays: Arrays) -> None:
        """Go on from what ``to_arrays`` gave."""
        super().restore(arrays)
        self.extras = {}
        self._sums = part_of(arrays, "sums/")
        self._received = np.array(arrays[f"server/{RECEIVED}"])
        self._solved = np.array(arrays.get("server/solved", self._solved))


def check_answer_fits(update: ClientUpdate, order: RoundOrder) -> None:
    """Refuse an update that does not fit its order, whatever the learner."""
    if order.phase == PREPARE or RECEIVED in order.extras:
        check_contribution(update, order)
        return
    if f"{SOLVED}head.weight" in order.extras:
        check_head_sums(update, order, check_round(update, order))
        update = replace(update, extras=without(update.extras, HEAD_SUM))
    check_update(update, order, without(order.extras, "start.", SOLVED))


def check_contribution(update: ClientUpdate, order: RoundOrder) -> None:
    """Refuse sums that do not fit the order they answer; no sums at all are fine."""
    who = check_round(update, order)
    check_fits(update.weights, order.weights if update.weights else {}, who)  # isolated clients send their own model
    if order.phase == PREPARE:
        like = {name: np.empty(array.shape) for name, array in update.extras.items()}
    else:
        like = {f"{SUM}{name}": np.empty(shape) for name, shape in sum_shapes(order).items()}
    losses = update.extras.get(LOSSES)
    if losses is not None and f"{LOO}about" in order.extras:
        check_fits({LOSSES: losses}, {LOSSES: np.empty(TEMPERATURES.shape)}, who)
        update = replace(update, extras=without(update.extras, LOSSES))
    if update.extras:
        check_fits(update.extras, like, who)


def sums_only(extras: Arrays) -> dict[str, Array]:
    """The sums among what travels beside the weights."""
    return {name: array for name, array in extras.items() if name.startswith(SUM)}
