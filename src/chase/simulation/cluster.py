"""Finding a Ray cluster, and refusing one that cannot give the same results."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from chase.core.address import host_port
from chase.core.errors import ChaseError, SettingsError
from chase.core.provenance import provenance
from chase.learning.native.choice import chosen


class ClusterError(ChaseError):
    """A cluster that cannot be used."""


PATIENCE = 10.0
"""Seconds that a cluster has to answer."""
RAYS_OWN = ("", "auto", "local")
"""Addresses without a port that Ray knows: one is started here, the one of this machine."""
SETTINGS_FRAME = 4
"""The type of HTTP/2's frame of settings, with which each side begins."""
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
        quiet(ray)
    except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        where = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise unreachable(where, reason) from None
    return ray


def quiet(ray: Any) -> None:
    """Keep Ray's own messages off standard output, which belongs to the command.

    Of a node that dies Ray prints dozens of lines there, whatever ``log_to_driver`` says. Its log files have them, and
    what a death costs is told in a sentence.
    """
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = _to_log


def _to_log(data: Mapping[str, Any], *arguments: Any, **options: Any) -> None:
    logging.getLogger("chase.ray").info("%s", "\n".join(map(str, data.get("lines", ()))))


def unreachable(where: str, reason: str) -> ClusterError:
    """What to do about a cluster that does not answer."""
    return ClusterError(
        f"{where} cannot be reached ({reason}): check the address, or start one with `ray start --head`"
    )


def check_answers(address: str) -> None:
    """Refuse an address where no Ray listens: Ray itself would wait for minutes. Other names (auto) are Ray's."""
    where, bare = f"the Ray cluster at {address}", address.removeprefix("ray://")
    place = host_port(bare)
    if place is None:
        if "://" not in bare and (":" in bare or (bare == address and address not in RAYS_OWN)):
            raise unreachable(where, "it is not HOST:PORT")
        return
    try:
        with socket.create_connection(place, timeout=PATIENCE) as line:
            spoken = os.environ.get("RAY_USE_TLS", "0") != "0" or speaks_http2(line)
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from None
    if not spoken:
        raise unreachable(where, "something else than Ray answers there")


def speaks_http2(line: socket.socket) -> bool:
    """Whether the other side answers as gRPC does: its first frame are its settings."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS_FRAME, 0, 0, 0, 0, 0]))
    head = b""
    while len(head) < 9 and (more := line.recv(9 - len(head))):
        head += more
    return len(head) == 9 and head[3] == SETTINGS_FRAME


def environment() -> dict[str, Any]:
    """What every process on the cluster finds in its environment."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return {"env_vars": {**threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}}


def versions() -> dict[str, Any]:
    """What this machine has, in the words of ``TurnActor.about``."""
    found = provenance()
    return {"python": found["python"], "source": found["source"], "kernels": chosen("auto"), **found["packages"]}


def check_same(node: str, there: Mapping[str, Any], kernels: str = "") -> None:
    """Refuse a node whose versions differ from those here, or that lacks the kernels of the run."""
    here = versions()
    for what in SAME:
        if there.get(what) != here[what]:
            name = "the source of chase" if what == "source" else what
            raise ClusterError(
                f"node {node} has {name} {there.get(what)}, this machine {here[what]}: results would differ; "
                "install the same on every node"
            )
    if kernels == "compiled" and there.get("kernels") != "compiled":
        raise ClusterError(
            f"node {node} has no compiled kernel, or a processor without AVX2, and this run is computed by it: install "
            "chase there with a C compiler, or begin another run with --set kernels=fused"
        )
