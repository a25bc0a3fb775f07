"""Small worlds for tests: generated images, an annotator that does as it is told, a store in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from chase.annotation.annotator import Answer, Question
from chase.annotation.behaviour import Behaviour
from chase.client.context import ClientContext
from chase.client.state import ClientState
from chase.client.turn import Client, Turn
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.randomness import rng
from chase.core.weights import digest
from chase.data.resident import DataSet, Samples
from chase.models.catalog import NetSpec, build
from chase.models.net import get_weights
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import net_spec
from chase.server.closed_form import make_server
from chase.server.server import new_start
from chase.settings import Settings, from_mapping
from chase.simulation.clients import SimulatedClients
from chase.simulation.world import World, split_among_clients

SMALL = {
    "clients": 4,
    "rounds": 4,
    "local_epochs": 3,
    "behaviour": "AbCo",
    "budget": 5,
    "lr": 0.02,
    "engine": "inprocess",
}
CHASE = [
    sys.executable,
    "-c",
    "from chase.cli import main, running; running.report_run = lambda path: None; main()",
]
"""The command, without the report at the end, which takes seconds to draw."""
TIMINGS = ("seconds", "seconds_by_phase", "seconds_processor")


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def small_settings(**changes: Any) -> Settings:
    return from_mapping({**SMALL, **changes}).resolved()


def blobs(count: int, classes: int = 2, seed: int = 0) -> tuple[Samples, np.ndarray]:
    """Noisy 8x8 images whose brightness tells their class."""
    draw = rng(seed, "blobs")
    labels = np.arange(count) % classes
    images = draw.integers(0, 160, (count, 1, 8, 8)) + (labels * 90 // max(1, classes - 1))[:, None, None, None]
    return Samples(torch.from_numpy(images.astype(np.uint8)), mean=(0.4,), std=(0.25,)), labels


def tiny_net(classes: int = 2, dropout: float = 0.0, seed: int = 0) -> nn.Module:
    return build(NetSpec("tiny-cnn", (1, 8, 8), classes, dropout), seed)


class Memory:
    """A state store that forgets nothing while it lives."""

    def __init__(self, state: ClientState) -> None:
        self.state, self.turns = state, {}

    def committed(self, run: str, round: int) -> Turn | None:
        return self.turns.get((run, round))

    def load(self) -> ClientState:
        return self.state

    def commit(self, run: str, round: int, turn: Turn) -> None:
        self.state = turn.state
        self.turns[run, round] = turn


class Person:
    """Answers from a table what is told to be ready; keeps a diary of what was asked and withdrawn."""

    def __init__(self, truth: np.ndarray, at_once: bool = True) -> None:
        self.truth, self.at_once = truth, at_once
        self.asked: list[Question] = []
        self.withdrawn: list[int] = []
        self.ready: list[Answer] = []

    def ask(self, questions: Sequence[Question]) -> None:
        self.asked += questions
        if self.at_once:
            self.ready += [Answer(q.sample, int(self.truth[q.sample]), "test") for q in questions]

    def withdraw(self, samples: Sequence[int]) -> None:
        self.withdrawn += samples

    def answers(self, turn: int) -> list[Answer]:
        ready, self.ready = self.ready, []
        return ready


class Site:
    """One client with all that surrounds it, and a count of the forward passes of its network."""

    def __init__(
        self, settings: Settings, count: int = 40, labeled: int = 6, at_once: bool = True, period: int = 1
    ) -> None:
        self.samples, self.truth = blobs(count)
        self.net = tiny_net()
        self.net.kernels = "plain"  # the hook below sees autograd's forward passes
        self.weights = get_weights(self.net)
        start = ClientState.start(np.arange(count), np.arange(labeled), self.truth[:labeled])
        self.store, self.person = Memory(start), Person(self.truth, at_once)
        self.context = ClientContext(0, settings, self.samples, self.net, 2, Behaviour(settings.budget, period))
        self.client = Client(self.context, self.person, self.store)
        self.inferred = self.trained = 0
        self.net.register_forward_hook(self._count)

    def _count(self, net: nn.Module, args: Any, output: torch.Tensor) -> None:
        if net.training:
            self.trained += len(output)
        else:
            self.inferred += len(output)

    def order(self, round: int, **changes: Any) -> RoundOrder:
        return RoundOrder("run", round, 0, self.weights, **changes)

    def turn(self, round: int, **changes: Any) -> Turn:
        """The client's turn; the next order carries what it sent up."""
        self.inferred = self.trained = 0
        turn = self.client.take_turn(self.order(round, **changes))
        self.weights = dict(turn.update.weights)
        return turn


def timeless(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what may differ between two equal runs."""
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in metrics]


def as_sites_tell(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics of a simulation without times and without what sites do not tell."""
    kept = [{key: value for key, value in line.items() if not key.startswith("easy_share")} for line in metrics]
    return [line | {"asked_classes": {}} for line in timeless(kept)]


def final_weights(run: Path) -> str:
    """Fingerprint of the global weights that a run directory holds."""
    checkpoint = Checkpoint(run / "checkpoint")
    manifest, problems = checkpoint.latest()
    assert manifest is not None
    assert problems == []
    return digest(checkpoint.read_arrays(manifest.server))


@dataclass
class Story:
    """What happened in a simulation, round by round."""

    updates: list[ClientUpdate] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    initial: set[int] = field(default_factory=set)


def simulate(
    settings: Settings, data: DataSet, where: Path, truth: np.ndarray | None = None, shuffle: int | None = None
) -> Story:
    """The federated loop without a record, with a truth of one's own, clients in shuffled order on request."""
    parts = split_among_clients(settings, data)
    labels = data.train_labels if truth is None else truth
    world = World(settings, data.train, labels, data.num_classes, parts, data.test)
    roster, saved, story = SimulatedClients(world, Checkpoint(where)), {}, Story()
    story.initial = {int(s) for client in range(settings.clients) for s in world.start(client).pools.labeled}
    first = new_start(net_spec(settings, data), settings)
    server = make_server("run", settings, first, net_spec(settings, data))
    for round in [*server.preparation, *range(1, settings.rounds + 1)]:
        orders, updates, journal = server.orders(round), [], []
        clients = list(orders) if shuffle is None else rng(shuffle, "order", round).permutation(list(orders)).tolist()
        for client in clients:
            turn, saved[client] = roster.take_turn(client, orders[client], saved.get(client))
            updates.append(turn.update)
            journal += turn.journal
        server.aggregate(orders, updates)
        if round < 1:
            continue
        story.updates += updates
        story.asked += sorted(journal, key=lambda line: (line["client"], line["sample"]))
        story.weights.append(digest(server.weights))
    return story


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine's result, from a thread of its own: a browser driver may keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
