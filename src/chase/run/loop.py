"""THE loop: orders out, updates in, aggregate, evaluate, record. Simulations and federations both run it.

What differs between them is the engine (who takes the turns) and the evaluation (who has a test set).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from chase.core.errors import CheckpointError
from chase.core.files import write_atomically
from chase.core.timing import Stopwatch
from chase.core.weights import to_bytes
from chase.models.catalog import NetSpec
from chase.run.allotment import Allotment
from chase.run.checkpoint import Checkpoint
from chase.run.client_counts import ClientCounts
from chase.run.engine import Engine
from chase.run.loggers import Loggers
from chase.run.metrics import (
    BEST,
    Metrics,
    asked_classes,
    best_round,
    leave_out,
    main_value,
    round_metrics,
    seconds,
    stop_reason,
)
from chase.run.record import Record
from chase.run.rising_loss import rising_loss
from chase.run.scoring import Evaluation
from chase.server.closed_form import make_server
from chase.server.server import UNEVEN_SHARE, Server, new_start, present

CONFUSION = "confusion.json"
OnRound = Callable[[Metrics], None]


def run_rounds(
    engine: Engine,
    server: Server,
    evaluate: Evaluation,
    record: Record,
    checkpoint: Checkpoint,
    loggers: Loggers,
    on_round: OnRound = lambda metrics: None,
    ends: Sequence[int] = (),
) -> list[Metrics]:
    """All rounds that are left; returns the metrics of every round. ``ends``: of which the confusion is kept too."""
    settings, past = record.settings, record.metrics
    counts = ClientCounts.resume(settings.clients, checkpoint.counts(), past[-1] if past else None)
    allotment = Allotment(settings.total_budget, counts)
    written = False
    if not past:
        prepare(engine, server)
    for round in range(len(past) + 1, settings.rounds + 1):
        if stop_reason(settings, past[-1:]):
            break
        start, used, watch = time.perf_counter(), processor_seconds(engine), Stopwatch()
        orders = allotment.limit(server.orders(round), none=asks_nothing(record, round))
        with watch.phase("clients"):
            result = engine.run_round(orders)
        with watch.phase("aggregate"):
            server.aggregate(result.orders, result.updates, result.mean)
        if server.uneven in server.notes:  # at once: a run that is killed has it, and says it once
            record.add_notes([server.uneven])
        allotment.answered(result.updates)
        metrics = round_metrics(round, result.updates, counts) | result.metrics
        engine.notes += leave_out(metrics, server.refused, result.names)
        metrics |= {"largest_share": server.largest_share, "asked_classes": asked_classes(result.journal)}
        metrics |= server.facts
        engine.notes += rising_loss(settings, server.num_classes, [*past, metrics])
        if settings.away:
            metrics["clients_here"] = len(present(settings, round))
        with watch.phase("evaluate"):
            metrics |= evaluate(metrics, server.weights, result.updates, past, due=round in ends)
        metrics |= seconds(result.updates, watch, start)
        metrics["seconds_processor"] = processor_seconds(engine) - used
        record.append(metrics, result.journal)
        measured = main_value(metrics, settings.main_metric) is not None
        if settings.keep_best and measured and best_round([*past, metrics], settings.main_metric) == round:
            write_atomically(record.path / BEST, to_bytes({**server.to_arrays(), "round": np.array([round])}))
        if result.sums_lost:
            server.begin_anew()
        ending = bool(stop_reason(settings, [metrics]))
        if ending or round in ends:  # before the checkpoint: a kill does the round again
            write_confusion(record.path / (CONFUSION if ending else kept_as(round)), round, evaluate, server)
            written = ending
        checkpoint.commit(round, server.to_arrays())
        past.append(metrics)
        loggers(metrics)
        on_round(metrics)
    if past and not written:
        write_confusion(record.path / CONFUSION, past[-1]["round"], evaluate, server)
    return past


def write_confusion(file: Path, round: int, evaluate: Evaluation, server: Server) -> None:
    """What the model takes for what after a round, where that is measured."""
    matrix = evaluate.confusion(server.weights)
    if matrix is not None:
        body = {"round": round, "matrix": matrix, "quality": evaluate.quality(server.weights)}
        keep_earlier(file, round)
        write_atomically(file, json.dumps(body).encode())


def keep_earlier(file: Path, round: int) -> None:
    """``confusion.json`` of an earlier end becomes ``confusion-60.json``: a study of fewer rounds still reads it."""
    if (before := round_of(file)) is not None and before < round:
        file.replace(file.with_name(kept_as(before)))


def round_of(file: Path) -> int | None:
    """The round of a confusion matrix; None without one that can be read: it is measured again at the end of a run."""
    try:
        return int(json.loads(file.read_text(encoding="utf-8"))["round"]) if file.is_file() else None
    except (ValueError, KeyError, TypeError):
        return None


def kept_as(round: int) -> str:
    """Where the confusion matrix of an earlier end is."""
    return f"confusion-{round}.json"


def warned_before(record: Record, done: int) -> str:
    """The first warning of an uneven average up to round ``done``; others, of rounds that are done again, are removed.

    Earlier versions gave it again at every resume.
    """
    said = [note for note in record.notes if UNEVEN_SHARE in note]
    first = next((note for note in said if (at := re.match(r"from round (\d+) on", note)) and int(at[1]) <= done), "")
    record.add_notes([], [note for note in said if note != first])
    return first


def asks_nothing(record: Record, round: int) -> bool:
    """Whether no client asks in a round: in the last one where rounds wait for people, whose answers it would lose."""
    last = round == record.settings.rounds
    return last and record.kind == "simulation" and record.settings.waits == math.inf


def prepare(engine: Engine, server: Server) -> None:
    """The messages before the first round, such as those that fit features; a run killed in them begins again."""
    for round in server.preparation:
        result = engine.run_round(server.orders(round))
        server.aggregate(result.orders, result.updates, result.mean)


def processor_seconds(engine: Engine) -> float:
    """Processor seconds of this process and the engine's so far: what a run costs, however busy the machine is."""
    return time.process_time() + engine.processor_seconds()


@dataclass(frozen=True)
class Restored:
    """A run as its last whole checkpoint left it, or as it begins."""

    server: Server
    checkpoint: Checkpoint
    done: int
    problems: list[str]
    """What was wrong with newer checkpoints."""


def restore(record: Record, spec: NetSpec, saved: Checkpoint | None = None) -> Restored:
    """The state to run the next round from; lines of rounds after it are cut off and done again."""
    torch.set_num_threads(1)
    settings, checkpoint = record.settings, saved or Checkpoint(record.path / "checkpoint")
    manifest, problems = checkpoint.latest()
    first = new_start(spec, settings)
    server = make_server(record.run, settings, first, spec)
    if manifest is not None:
        server.restore(checkpoint.read_arrays(manifest.server))
    if server.weights.keys() != first.weights.keys():
        raise CheckpointError(f"{checkpoint.path} holds weights of another network than '{settings.net}'")
    done = 0 if manifest is None else manifest.round
    record.cut_after(done)
    server.uneven = warned_before(record, done)
    return Restored(server, checkpoint, done, problems)
