"""The server's side on Flower: a thin shell over ``chase.federation``."""

from __future__ import annotations

from contextlib import suppress

from flwr.supercore.runtime import RuntimeHttpClient

from chase.core.errors import ChaseError
from chase.federation.diary import Diary
from chase.federation.rules import FederationDirectory
from chase.federation.run import run_federation
from chase.flower.grid import FlowerTransport
from chase.run.record import RunHeld


def serve(federation: FederationDirectory, client: RuntimeHttpClient, run: int) -> None:
    """Hold the rounds that are left of a federation."""
    transport = FlowerTransport(
        client, run, lambda: federation.roster, federation.rules.busy_limit, federation.most_answer
    )
    try:
        run_federation(federation, transport)
    except RunHeld:
        raise  # the state in the directory is the other's
    except ChaseError as error:
        diary = Diary(federation.run)
        with suppress(ChaseError, OSError):  # a full disk: the log says it
            diary.note(0, "stopped", why=str(error))
            diary.show(phase="failed", why=str(error))
        raise
