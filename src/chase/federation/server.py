"""The server's side of a federation: THE loop again, over a post instead of an engine.

It goes on from the last checkpoint of the run directory, so a server that was killed is resumed by starting it
anew: the run keeps its id, and sites answer repeated orders from what they committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from chase.client.build import build_net
from chase.core.errors import FederationError
from chase.core.messages import ClientId, RoundOrder
from chase.core.timing import Stopwatch
from chase.core.weights import Weights
from chase.data.options import DataOptions
from chase.data.resident import DataSet
from chase.federation.diary import Diary
from chase.federation.members import Members
from chase.federation.rounds import RoundOutcome, Rounds
from chase.federation.rules import FederationDirectory
from chase.federation.transport import SiteMessage, Transport
from chase.learning.inference import logits
from chase.models.catalog import NetSpec
from chase.models.net import set_weights
from chase.report.html import report_run
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import round_metrics, seconds, stop_reason
from chase.run.record import Record
from chase.server.evaluation import SCORE_NAMES, score, score_metrics
from chase.server.server import Server, new_start
from chase.settings import Settings
from chase.simulation.world import load_data
from chase.site.agreement import Agreement, agreement_of

LOCAL = frozenset({"init_weights", "engine", "workers", "device", "log_to", "annotator", "page_client", "wait"})
LOCAL |= {"data", "test_limit", *(field.name for field in fields(DataOptions))}
"""Settings that are each side's own business and are not sent."""


def sent_settings(settings: Settings) -> dict[str, Any]:
    """The settings that go to the sites."""
    return {key: value for key, value in settings.model_dump().items() if key not in LOCAL}


