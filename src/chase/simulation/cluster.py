"""Finding a Ray cluster, and refusing one that cannot give the same results."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from chase.core.address import host_port
from chase.core.errors import ChaseError, SettingsError
from chase.core.provenance import provenance


class ClusterError(ChaseError):
    """A cluster that cannot be used."""


PATIENCE = 10.0
"""Seconds that a cluster has to answer."""
SAME = ("python", "torch", "numpy", "source")
"""What must be the same on every node: results depend on it."""


def need_ray() -> Any:
    """The module, or a sentence that says how to get it."""
    if importlib.util.find_spec("ray") is None:
        raise SettingsError("Ray is not installed: pip install 'chase-fal[ray]', or leave --on ray and engine=ray out")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    return ray


def connect(address: str, cores: int) -> Any:
    """Ray, connected to the cluster at ``address``, or to one started here with so many cores.

    A connection that exists already is used. Threads are held to one in every process: results depend on it.
    """
    ray = need_ray()
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": environment()}
    try:
        if address:
            check_answers(address)
            ray.init(address=address, **options)
        else:
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        where = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise unreachable(where, reason) from None
    return ray


def unreachable(where: str, reason: str) -> ClusterError:
    """What to do about a cluster that does not answer."""
    return ClusterError(
        f"{where} cannot be reached ({reason}): check the address, or start one with `ray start --head`"
    )


def check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would wait for minutes. Other names (auto) are Ray's."""
    where, bare = f"the Ray cluster at {address}", address.removeprefix("ray://")
    place = host_port(bare)
    if place is None:
        if ":" in bare and "://" not in bare:
            raise unreachable(where, "it is not HOST:PORT")
        return
    try:
        socket.create_connection(place, timeout=PATIENCE).close()
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from None


def environment() -> dict[str, Any]:
    """What every process on the cluster finds in its environment."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return {"env_vars": {**threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}}


def versions() -> dict[str, Any]:
    """What this machine has, in the words of ``TurnActor.about``."""
    found = provenance()
    return {"python": found["python"], "source": found["source"], **found["packages"]}


def check_same(node: str, there: Mapping[str, Any]) -> None:
    """Refuse a node whose versions differ from those here."""
    here = versions()
    for what in SAME:
        if there.get(what) != here[what]:
            name = "the source of chase" if what == "source" else what
            raise ClusterError(
                f"node {node} has {name} {there.get(what)}, this machine {here[what]}: results would differ; "
                "install the same on every node"
            )
