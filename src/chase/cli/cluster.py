"""The options of commands that can run on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from chase.core.errors import SettingsError
from chase.simulation.cluster import need_ray

OnOpt = Annotated[str, typer.Option("--on", help="Where to run: here, or ray for a Ray cluster (extra `ray`).")]
AddressOpt = Annotated[
    str, typer.Option("--address", help="Address of the Ray cluster; without one, a cluster is started here.")
]


def check_on(on: str, address: str) -> None:
    """Refuse a place that is not known, an address without --on ray, and a missing extra."""
    if on not in ("here", "ray"):
        raise SettingsError(f"--on {on} is not known: use here or ray")
    if address and on != "ray":
        raise SettingsError(f"--address {address} is for a Ray cluster: add --on ray")
    if on == "ray":
        need_ray()
