"""All clients of a simulation, built from settings and data in the same way in every process."""

from __future__ import annotations

from chase.annotation.annotator import Annotator
from chase.client.build import Truth, build_client, usual_behaviours
from chase.client.state import ClientState
from chase.client.turn import Client, StateStore, Turn
from chase.core.errors import CheckpointError
from chase.core.messages import ClientId, RoundOrder
from chase.home.home import Home
from chase.home.store import HomeStore
from chase.run.checkpoint import Checkpoint, SavedFile
from chase.simulation.world import World

HOME = "home"
"""Directory, within a run's, of the client that a person labels."""


class FileStore:
    """A simulated client's state: in memory, and in a file of the checkpoint after every turn."""

    def __init__(self, client: ClientId, checkpoint: Checkpoint, start: ClientState, saved: SavedFile | None) -> None:
        self._client, self._checkpoint, self._start, self.saved = client, checkpoint, start, saved
        self._last: tuple[str, int, Turn] | None = None

    def committed(self, run: str, round: int) -> Turn | None:
        """The last turn, if it answered this very order."""
        if self._last is not None and self._last[:2] == (run, round):
            return self._last[2]
        return None

    def load(self) -> ClientState:
        """The state that ``saved`` names, or the starting one."""
        if self.saved is None:
            return self._start
        return ClientState.from_arrays(self._checkpoint.read_arrays(self.saved))

    def commit(self, run: str, round: int, turn: Turn) -> None:
        """Write the state and remember the turn."""
        self.saved = self._checkpoint.write_client(self._client, round, turn.state.to_arrays())
        self._last = (run, round, turn)


class SimulatedClients:
    """The clients that this process has run, each rebuilt when its saved state is not the one at hand."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        self._world, self._checkpoint = world, checkpoint
        self._usual = usual_behaviours(world.settings)
        self._clients: dict[ClientId, tuple[Client, FileStore]] = {}
        self._home: Home | None = None
        self.net = world.net()

    def take_turn(self, client: ClientId, order: RoundOrder, saved: SavedFile | None) -> tuple[Turn, SavedFile]:
        """The client's turn from the state that ``saved`` names, and the file of its new state."""
        settings = self._world.settings
        if settings.annotator == "page" and settings.page_client == client:
            return self._turn_at_home(client, order)
        known = self._clients.get(client)
        if known is None or known[1].saved != saved:
            store = FileStore(client, self._checkpoint, self._world.start(client), saved)
            known = self._clients[client] = (self._make(client, self._world.truth_of(client), store), store)
        turn = known[0].take_turn(order)
        if known[1].saved is None:
            raise CheckpointError(f"the state of client {client} was not saved")
        return turn, known[1].saved

    def _turn_at_home(self, client: ClientId, order: RoundOrder) -> tuple[Turn, SavedFile]:
        """The turn of the client that a person labels: its home holds its state, the checkpoint a copy."""
        self._home = self._home or Home(self._checkpoint.path.parent / HOME)
        store = HomeStore(self._home, self._world.start(client))
        turn = self._make(client, store, store).take_turn(order)
        return turn, self._checkpoint.write_client(client, order.round, turn.state.to_arrays())

    def _make(self, client: ClientId, annotator: Annotator | Truth, store: StateStore) -> Client:
        world = self._world
        behaviour = world.behaviour(client, self._usual[client])
        return build_client(
            client, world.settings, world.samples, self.net, world.num_classes, behaviour, annotator, store
        )