@dataclass
class FederationServer:
    """A federation's server: directory, model and rounds."""

    charter: FederationDirectory
    post: Transport
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        self.record = Record.open(self.charter.run)
        self.settings, self.rules = self.record.settings, self.charter.rules
        self.agreement = Agreement.from_json(read_text(self.charter.path / "agreement.json"))
        self.diary = Diary(self.charter.run)
        self.data = load_data(self.settings) if self.rules.at_server else None
        if self.data is not None:
            self._check_test_set(self.data)
        self.header = {"settings": sent_settings(self.settings), "agreement": self.agreement.to_json()}
        self.members = Members(
            self.post,
            lambda: self.charter.roster,
            self.header,
            self.diary,
            self.clock,
            self.charter.secure,
            self.rules.at_once,
        )
        self.rounds = Rounds(
            self.post, self.members, self.rules, self.diary, self._order_header, self.clock, self.sleep
        )

    def _check_test_set(self, data: DataSet) -> None:
        if agreement_of(self.settings, data.test, data.classes) != self.agreement:
            raise FederationError(
                f"the test set '{data.name}' does not fit {self.charter.path}/agreement.json: "
                'give one that does, or set evaluate = "sites"'
            )

    def _order_header(self, client: ClientId) -> dict[str, object]:
        return {"settings": self.header["settings"], "agreement": self.agreement.digest(), "number": client}

    def run(self) -> list[dict[str, Any]]:
        """All rounds that are left; returns the metrics of every round."""
        record, settings = self.record, self.settings
        checkpoint = Checkpoint(record.path / "checkpoint")
        manifest, problems = checkpoint.latest()
        done = 0 if manifest is None else manifest.round
        record.cut_after(done)
        past = record.metrics
        spec = self._spec()
        first = new_start(spec, settings)
        server = Server(record.run, settings, first.weights, first.extras, spec)
        if manifest is not None:
            server.restore(checkpoint.read_arrays(manifest.server))
        self.diary.note(done, "begun" if done == 0 else "resumed", why="; ".join(problems))
        self._gather(done)
        for round in range(done + 1, settings.rounds + 1):
            if stop_reason(settings, past[-1:]):
                break
            start, watch = time.perf_counter(), Stopwatch()
            with watch.phase("clients"):
                outcome = self.rounds.hold(self._orders(server, round))
            updates = [outcome.updates[client] for client in sorted(outcome.updates)]
            with watch.phase("aggregate"):
                server.aggregate(outcome.orders, updates)
            metrics = round_metrics(round, updates, past[-1] if past else None) | outcome.as_metrics()
            with watch.phase("evaluate"):
                metrics |= self._evaluate(metrics, server.weights)
            metrics |= seconds(updates, watch, start)
            record.append(metrics, [])
            checkpoint.commit(round, server.to_arrays(), {})
            past.append(metrics)
            self._announce(round, outcome, metrics)
        why = stop_reason(settings, past[-1:])
        self.diary.note(len(past), "finished", why=why)
        report_run(record.path)
        self.diary.show(phase="finished", why=why)
        return past

    def _spec(self) -> NetSpec:
        agreed, settings = self.agreement, self.settings
        classes, vocabulary = len(agreed.classes), agreed.vocabulary
        return NetSpec(settings.net, agreed.shape, classes, settings.dropout, vocabulary, settings.init)

    def _gather(self, done: int) -> None:
        """Before the first round: wait for all sites on the list, or after a while for a quorum."""
        began = self.clock()
        while True:
            self.members.look(done)
            wanted, here = len(self.charter.roster.active), len(self.members.here())
            self.diary.show(
                phase="gathering", round=done, sites={**dict.fromkeys(self._names(), "ready"), **self._out()}
            )
            patient = self.clock() - began < self.rules.join
            if here and (here >= wanted or (not patient and here >= self.rounds.quorum(wanted))):
                return
            self.sleep(self.rules.poll)

    def _names(self) -> list[str]:
        return [self.members.names[c] for c in sorted(self.members.here())]

    def _out(self) -> dict[str, str]:
        return dict.fromkeys(self.members.refused, "refused")

    def _orders(self, server: Server, round: int) -> dict[ClientId, RoundOrder]:
        """The server's orders for the sites on the list; one that was admitted beyond ``clients`` always takes part."""
        orders, numbers = server.orders(round), sorted(m.number for m in self.charter.roster.active)
        wanted = {n: orders[n] for n in numbers if n in orders}
        if orders:
            order = next(iter(orders.values()))
            wanted |= {n: order for n in numbers if n >= self.settings.clients}
        return wanted

    def _evaluate(self, metrics: dict[str, Any], weights: Weights) -> dict[str, Any]:
        """Scores of the global model, every so many rounds and whenever the run may end here."""
        round, settings = metrics["round"], self.settings
        spent = settings.total_budget and metrics["labels"] >= settings.total_budget
        if round % settings.eval_every and round != settings.rounds and not spent:
            return dict.fromkeys(SCORE_NAMES)
        found: dict[str, Any] = dict.fromkeys(SCORE_NAMES)
        if self.data is not None:
            net = build_net(settings, self.data.test, self.data.num_classes)
            set_weights(net, weights)
            outputs = logits(net, self.data.test, torch.arange(len(self.data.test)))
            found = score_metrics(score(outputs, self.data.test_labels, self.data.num_classes))
        if self.rules.at_sites:
            found |= self._ask_sites(round, weights)
        return found

    def _ask_sites(self, round: int, weights: Weights) -> dict[str, Any]:
        def letter(client: ClientId) -> SiteMessage:
            return SiteMessage(self.members.nodes[client], "tally", self._order_header(client), weights=weights)

        sums = self.rounds.tallies(round, letter, self.rules.deadline)
        accuracy = sums.correct / sums.count if sums.count else None
        found: dict[str, Any] = {"site_accuracy": accuracy, "site_correct": sums.correct, "site_count": sums.count}
        return found if self.rules.at_server else found | {"test_accuracy": accuracy}

    def _announce(self, round: int, outcome: RoundOutcome, metrics: dict[str, Any]) -> None:
        self.diary.show(phase="saved", round=round, accuracy=metrics["test_accuracy"], labels=metrics["labels"])


def read_text(path: Path) -> str:
    """A text file of the federation's directory."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FederationError(f"cannot read {path}: {error.strerror or error}") from None
