"""Two Ray nodes of one core each on this machine against two ``workers``: both engines in one process, round by round.

The engines take turns, each begins every second pair of rounds, so that what else runs on the machine disturbs both
alike; the weights are compared after every round. A round is that of a run without its evaluation: orders, turns,
average, checkpoint.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import generated
from chase.core.weights import digest
from chase.models.net import get_weights
from chase.run.checkpoint import Checkpoint
from chase.run.engine import Engine
from chase.server.server import Server
from chase.settings import Settings
from chase.simulation.workers import Workers
from chase.simulation.world import World

WARM = 3
"""Rounds that are not counted: processes load what they need."""

LEAN = {"include_dashboard": False, "include_log_monitor": False}
"""Without what Ray runs beside its nodes for people to look at: two cores are shared by three nodes here."""


class Side:
    """One engine with its server and checkpoint, and the rounds that it has held."""

    def __init__(self, engine: Engine, world: World, checkpoint: Checkpoint) -> None:
        self.engine, self._checkpoint = engine, checkpoint
        self.server = Server("run", world.settings, get_weights(world.net()))
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self.took_part = 0

    def round(self, number: int) -> None:
        """Hold one round and time it."""
        start, used = time.perf_counter(), self._processor()
        orders = self.server.orders(number)
        result = self.engine.run_round(orders)
        self.server.aggregate(orders, result.updates, result.mean)
        self._checkpoint.commit(number, self.server.to_arrays())
        self.took_part = len(orders)
        if number > WARM:
            self.seconds.append(time.perf_counter() - start)
            self.processor.append(self._processor() - used)

    def _processor(self) -> float:
        """Of the engine's processes and this one; Ray's own (raylets, stores) are not counted."""
        return time.process_time() + self.engine.processor_seconds()


def compare(settings: Settings, samples: int, rounds: int = 63) -> dict[str, Any]:
    """Seconds per round of each engine (medians), their ratio, and every round that counted."""
    import ray
    from ray.cluster_utils import Cluster

    from chase.simulation import cluster
    from chase.simulation.ray import OnRay

    cluster.need_ray()
    torch.set_num_threads(1)
    data = generated("digits", samples * settings.clients, (1, 8, 8))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "no_monitor": True, **LEAN})
    sides: dict[str, Side] = {}
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, **LEAN)
        with tempfile.TemporaryDirectory(prefix="chase-bench-") as place:
            world = World.of(settings, data)
            kept = {name: Checkpoint(Path(place) / name) for name in ("workers", "ray")}
            sides["workers"] = Side(Workers(world, kept["workers"], 2), world, kept["workers"])
            on_ray = OnRay(world, kept["ray"], made.address, 2, 2)
            sides["ray"] = Side(on_ray, world, kept["ray"])
            on_ray._wait_for(2)
            for number in range(1, rounds + 1):
                for name in sorted(sides, reverse=number % 2 == 0):
                    sides[name].round(number)
                if len({digest(side.server.weights) for side in sides.values()}) != 1:
                    raise SystemExit(f"the weights differ after round {number}")
    finally:
        for side in sides.values():
            side.engine.close()
        ray.shutdown()
        made.shutdown()
    return {"clients": settings.clients, "samples": samples, **told(sides)}


def told(sides: dict[str, Side]) -> dict[str, Any]:
    """The figures of both engines."""
    ours, theirs = sides["ray"], sides["workers"]
    return {
        "took_part": ours.took_part,
        "seconds_per_round": {name: statistics.median(side.seconds) for name, side in sides.items()},
        "processor_seconds_per_round": {name: statistics.median(side.processor) for name, side in sides.items()},
        "ray_against_workers": statistics.median(ours.seconds) / statistics.median(theirs.seconds),
        "median_of_the_ratios": statistics.median(a / b for a, b in zip(ours.seconds, theirs.seconds, strict=True)),
        "rounds": {name: [round(s, 4) for s in side.seconds] for name, side in sides.items()},
    }
