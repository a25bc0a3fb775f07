"""The fast engine on a CPU: persistent processes of one thread each.

Data lies in shared memory. A round's model goes to each worker once; clients are handed out in small batches, of a
few dozen clients those that took longest in their last turn first, so the workers end together (``batches``).
Updates are added as they come. A worker that dies is replaced and its clients are run again from their saved
states; a batch that kills three workers ends the run with the names of its clients.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chase.core.arena import Arena
from chase.core.errors import ChaseError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.processes import without_interrupts
from chase.core.weights import Array, Weights, part_of, prefixed
from chase.learning.inference import CHUNK
from chase.run.checkpoint import Checkpoint
from chase.run.client_counts import counts_of
from chase.run.engine import RoundResult
from chase.run.segments import SavedState
from chase.server.intake import Intake
from chase.simulation import frames
from chase.simulation.batches import plan_batches
from chase.simulation.worker import pack_world
from chase.simulation.world import World

TRIES = 3
"""How many workers one piece of work may cost."""


class WorkerFailed(ChaseError):
    """Workers kept dying over one piece of work."""


@dataclass
class _Task:
    """A piece of work for one worker."""

    name: str
    order: RoundOrder
    header: dict[str, Any]
    take: Callable[[frames.Frame], None]
    """What is done with the answer, as soon as it comes."""
    deaths: int = 0


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    line: socket.socket
    life: int
    orders: list[RoundOrder] = field(default_factory=list)
    """What the worker has been sent for the tasks under way, by number."""
    task: _Task | None = None
    processor: float = 0.0
    """Processor seconds that it has told of."""

    def give(self, task: _Task) -> None:
        """Send a task, and the model first where the worker does not have it."""
        self.task = task
        number = next((n for n, known in enumerate(self.orders) if known is task.order), None)
        if number is None:
            number = len(self.orders)
            self.orders.append(task.order)
            frames.send(self.line, *_order_frame(task.order, number))
        frames.send(self.line, {**task.header, "order": number})


def _order_frame(order: RoundOrder, number: int) -> tuple[dict[str, Any], dict[str, Array]]:
    fields = {
        "run": order.run,
        "round": order.round,
        "seed": order.seed,
        "phase": order.phase,
        "track": order.track,
        "allowances": None if order.allowances is None else list(order.allowances.items()),
    }
    arrays = prefixed("w.", order.weights) | prefixed("x.", order.extras) | prefixed("s.", order.start or {})
    return {"kind": "order", "order": number, "fields": fields}, arrays


class Workers:
    """Runs clients in ``count`` processes."""

    def __init__(self, world: World, checkpoint: Checkpoint, count: int) -> None:
        self._checkpoint, self._test_size, self._started = checkpoint, len(world.test), 0
        self._settings = world.settings
        self._costs = world.parts.sizes.astype(np.float64)
        self._header, arrays = pack_world(world)
        self._arena = Arena.holding(arrays)
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self.notes: list[str] = []
        self._processor, self._idle_deaths = 0.0, 0
        try:
            for number in range(count):
                self._workers.append(self._start(number))
        except BaseException:
            self.close()
            raise

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        intake, journal = Intake(self._settings, orders), dict[ClientId, list[dict[str, Any]]]()

        def take(answer: frames.Frame) -> None:
            header, by_turn = answer[0], defaultdict[str, dict[str, Array]](dict)
            for name, array in answer[1].items():
                number, _, rest = name.partition("/")
                by_turn[number][rest] = array
            for place, turn in enumerate(header["turns"]):
                client, metrics, own = turn["client"], turn["metrics"], by_turn[str(place)]
                weights, extras, round = part_of(own, "w."), part_of(own, "x."), orders[turn["client"]].round
                intake.take(ClientUpdate(client, round, weights, turn["num_labeled"], metrics, extras))
                journal[client] = turn["journal"]
                self._checkpoint.stage(client, SavedState(*turn["saved"]), counts_of(metrics))
                self._costs[client] = sum(s for key, s in metrics.items() if key.startswith("seconds_"))

        batches = plan_batches(sorted(orders), self._costs, len(self._workers))
        self._run([self._task(batch, orders[batch[0]], take) for batch in batches])
        lines = [line for client in sorted(journal) for line in journal[client]]
        return RoundResult(orders, intake.updates, intake.mean(), lines)

    def _task(self, batch: list[ClientId], order: RoundOrder, take: Callable[[frames.Frame], None]) -> _Task:
        name = f"client {batch[0]}" if len(batch) == 1 else f"clients {batch[0]} to {batch[-1]}"
        clients = [[client, self._saved_header(client)] for client in batch]
        return _Task(name, order, {"kind": "turns", "clients": clients}, take)

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the whole test set, a share a worker, cut at multiples of a chunk."""
        chunks = -(-self._test_size // CHUNK)
        share = -(-chunks // len(self._workers)) * CHUNK
        order, found = RoundOrder("", -1, self._settings.seed, weights), dict[int, Tensor]()
        tasks = [
            _Task(
                "the test set",
                order,
                {"kind": "test", "first": at, "last": min(at + share, self._test_size)},
                lambda answer, at=at: found.update({at: torch.from_numpy(answer[1]["logits"])}),  # type: ignore[misc]
            )
            for at in range(0, self._test_size, share)
        ]
        self._run(tasks)
        return torch.cat([found[at] for at in sorted(found)])

    def processor_seconds(self) -> float:
        """What the workers have used so far, those that died since their last answer aside."""
        return self._processor

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            _end(worker)
        self._workers.clear()
        self._selector.close()
        self._arena.close()

    def _saved_header(self, client: ClientId) -> tuple[Any, ...] | None:
        saved = self._checkpoint.where(client)
        return None if saved is None else saved.values()

    def _run(self, tasks: list[_Task]) -> None:
        """Hand out the tasks, in the order given, until each has its answer."""
        waiting = tasks[::-1]
        self._idle_deaths = 0
        for worker in self._workers:
            worker.orders.clear()
        for worker in list(self._workers):
            self._give_next(worker, waiting)
        while any(worker.task is not None for worker in self._workers):
            for key, _ in self._selector.select():
                worker = next(w for w in self._workers if w.line is key.fileobj)
                try:
                    self._take(worker)
                except frames.Gone:
                    worker = self._replace(worker, waiting)
                self._give_next(worker, waiting)

    def _give_next(self, worker: _Worker, waiting: list[_Task]) -> None:
        """Give the worker the dearest task that is left, if there is one."""
        while waiting and worker.task is None:
            task = waiting.pop()
            try:
                worker.give(task)
            except frames.Gone:
                worker = self._replace(worker, waiting)

    def _take(self, worker: _Worker) -> None:
        header, arrays = frames.receive(worker.line)
        task, worker.task = worker.task, None
        self._processor += header["processor"] - worker.processor
        worker.processor = header["processor"]
        if header["kind"] == "refused":
            raise WorkerFailed(header["text"])
        if header["kind"] == "broken":
            raise RuntimeError(f"worker {worker.number} failed:\n{header['text']}")
        if task is not None:
            task.take((header, arrays))

    def _replace(self, dead: _Worker, waiting: list[_Task]) -> _Worker:
        """A new worker in the place of a dead one; what the dead one did goes back to the waiting."""
        code = dead.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        task = dead.task
        doing = task.name if task is not None else "nothing"
        self.notes.append(f"worker {dead.number} (process {dead.process.pid}) died by {how} while running {doing}")
        self._selector.unregister(dead.line)
        _end(dead)
        self._idle_deaths += task is None
        if self._idle_deaths > TRIES * len(self._workers):
            raise WorkerFailed(f"workers die as soon as they start, the last by {how}: giving up")
        fresh = self._start(dead.number)
        self._workers[self._workers.index(dead)] = fresh
        if task is not None:
            task.deaths += 1
            if task.deaths >= TRIES:
                raise WorkerFailed(f"{TRIES} workers died while running {task.name}, the last by {how}: giving up")
            waiting.append(task)
            self.notes[-1] += "; it is run again"
        return fresh

    def _start(self, number: int) -> _Worker:
        ours, theirs = socket.socketpair()
        life_read, life_write = os.pipe()
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        descriptors = (theirs.fileno(), life_read, self._arena.descriptor)
        command = [sys.executable, "-m", "chase.simulation.worker", *(str(d) for d in descriptors)]
        environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with without_interrupts():
            process = subprocess.Popen(command, pass_fds=descriptors, env=environment, stdin=subprocess.DEVNULL)
        theirs.close()
        os.close(life_read)
        worker = _Worker(number, process, ours, life_write)
        self._selector.register(ours, selectors.EVENT_READ)
        hello = {
            "path": sys.path,
            "layout": self._arena.layout,
            "world": self._header,
            "checkpoint": str(self._checkpoint.path),
            "writer": f"worker-{self._started}",
        }
        self._started += 1  # a new worker never writes into the segment of a dead one
        frames.send(ours, hello)
        return worker


def _end(worker: _Worker) -> None:
    worker.line.close()
    os.close(worker.life)
    worker.process.kill()
    worker.process.wait()
