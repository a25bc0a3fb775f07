"""Clients on a Ray cluster: one actor per core, batches of clients per call, sums of whole blocks back.

The data goes to each node once (Ray's object store). States are in the checkpoint on this machine: they go with a call
and come back with its answer. A node that dies costs the calls that it was running; those are made again elsewhere.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chase.core.errors import ChaseError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Weights
from chase.learning.inference import CHUNK
from chase.run.checkpoint import Checkpoint
from chase.run.client_counts import counts_of
from chase.run.engine import RoundResult
from chase.server.intake import Intake, adds_up, blocks_of
from chase.simulation import parcels
from chase.simulation.batches import plan_pieces
from chase.simulation.cluster import ClusterError, check_same, connect
from chase.simulation.ray_actor import TurnActor, TurnJob
from chase.simulation.worker import pack_world
from chase.simulation.workers import TRIES, WorkerFailed
from chase.simulation.world import World

AHEAD = 2
"""Batches of small clients that an actor is sent at a time: it begins the second while the first one's answer is read.
Clients that go one by one are dear, and one that waits at a busy actor could run elsewhere."""
SMALL = 2048
"""Bytes that an answer has for a client beside its arrays, or for a client without a state so far; a guess."""
RECENT = 64
"""Turns whose mean says how long one takes."""
PATIENCE = 300.0
"""Seconds to wait for an actor when none is left."""


@dataclass(eq=False)
class _Call:
    """A piece of work for one actor."""

    name: str
    send: Callable[[_Actor], Any]
    """Makes the call and returns the reference of its answer, or the references of its pieces."""
    take: Callable[[Any], None]
    deaths: int = 0


@dataclass(eq=False)
class _Actor:
    handle: Any
    node: str = ""
    calls: list[_Call] = field(default_factory=list)
    """What it has been sent and has not answered: it runs the first, the others wait there."""
    processor: float = 0.0
    order: int = 0
    """The number of the order that it was sent last."""


@dataclass(frozen=True)
class _Order:
    """An order under its number: sent to an actor once, with its first call or through the object store."""

    number: int
    order: RoundOrder
    reference: Any
    """In the object store, None if it is small enough to go with a call."""

    @property
    def size(self) -> int:
        """Bytes of the weights and of what travels beside them."""
        return sum(a.nbytes for some in (self.order.weights, self.order.extras) for a in some.values())


@dataclass
class _Round:
    """What the calls of a round share."""

    orders: Mapping[ClientId, RoundOrder]
    intake: Intake
    journal: dict[ClientId, list[dict[str, Any]]] = field(default_factory=dict)


class OnRay:
    """Runs clients in actors of a Ray cluster."""

    def __init__(self, world: World, checkpoint: Checkpoint, address: str, cores: int, count: int) -> None:
        self._settings, self._checkpoint, self._test_size = world.settings, checkpoint, len(world.test)
        self._kernels = world.settings.kernels
        self._costs = world.parts.sizes.astype(np.float64)
        self._timed: deque[float] = deque(maxlen=RECENT)
        self.notes: list[str] = []
        self._processor, self._number, self._classes = 0.0, 0, world.num_classes
        self._ray = connect(address, cores)
        self._made_here = not address
        header, arrays = pack_world(world)
        self._header, self._arrays = self._ray.put(header), self._ray.put(arrays)
        self._actors: list[_Actor] = []
        self._coming: dict[Any, _Actor] = {}
        wanted = count or min(int(self._ray.cluster_resources().get("CPU", 1)), world.settings.clients)
        try:
            for _ in range(max(1, wanted)):
                self._start()
            self._wait_for(1)
        except BaseException:
            self.close()
            raise

    @property
    def nodes(self) -> list[str]:
        """The node of each actor that is ready."""
        return [actor.node for actor in self._actors]

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        now = _Round(orders, Intake(self._settings, orders))
        sent = {id(order): self._numbered(order) for order in {id(o): o for o in orders.values()}.values()}
        blocks = blocks_of(list(orders))
        pieces = plan_pieces(list(blocks.values()), self._costs, len(self._actors) or 1, self._usual())
        number = {clients[0]: (block, len(clients)) for block, clients in blocks.items()}
        calls = []
        for piece in pieces:
            block, size = number.get(piece[0], (0, 0))
            whole = block if size == len(piece) > 1 and adds_up(self._settings) else None
            calls.append(self._turns(now, piece, sent[id(orders[piece[0]])], whole))
        self._run(calls, AHEAD if len(calls) < len(orders) else 1)
        lines = [line for client in sorted(now.journal) for line in now.journal[client]]
        return RoundResult(orders, now.intake.updates, now.intake.mean(), lines)

    def _usual(self) -> float:
        """Seconds of a usual turn; nothing is known before the first."""
        return sum(self._timed) / len(self._timed) if self._timed else math.inf

    def _numbered(self, order: RoundOrder) -> _Order:
        self._number += 1
        whole = _Order(self._number, order, None)
        large = parcels.pieces_for(whole.size) == 0
        return _Order(self._number, order, self._ray.put(order) if large else None)

    def _send(self, actor: _Actor, method: str, order: _Order, about: tuple[Any, ...], expected: int) -> Any:
        """Make a call; the order goes with it where the actor does not have it. ``expected``: bytes of the answer."""
        new, actor.order = actor.order != order.number, order.number
        small = new and order.reference is None
        blob = parcels.pack((order.number, order.order if small else None, *about))
        pieces = parcels.cut(blob, parcels.pieces_for(len(blob)) or 1)
        count, reference = parcels.pieces_for(expected), order.reference if new else None
        call = getattr(actor.handle, method).options(num_returns=count or 1)
        return call.remote(count, reference, *pieces)

    def _turns(self, now: _Round, clients: list[ClientId], order: _Order, whole: int | None) -> _Call:
        """The turns of some clients; of a whole block its sum comes back, else their updates."""

        def send(actor: _Actor) -> Any:
            jobs = self._jobs(clients)
            states = sum(SMALL if saved is None else saved.size + SMALL for _, saved, _ in jobs)
            expected = states + order.size * (len(clients) if whole is None else 2)  # float32, or a sum in float64
            return self._send(actor, "turns", order, (jobs, whole), expected)

        def take(answer: dict[str, Any]) -> None:
            if whole is not None:
                now.intake.take_block(whole, answer["sum"], answer["updates"])
            for update, turn in zip(answer["updates"], answer["turns"], strict=True):
                if whole is None:
                    now.intake.take(update)
                self._keep(now, update, turn)

        name = f"client {clients[0]}" if len(clients) == 1 else f"clients {clients[0]} to {clients[-1]}"
        return _Call(name, send, take)

    def _jobs(self, clients: list[ClientId]) -> list[TurnJob]:
        where = {client: self._checkpoint.where(client) for client in clients}
        blobs = self._checkpoint.read_blobs(saved for saved in where.values() if saved is not None)
        return [(client, saved, None if saved is None else blobs[saved]) for client, saved in where.items()]

    def _keep(self, now: _Round, update: ClientUpdate, turn: Mapping[str, Any]) -> None:
        client, metrics = update.client, update.metrics
        saved = self._checkpoint.write_client(client, max(update.round, 0), turn["blob"])
        self._checkpoint.stage(client, saved, counts_of(metrics))
        now.journal[client] = turn["journal"]
        self._costs[client] = sum(s for key, s in metrics.items() if key.startswith("seconds_"))
        self._timed.append(self._costs[client])

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the whole test set, a share per actor, cut at multiples of a chunk."""
        chunks = -(-self._test_size // CHUNK)
        share = -(-chunks // max(1, len(self._actors))) * CHUNK
        order, found = self._numbered(RoundOrder("", -1, self._settings.seed, weights)), dict[int, Tensor]()

        def call(at: int) -> _Call:
            last = min(at + share, self._test_size)
            expected = SMALL + 8 * self._classes * (last - at)

            def take(answer: Any) -> None:
                found[at] = torch.from_numpy(np.array(answer["logits"]))

            return _Call("the test set", lambda actor: self._send(actor, "test", order, (at, last), expected), take)

        self._run([call(at) for at in range(0, self._test_size, share)])
        return torch.cat([found[at] for at in sorted(found)])

    def processor_seconds(self) -> float:
        """What the actors have used so far, those that died since their last answer aside."""
        return self._processor

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        for actor in (*self._actors, *self._coming.values()):
            self._ray.kill(actor.handle)
        self._actors, self._coming = [], {}
        if self._made_here:
            self._ray.shutdown()

    def _run(self, calls: list[_Call], ahead: int = 1) -> None:
        """Make the calls, in the order given, until each is answered; an actor is sent ``ahead`` of them at a time."""
        waiting, running = calls[::-1], dict[Any, tuple[Any, _Actor, _Call]]()
        while waiting or running:
            for depth in range(ahead):
                for actor in self._actors:
                    if waiting and len(actor.calls) == depth:
                        call = waiting.pop()
                        sent = call.send(actor)
                        running[sent[0] if isinstance(sent, list) else sent] = sent, actor, call
                        actor.calls.append(call)
            if not running:
                self._wait_for(1)
                continue
            ready, _ = self._ray.wait([*running, *self._coming], num_returns=1, timeout=10.0)
            for reference in ready:
                if reference in self._coming:
                    self._welcome(reference)
                else:
                    self._answered(*running.pop(reference), waiting)

    def _answered(self, sent: Any, actor: _Actor, call: _Call, waiting: list[_Call]) -> None:
        try:
            answer = parcels.answered(self._ray.get(sent))
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ChaseError):
                raise WorkerFailed(str(error.cause)) from None
            raise RuntimeError(f"an actor failed:\n{error}") from None
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            if actor in self._actors:  # else another of its calls told of it
                self._lost(actor, error)
            waiting.append(call)
            return
        actor.calls.remove(call)
        self._processor += answer["processor"] - actor.processor
        actor.processor = answer["processor"]
        call.take(answer)

    def _lost(self, actor: _Actor, error: Exception) -> None:
        """An actor or its node died: another takes its place when the cluster has room."""
        self._actors.remove(actor)
        self._ray.kill(actor.handle)  # one that is only out of reach would keep its core
        call = actor.calls[0]
        call.deaths += 1
        why = type(error).__name__
        self.notes.append(f"an actor on node {actor.node} died ({why}) while running {call.name}; it is run again")
        if call.deaths >= TRIES:
            raise WorkerFailed(f"{TRIES} actors died while running {call.name}: giving up")
        self._start()

    def _start(self) -> None:
        remote = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD", enable_task_events=False)(
            TurnActor
        )
        handle = remote.remote(self._header, self._arrays)
        self._coming[handle.about.remote()] = _Actor(handle)

    def _welcome(self, reference: Any) -> None:
        """An actor has started: it joins if its node has the same versions."""
        actor = self._coming.pop(reference)
        try:
            about = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), "").strip()
            if "No module named" in str(error) or "failed to import" in str(error):
                raise ClusterError(f"a node of the cluster cannot import chase ({reason}): install it there") from None
            self._start()
            return
        check_same(about["node"], about, self._kernels)
        actor.node = about["node"]
        self._actors.append(actor)

    def _wait_for(self, count: int) -> None:
        """Until so many actors are ready; a cluster without room for them is refused after a while."""
        deadline = time.monotonic() + PATIENCE
        while len(self._actors) < count:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no node of the Ray cluster has had a free core for {PATIENCE:.0f} s: free one, "
                    "or use engine=workers"
                )
            ready, _ = self._ray.wait(list(self._coming), num_returns=1, timeout=5.0)
            for reference in ready:
                self._welcome(reference)
