"""The options of commands that can run on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from chase.core.errors import SettingsError
from chase.simulation.cluster import check_answers, need_ray
from chase.simulation.engines import cores

if TYPE_CHECKING:
    from chase.studies.on_ray import RayJobs

OnOpt = Annotated[str, typer.Option("--on", help="Where to run: here, or ray for a Ray cluster (extra `ray`).")]
AddressOpt = Annotated[
    str, typer.Option("--address", help="Address of the Ray cluster; without one, a cluster is started here.")
]


def jobs_on(on: str, address: str) -> Callable[[], RayJobs] | None:
    """How to connect to the cluster that runs jobs; None where they run here."""
    if on != "ray":
        return None

    def connect() -> RayJobs:
        from chase.studies.on_ray import RayJobs  # an extra

        return RayJobs(address, cores())

    return connect


def clients_on(on: str, address: str) -> dict[str, str]:
    """The settings that run the clients of one run on the cluster."""
    return {"engine": "ray", "ray_address": address} if on == "ray" else {}


def check_on(on: str, address: str) -> None:
    """Refuse a place that is not known, an address without --on ray or that does not answer, and a missing extra."""
    if on not in ("here", "ray"):
        raise SettingsError(f"--on {on} is invalid: use here or ray")
    if address and on != "ray":
        raise SettingsError(f"--address {address} is for a Ray cluster: add --on ray")
    if on == "ray":
        need_ray()
        check_answers(address)  # before data is loaded and work is planned
