"""A federated active learning run: settings in, run directory out, and THE loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chase.core.errors import CheckpointError, RunDirectoryError
from chase.core.messages import ClientUpdate
from chase.core.pools import NAMES
from chase.core.timing import Stopwatch
from chase.core.weights import Weights
from chase.data.coverage import Coverage, warnings
from chase.data.resident import DataSet
from chase.home.home import Home
from chase.models.card import ModelCard
from chase.models.catalog import NetSpec, build
from chase.run.checkpoint import Checkpoint
from chase.run.engine import Engine
from chase.run.loggers import Loggers, need_loggers
from chase.run.record import Record, write_atomically
from chase.server.evaluation import SCORE_NAMES, confusion, mean_scores, score, score_metrics
from chase.server.server import Server, new_start
from chase.settings import Settings
from chase.simulation.engines import make_engine
from chase.simulation.page_client import open_home
from chase.simulation.world import World, count_coverage, load_data, shortages, split_among_clients

Metrics = dict[str, Any]


def net_spec(settings: Settings, data: DataSet) -> NetSpec:
    """How to build the network for the data."""
    return NetSpec.of(settings.net, data.train, data.num_classes, settings.dropout, settings.init)


def make_net(settings: Settings, data: DataSet) -> nn.Module:
    """The network with its seeded initial weights."""
    return build(net_spec(settings, data), settings.seed)


def check_same_data(record: Record, data: DataSet) -> None:
    """Refuse to go on with data that is divided otherwise than when the run began."""
    before = record.path / "coverage.json"
    if not before.is_file():
        return
    now = count_coverage(record.settings, data, split_among_clients(record.settings, data))
    if json.loads(before.read_text(encoding="utf-8")) != now.to_json():
        raise RunDirectoryError(
            f"the data '{data.name}' is not what it was when {record.path} began: bring it back, or start a new run"
        )


def check_rounds(record: Record, wanted: Any) -> None:
    """Refuse to lose finished rounds: to a checkpoint that is gone, or to fewer ``rounds`` than are done."""
    manifest, _ = Checkpoint(record.path / "checkpoint").latest()
    if manifest is None and len(record.metrics) > 1:  # a kill in the first round leaves one line at most
        raise CheckpointError(
            f"{record.path}/checkpoint is gone, but {len(record.metrics)} rounds were done: "
            "bring it back, or start a new run"
        )
    if manifest is not None and isinstance(wanted, int) and wanted < manifest.round:
        raise RunDirectoryError(
            f"rounds = {wanted}, but {record.path} has {manifest.round} rounds done: set that many or more"
        )


@dataclass
class Experiment:
    """One run that can be stopped at any moment and gone on with."""

    record: Record
    data: DataSet
    notes: list[str]
    """What the user should know: problems of the data, a checkpoint that had to be skipped."""
    coverage: Coverage | None = None
    """Who holds what; counted when a run begins."""

    @classmethod
    def begin(cls, settings: Settings, out: Path) -> Experiment:
        """A new run in a new directory; nothing is written before settings and data are known to fit."""
        need_loggers(settings)
        data = load_data(settings)
        table = count_coverage(settings, data, split_among_clients(settings, data))
        new_start(net_spec(settings, data), settings)
        card = ModelCard.of(net_spec(settings, data), data)
        record = Record.create(out, settings, card.to_json())
        write_atomically(out / "coverage.json", json.dumps(table.to_json()).encode())
        notes = [*data.problems, *warnings(table, settings.batch_size), *shortages(settings, table)]
        record.add_notes(notes)
        return cls(record, data, notes, table)

    @classmethod
    def resume(cls, path: Path, changes: dict[str, Any] | None = None) -> Experiment:
        """Go on with the run in a directory."""
        record = Record.open(path)
        check_rounds(record, (changes or {}).get("rounds"))
        if changes:
            record.change(changes)
        data = load_data(record.settings)
        check_same_data(record, data)
        return cls(record, data, [])

    @property
    def saved_rounds(self) -> int:
        """How many rounds a resume would find done."""
        manifest, _ = Checkpoint(self.record.path / "checkpoint").latest()
        return 0 if manifest is None else manifest.round

    def world(self) -> World:
        """What the engine is made of."""
        settings, data = self.record.settings, self.data
        parts = split_among_clients(settings, data)
        return World(settings, data.train, data.train_labels, data.num_classes, parts, data.test)

    def open_home(self) -> Home:
        """The home of the client that a person labels, made when it is first needed."""
        return open_home(self.record.path, self.world(), self.data, self.record.settings.page_client)

    def run(self, on_round: Callable[[Metrics], None] = lambda metrics: None) -> list[Metrics]:
        """All rounds that are left; returns the metrics of every round."""
        with self.record.held():
            return self._run(on_round)

    def _run(self, on_round: Callable[[Metrics], None]) -> list[Metrics]:
        torch.set_num_threads(1)
        settings, data, record = self.record.settings, self.data, self.record
        checkpoint = Checkpoint(record.path / "checkpoint")
        manifest, problems = checkpoint.latest()
        self.notes += [f"{problem}; going on from the checkpoint before it" for problem in problems]
        first = new_start(net_spec(settings, data), settings)
        server = Server(record.run, settings, first.weights, first.extras, net_spec(settings, data))
        if manifest is not None:
            server.restore(checkpoint.read_arrays(manifest.server))
        if server.weights.keys() != first.weights.keys():
            raise CheckpointError(f"{checkpoint.path} holds weights of another network than '{settings.net}'")
        done = 0 if manifest is None else manifest.round
        record.cut_after(done)
        past = record.metrics

        engine = make_engine(self.world(), checkpoint, {} if manifest is None else manifest.clients)
        logs: Loggers | None = None
        try:
            logs = Loggers(record.path, settings, past)
            for round in range(done + 1, settings.rounds + 1):
                if stop_reason(settings, past[-1:]):
                    break
                start, used, watch = time.perf_counter(), processor_seconds(engine), Stopwatch()
                orders = server.orders(round)
                with watch.phase("clients"):
                    result = engine.run_round(orders)
                with watch.phase("aggregate"):
                    server.aggregate(orders, result.updates)
                metrics = round_metrics(round, result.updates, past[-1] if past else None)
                metrics |= {"largest_share": server.largest_share, "asked_classes": asked_classes(result.journal)}
                with watch.phase("evaluate"):
                    metrics |= self._evaluate(metrics, engine, server, result.updates, past)
                with watch.phase("save"):
                    metrics |= seconds(result.updates, watch, start)
                    metrics["seconds_processor"] = processor_seconds(engine) - used
                    record.append(metrics, result.journal)
                    checkpoint.commit(round, server.to_arrays(), engine.saved)
                past.append(metrics)
                logs(metrics)
                on_round(metrics)
            self._save_confusion(engine, server, past)
        finally:
            engine.close()
            self.notes += server.notes + engine.notes + (logs.close() if logs is not None else [])
            record.add_notes(self.notes)
        return past

    def _save_confusion(self, engine: Engine, server: Server, past: list[Metrics]) -> None:
        """``confusion.json``: what the last global model takes each class for; isolated clients have no such model."""
        if past and self.record.settings.form != "isolated":
            outputs = engine.test_logits(server.weights)
            table = confusion(outputs, self.data.test_labels, self.data.num_classes).tolist()
            body = {"round": past[-1]["round"], "matrix": table}
            write_atomically(self.record.path / "confusion.json", json.dumps(body).encode())

    def _evaluate(
        self, metrics: Metrics, engine: Engine, server: Server, updates: Sequence[ClientUpdate], past: list[Metrics]
    ) -> Metrics:
        """Scores of the global model, or the mean of isolated ones, every so many rounds and when the run may end."""
        settings, data = self.record.settings, self.data

        def of(weights: Weights) -> Metrics:
            return score_metrics(score(engine.test_logits(weights), data.test_labels, data.num_classes))

        spent = settings.total_budget and metrics["labels"] >= settings.total_budget
        due = metrics["round"] % settings.eval_every == 0 or metrics["round"] == settings.rounds or spent
        if settings.form != "isolated":
            return of(server.weights) if due else dict.fromkeys(SCORE_NAMES)
        known: dict[str, Metrics] = dict(past[-1]["client_scores"]) if past else {}
        if due or len(updates) < settings.clients:
            known |= {str(u.client): of(u.weights) for u in updates}
        if due and len(known) < settings.clients:
            untrained = of(server.weights)
            known = {str(c): known.get(str(c), untrained) for c in range(settings.clients)}
        scores = mean_scores(list(known.values())) if due else dict.fromkeys(SCORE_NAMES)
        return scores | {"client_scores": known}


def stop_reason(settings: Settings, last: Sequence[Metrics]) -> str:
    """Why a run ends after these metrics, or nothing."""
    if not last:
        return ""
    metrics = last[-1]
    if settings.target_accuracy and (metrics["test_accuracy"] or 0) >= settings.target_accuracy:
        return f"target accuracy {settings.target_accuracy:.1%} reached"
    if settings.total_budget and metrics["labels"] >= settings.total_budget:
        return f"total budget of {settings.total_budget} labels spent"
    return f"all {settings.rounds} rounds done" if metrics["round"] >= settings.rounds else ""


def round_metrics(round: int, updates: Sequence[ClientUpdate], before: Metrics | None) -> Metrics:
    """The counts of a line of metrics.jsonl. Clients that sat out keep their last counts."""
    clients: dict[str, dict[str, float]] = dict(before["clients"]) if before else {}
    for update in updates:
        kept = {name: update.metrics[f"pool_{name}"] for name in NAMES}
        clients[str(update.client)] = kept | {"labels": update.metrics["labels"]}

    def mean_over(what: str) -> float | None:
        count = sum(u.metrics.get(f"{what}_count", 0.0) for u in updates)
        return sum(u.metrics.get(f"{what}_sum", 0.0) for u in updates) / count if count else None

    took_part = max(1, len(updates))
    picks, ranked, by_chance = (
        int(sum(u.metrics.get(name, 0.0) for u in updates)) for name in ("picks", "ranked_picks", "chance_picks")
    )
    return {
        "round": round,
        "labels": int(sum(c["labels"] for c in clients.values())),
        "inferences": int(sum(u.metrics["inferences"] for u in updates)),
        "observed_inferences": int(sum(u.metrics.get("observed_inferences", 0) for u in updates)),
        "inferred_samples": sum(u.metrics["inferred_samples"] for u in updates) / took_part,
        "mean_ev": mean_over("ev"),
        "observed_ev": mean_over("observed_ev"),
        "picks": picks,
        "picks_by_chance": by_chance if ranked else None,
        "pools": {name: int(sum(c[name] for c in clients.values())) for name in NAMES},
        "took_part": len(updates),
        "clients": clients,
    }


def asked_classes(journal: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Labels that were asked for and answered in a round: how many of each class by client (in simulation only)."""
    counts: dict[str, dict[str, int]] = {}
    for line in journal:
        if line["label"] is not None:
            own = counts.setdefault(str(line["client"]), {})
            own[str(line["label"])] = own.get(str(line["label"]), 0) + 1
    return counts


def processor_seconds(engine: Engine) -> float:
    """Processor seconds of this process and the engine's so far: what a run costs, however busy the machine is."""
    return time.process_time() + engine.processor_seconds()


def seconds(updates: Sequence[ClientUpdate], watch: Stopwatch, start: float) -> Metrics:
    """Wall-clock seconds of the round, and by phase: the clients' phases added up over all clients."""
    phases: dict[str, float] = {}
    for update in updates:
        for key, value in update.metrics.items():
            if key.startswith("seconds_"):
                phases[key.removeprefix("seconds_")] = phases.get(key.removeprefix("seconds_"), 0.0) + value
    phases |= {phase: watch.seconds[phase] for phase in ("clients", "aggregate", "evaluate")}
    return {"seconds": time.perf_counter() - start, "seconds_by_phase": phases}
