"""The sites of a federation as an engine: turns go over a transport; who is late, busy or away is dealt with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chase.client.build import build_net
from chase.client.spec import closed_form_spec
from chase.closed_form.catalog import BY_KIND
from chase.closed_form.feature_map import InputSpec
from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.core.messages import ClientId, RoundOrder
from chase.core.text import clean
from chase.core.weights import Weights
from chase.data.resident import DataSet
from chase.federation.checks import Shape
from chase.federation.diary import Diary
from chase.federation.in_step import InStep
from chase.federation.members import Members
from chase.federation.privacy import Budget, noise_multiplier, release_of
from chase.federation.rounds import RoundOutcome, Rounds
from chase.federation.rules import FederationDirectory, Rules
from chase.federation.secure_engine import SecureSums
from chase.federation.secure_vector import fit_shapes
from chase.federation.transport import SiteMessage, Transport
from chase.learning.inference import logits
from chase.models.catalog import NetSpec
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.engine import RoundResult
from chase.run.metrics import Metrics
from chase.run.scoring import TestSet
from chase.server.intake import Intake, adds_up
from chase.settings import DataSettings, Settings
from chase.simulation.world import load_data
from chase.site.contract import HEADER, Contract, contract_of

LOCAL = frozenset({"init_weights", "engine", "ray_address", "workers", "device", "log_to"})
LOCAL |= {"annotator", "page_client", "wait", "test_answers"}
LOCAL |= DataSettings.model_fields.keys()
"""Settings that are each side's own business and are not sent."""


PRIVACY = ("secure", "dp_epsilon", "dp_delta", "dp_clip")
"""The rules that a site accepts together with the settings."""


def sent_settings(settings: Settings) -> dict[str, Any]:
    """The settings that go to the sites."""
    return {key: value for key, value in settings.model_dump().items() if key not in LOCAL}


