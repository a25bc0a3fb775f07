"""Which engine runs a simulation."""

from __future__ import annotations

import os

from chase.client.build import check_device
from chase.run.checkpoint import Checkpoint
from chase.run.engine import Engine
from chase.settings import Settings
from chase.simulation.cluster import check_answers, need_ray
from chase.simulation.inprocess import InProcess
from chase.simulation.workers import Workers
from chase.simulation.world import World


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(settings: Settings) -> int:
    """How many worker processes to start; 0 means none: everything in this process."""
    if settings.engine == "inprocess" or settings.device != "cpu":
        return 0
    wanted = min(settings.workers or cores(), settings.clients)
    return wanted if wanted > 1 or settings.engine == "workers" else 0


def check_engine(settings: Settings) -> None:
    """Refuse a cluster that cannot be reached before anything is written; a node's versions are checked later."""
    if settings.engine == "ray":
        need_ray()
        check_answers(settings.ray_address)


def make_engine(world: World, checkpoint: Checkpoint) -> Engine:
    """Workers on a CPU with several cores, else in process; a Ray cluster where that is asked for."""
    settings = world.settings
    check_device(settings.device)  # before processes are started
    if settings.engine == "ray":
        from chase.simulation.ray import OnRay  # an extra

        return OnRay(world, checkpoint, settings.ray_address, settings.workers or cores(), settings.workers)
    count = worker_count(world.settings)
    if count == 0:
        return InProcess(world, checkpoint)
    return Workers(world, checkpoint, count)
