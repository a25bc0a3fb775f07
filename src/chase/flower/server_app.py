"""The server's side on Flower: a thin shell over ``chase.federation``."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from chase.core.errors import ChaseError
from chase.federation.diary import Diary
from chase.federation.ops.launch import AlreadyServed, only_server
from chase.federation.rules import FederationDirectory
from chase.federation.server import FederationServer
from chase.flower.grid import FlowerTransport

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Hold the rounds that are left of the federation whose directory the run names."""
    charter = FederationDirectory(Path(str(context.run_config["federation"])))
    post = FlowerTransport(grid, lambda: charter.roster, charter.rules.busy_limit)
    try:
        with only_server(charter.run):
            FederationServer(charter, post).run()
    except AlreadyServed:
        raise  # the state in the directory is the other's
    except ChaseError as error:
        diary = Diary(charter.run)
        diary.note(0, "stopped", why=str(error))
        diary.show(phase="failed", why=str(error))
        raise