class FederationEngine:
    """Has the sites take their turns; each keeps its own state."""

    def __init__(
        self,
        federation: FederationDirectory,
        settings: Settings,
        transport: Transport,
        diary: Diary,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._federation, self._settings, self._rules, self._diary = federation, settings, federation.rules, diary
        self._clock, self._sleep = clock, sleep
        contract = Contract.from_json(read_text(federation.contract))
        self.spec = spec_of(settings, contract)
        self.data = server_data(federation, settings, contract) if self._rules.at_server else None
        common = {"settings": sent_settings(settings), "rules": {n: getattr(self._rules, n) for n in PRIVACY}}
        self._header, offer = common | {HEADER: contract.digest()}, common | {HEADER: contract.to_json()}
        self._members = Members(
            transport, lambda: federation.roster, offer, diary, clock, federation.secure, self._rules.at_once
        )
        self._rounds = Rounds(
            transport, self._members, self._rules, diary, self._order_header, self._fit_shapes, clock, sleep
        )
        self._members.turns = read_turns(federation.path)
        self._members.keep_turns = lambda turns: write_turns(federation.path, turns)
        self.checkpoint = saved_rounds(federation)
        self._in_step = InStep(federation.path, self._members, diary)
        self._sums = SecureSums(settings, self.spec, self._rules, self._members, self._rounds, diary)
        check_privacy(self._rules, settings)
        self._budget = Budget(federation.path / "privacy.json", self._rules.dp_epsilon, self._rules.dp_delta)
        self._noise, self._sharing = 0.0, 0
        self._shapes: tuple[int, dict[str, Shape]] | None = None
        self._round = 0
        self.notes: list[str] = []

    def gather(self, done: int) -> None:
        """Before the first round: wait for all sites on the list, or after a while for a quorum."""
        began = self._clock()
        while True:
            self._members.look(done)
            wanted, here = len(self._federation.roster.active), self._members.here()
            ready = dict.fromkeys((self._members.names[c] for c in sorted(here)), "ready")
            refused = dict.fromkeys(self._members.refused, "refused")
            self._diary.show(phase="gathering", round=done, sites=ready | refused)
            patient = self._clock() - began < self._rules.join
            if here and (len(here) >= wanted or (not patient and len(here) >= self._rounds.quorum(wanted))):
                return
            self._sleep(self._rules.poll)

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of the sites that have an order, as far as the rules wait for them."""
        wanted = self._for_members(orders)
        self._round = next(iter(wanted.values())).round if wanted else self._round + 1
        if self._rules.dp_epsilon and wanted:
            run = next(iter(wanted.values())).run
            self._sharing = self._rounds.quorum(len(self._federation.roster.active))
            release = release_of(run, self._sharing, float(self._rules.dp_clip))
            self._noise = self._budget.plan(release, self._round, max(1, self._settings.rounds - self._round + 1))
        if self._rules.secure:
            self._sums.round = self._round
            result = self._sums.hold(wanted)
            result = replace(result, metrics=result.metrics | self._spent(), names=self._members.names)
        else:
            outcome = self._rounds.hold(wanted)
            try:
                result = self._added(outcome, outcome.as_metrics() | self._spent())
            finally:
                outcome.waiting.close()
        return replace(result, sums_lost=self._in_step.lost(self._round, wanted, result.metrics["sites"]["refused"]))

    def _added(self, outcome: RoundOutcome, told: Metrics) -> RoundResult:
        """The updates added up one by one where that can be, else all of them."""
        updates = (outcome.waiting.whole(outcome.updates[client]) for client in sorted(outcome.updates))
        if not adds_up(self._settings):
            return RoundResult(outcome.orders, list(updates), metrics=told, names=self._members.names)
        intake = Intake(self._settings, outcome.orders)
        for update in updates:
            intake.take(update)
        return RoundResult(outcome.orders, intake.updates, intake.mean(), metrics=told, names=self._members.names)

    def _spent(self) -> Metrics:
        """What differential privacy has spent, this round included."""
        rules = self._rules
        if not rules.dp_epsilon:
            return {}
        return {"dp_epsilon": self._budget.spent, "dp_delta": rules.dp_delta}

    def _for_members(self, orders: Mapping[ClientId, RoundOrder]) -> dict[ClientId, RoundOrder]:
        """Orders for the sites on the list; one that was admitted beyond ``clients`` always takes part."""
        numbers = sorted(m.number for m in self._federation.roster.active)
        wanted = {n: orders[n] for n in numbers if n in orders}
        if orders:
            order = next(iter(orders.values()))
            wanted |= {n: order for n in numbers if n >= self._settings.clients}
        return wanted

    def _order_header(self, client: ClientId) -> dict[str, object]:
        rules = self._rules
        header: dict[str, object] = {**self._header, "number": client, "recover": client in self._members.behind}
        if rules.secure:
            header["context"] = self._sums.context("turn")
        if rules.dp_epsilon:
            header["dp"] = {"multiplier": self._noise, "sites": self._sharing}
        return header

    def _fit_shapes(self, order: RoundOrder) -> dict[str, Shape]:
        """The sums that an order to fit features asks for; worked out once per order."""
        if self._shapes is None or self._shapes[0] != order.round:
            self._shapes = order.round, fit_shapes(self.spec, self._settings.seed, order)
        return self._shapes[1]

    def tell_refused(self, round: int, refused: Mapping[ClientId, str]) -> None:
        """Events, and the state of the sites, for parts that the server left out when it added them up."""
        for client, why in refused.items():
            self._diary.note(round, "refused", self._members.name(client), clean(why))
        if refused:
            words = dict.fromkeys((self._members.name(client) for client in refused), "refused")
            self._diary.show(sites=self._diary.shown.get("sites", {}) | words)

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the server's test set."""
        if self.data is None:
            raise FederationError('the server has no test set: set evaluate = "sites"')
        net = build_net(self._settings, self.data.test, self.data.num_classes)
        set_weights(net, weights)
        return logits(net, self.data.test, torch.arange(len(self.data.test)))

    @property
    def test_set(self) -> TestSet | None:
        """The server's test set, where the rules say that it scores the model."""
        if self.data is None:
            return None
        labels, areas = self.data.test_labels, self._settings.main_metric == "auc"
        return TestSet(self.test_logits, labels, self.data.num_classes, areas=areas)

    @property
    def score_at_sites(self) -> Callable[[Weights], Metrics] | None:
        """How the sites score the model, where the rules say that they do."""
        return self._site_scores if self._rules.at_sites else None

    def _site_scores(self, weights: Weights) -> Metrics:
        """Correct and counted samples of the sites' held-out parts: all that they tell of them."""

        def message(client: ClientId) -> SiteMessage:
            return SiteMessage(self._members.nodes[client], "tally", self._order_header(client), weights=weights)

        if self._rules.secure:
            correct, count = self._sums.scores(weights, self._order_header)
        else:
            sums = self._rounds.tallies(self._round, message, self._rules.deadline)
            correct, count = sums.correct, sums.count
        accuracy = correct / count if count else None
        found: Metrics = {"site_accuracy": accuracy, "site_correct": correct, "site_count": count}
        return found if self._rules.at_server else found | {"test_accuracy": accuracy}

    def processor_seconds(self) -> float:
        """None beside this process's own; the sites' are their own business."""
        return 0.0

    def close(self) -> None:
        """Nothing to end: the sites stay."""


def check_privacy(rules: Rules, settings: Settings) -> None:
    """Refuse options that exclude each other, and a promise that no noise keeps."""
    if rules.secure and (settings.combine != "mean" or settings.client_weights == "shuffled"):
        raise FederationError(
            "with secure = true the server sees only the sum of all updates: set combine = mean, and client_weights "
            "= labelled or equal"
        )
    if rules.dp_epsilon and settings.learner != "network":
        raise FederationError(
            "dp_epsilon clips the updates of a network, and learner = closed-form sends none: use secure = true, or "
            "learner = network"
        )
    if rules.secure and settings.temperature == "leave-one-out":
        raise FederationError(
            "with secure = true the server gets only sums over labelled samples, and temperature = leave-one-out needs "
            "more: use temperature = closed-form"
        )
    if rules.dp_epsilon and settings.head == "closed-form":
        raise FederationError(
            "dp_epsilon protects only the weights of the network, and head = closed-form also sends sums: "
            "use head = trained"
        )
    if (rules.secure or rules.dp_epsilon) and "loss_module" in settings.needs:
        raise FederationError(
            "secure = true and dp_epsilon protect only the weights of the network, and ll4al also sends its module "
            "that predicts losses: choose another strategy"
        )
    if not rules.dp_epsilon:
        return
    if settings.client_weights != "equal":
        raise FederationError(
            "dp_epsilon needs client_weights = equal: otherwise a site's weight reveals its number of labels"
        )
    noise_multiplier(rules.dp_epsilon, settings.rounds, rules.dp_delta)


def saved_rounds(federation: FederationDirectory) -> Checkpoint:
    """The saved rounds of a federation: more are kept than of a simulation, so that it can go back."""
    rules = federation.rules
    return Checkpoint(federation.run / "checkpoint", last=rules.keep_last, every=rules.keep_every, durable=True)


def read_turns(path: Path) -> dict[ClientId, int]:
    """The turns that each site had taken when it last told."""
    try:
        body = json.loads((path / "turns.json").read_text(encoding="utf-8"))
        return {int(client): int(turn) for client, turn in body.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FederationError(
            f"{path}/turns.json cannot be read ({error}): restore or remove it; without it, a site that was restored "
            "from an older copy is not noticed"
        ) from None


def write_turns(path: Path, turns: Mapping[ClientId, int]) -> None:
    """Keep the turns of the sites."""
    write_atomically(path / "turns.json", json.dumps({str(c): t for c, t in turns.items()}).encode(), durable=True)


def _stored_shape(agreed: Contract) -> tuple[int, ...]:
    """The shape of a stored sample: of a table one number per column, whatever they become."""
    return (len(agreed.table),) if agreed.kind == "table" else agreed.shape


def spec_of(settings: Settings, agreed: Contract) -> NetSpec:
    """How to build the network that the sites agreed on."""
    classes, vocabulary = len(agreed.classes), agreed.vocabulary
    if settings.learner == "closed-form":
        kind = next(kind for kind in BY_KIND if kind == agreed.kind)
        inputs = InputSpec(kind, _stored_shape(agreed), vocabulary, agreed.table, agreed.mean, agreed.std)
        return closed_form_spec(settings, inputs, agreed.shape, classes)
    return NetSpec(settings.net, agreed.shape, classes, settings.dropout, vocabulary, settings.init)


def server_data(federation: FederationDirectory, settings: Settings, contract: Contract) -> DataSet:
    """The data set whose test part the server scores the model on; one that does not match the sites is refused."""
    data = load_data(settings)
    if contract_of(settings, data.test, data.classes) != contract:
        raise FederationError(
            f"the test set '{data.name}' does not match {federation.contract}: "
            'give one that does, or set evaluate = "sites"'
        )
    return data


def read_text(path: Path) -> str:
    """A text file of the federation's directory."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FederationError(f"cannot read {path}: {error.strerror or error}") from None
