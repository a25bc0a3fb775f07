"""The fast engine on a CPU: persistent processes of one thread each.

Data lies in shared memory. A round's model goes to each worker once; clients are handed out one at
a time, the one that took longest in its last turn first, so the workers end together. A worker
that dies is replaced and its client is run again from its saved state; a client that kills three
workers ends the run with its name.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from chase.core.arena import Arena
from chase.core.errors import ChaseError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Weights, part_of, prefixed
from chase.learning.inference import CHUNK
from chase.run.checkpoint import Checkpoint, SavedFile
from chase.run.engine import RoundResult
from chase.simulation import frames
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
    cost: float
    deaths: int = 0
    answer: frames.Frame | None = None


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
    }
    arrays = prefixed("w.", order.weights) | prefixed("x.", order.extras) | prefixed("s.", order.start or {})
    return {"kind": "order", "order": number, "fields": fields}, arrays


class Workers:
    """Runs clients in ``count`` processes."""

    def __init__(self, world: World, checkpoint: Checkpoint, saved: Mapping[ClientId, SavedFile], count: int) -> None:
        self._saved, self._checkpoint, self._test_size = dict(saved), checkpoint, len(world.test)
        self._run_seed = world.settings.seed
        self._costs = {client: float(part.size) for client, part in enumerate(world.parts)}
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

    @property
    def saved(self) -> Mapping[ClientId, SavedFile]:
        """The file of every client that has had a turn."""
        return self._saved

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        tasks = {
            client: _Task(
                f"client {client}",
                order,
                {"kind": "turn", "client": client, "saved": self._saved_header(client)},
                self._costs[client],
            )
            for client, order in orders.items()
        }
        self._run(list(tasks.values()))
        result = RoundResult(orders)
        for client in sorted(tasks):
            header, arrays = tasks[client].answer or ({}, {})
            weights, extras = part_of(arrays, "w."), part_of(arrays, "x.")
            metrics = header["metrics"]
            round = orders[client].round
            result.updates.append(ClientUpdate(client, round, weights, header["num_labeled"], metrics, extras))
            result.journal.extend(header["journal"])
            self._saved[client] = SavedFile(**header["saved"])
            self._costs[client] = sum(s for key, s in metrics.items() if key.startswith("seconds_"))
        return result

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the whole test set, a share a worker, cut at multiples of a chunk."""
        chunks = -(-self._test_size // CHUNK)
        share = -(-chunks // len(self._workers)) * CHUNK
        order = RoundOrder("", -1, self._run_seed, weights)
        tasks = [
            _Task("the test set", order, {"kind": "test", "first": at, "last": min(at + share, self._test_size)}, 1.0)
            for at in range(0, self._test_size, share)
        ]
        self._run(tasks)
        return torch.cat([torch.from_numpy(task.answer[1]["logits"]) for task in tasks if task.answer])

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

    def _saved_header(self, client: ClientId) -> dict[str, str] | None:
        return dict(vars(self._saved[client])) if client in self._saved else None

    def _run(self, tasks: list[_Task]) -> None:
        """Hand out the tasks, dearest first, until each has its answer."""
        waiting = sorted(tasks, key=lambda task: task.cost)
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
            task.answer = (header, arrays)

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
        }
        frames.send(ours, hello)
        return worker


def _end(worker: _Worker) -> None:
    worker.line.close()
    os.close(worker.life)
    worker.process.kill()
    worker.process.wait()
