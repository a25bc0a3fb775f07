"""The clients of a simulation, built from settings and data in the same way in every process.

A process holds the clients that it ran last, ``LIVE`` of them at most; the others are in the checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from chase.annotation.annotator import Annotator
from chase.client.build import Truth, build_client, usual_behaviours
from chase.client.state import ClientState
from chase.client.turn import Client, StateStore, Turn
from chase.core.errors import CheckpointError
from chase.core.messages import ClientId, RoundOrder
from chase.core.weights import Array, Arrays
from chase.home.home import Home
from chase.home.shared import SharedPage
from chase.home.store import ClientStore
from chase.run.segments import SavedState
from chase.settings import ALL_CLIENTS
from chase.simulation.world import World, is_simulated

HOME = "home"
"""Directory, within a run's, of the client that a person labels."""
LIVE = 64
"""Clients that a process holds in memory."""


class States(Protocol):
    """Where states of clients are read and written: a checkpoint, or what came with a call."""

    path: Path

    def read_client(self, saved: SavedState) -> dict[str, Array]:
        """The arrays of a state."""
        ...

    def write_client(self, client: ClientId, round: int, state: Arrays | bytes) -> SavedState:
        """Keep a state."""
        ...


class FileStore:
    """A simulated client's state: in memory, and in the checkpoint after every turn."""

    def __init__(self, client: ClientId, checkpoint: States, world: World, saved: SavedState | None) -> None:
        self._client, self._checkpoint, self._world, self.saved = client, checkpoint, world, saved
        self._last: tuple[str, int, Turn] | None = None

    def committed(self, run: str, round: int) -> Turn | None:
        """The last turn, if it answered this very order."""
        if self._last is not None and self._last[:2] == (run, round):
            return self._last[2]
        return None

    def load(self) -> ClientState:
        """The state that ``saved`` names, or the starting one."""
        if self.saved is None:
            return self._world.start(self._client)
        return ClientState.from_arrays(self._checkpoint.read_client(self.saved))

    def commit(self, run: str, round: int, turn: Turn) -> None:
        """Write the state and remember the turn."""
        self.saved = self._checkpoint.write_client(self._client, max(round, 0), turn.state.to_arrays())
        self._last = (run, round, turn)


def same_state(one: SavedState | None, other: SavedState | None) -> bool:
    """Whether both are one state of the client; merging segments moves a state without changing it."""
    if one is None or other is None:
        return one is other
    return (one.round, one.sha256) == (other.round, other.sha256)


class SimulatedClients:
    """The clients that this process ran last, each rebuilt when its saved state is not the one at hand."""

    def __init__(self, world: World, checkpoint: States) -> None:
        self._world, self._checkpoint = world, checkpoint
        self._usual = usual_behaviours(world.settings)
        self._clients: OrderedDict[ClientId, tuple[Client, FileStore]] = OrderedDict()
        self._home: Home | None = None
        self.net = world.net()

    def take_turn(self, client: ClientId, order: RoundOrder, saved: SavedState | None) -> tuple[Turn, SavedState]:
        """The client's turn from the state that ``saved`` names, and where its new state is."""
        settings = self._world.settings
        on_page = not is_simulated(settings, client)
        if on_page and settings.page_client != ALL_CLIENTS:
            return self._turn_at_home(client, order)
        known = self._clients.pop(client, None)
        if known is None or not same_state(known[1].saved, saved):
            store = FileStore(client, self._checkpoint, self._world, saved)
            annotator = SharedPage(self._open_home(), self._world.parts[client]) if on_page else None
            known = (self._make(client, annotator or self._world.truth_of(client), store), store)
        self._clients[client] = known
        while len(self._clients) > LIVE:
            self._clients.popitem(last=False)
        turn = known[0].take_turn(order)
        if known[1].saved is None:
            raise CheckpointError(f"the state of client {client} was not saved")
        return turn, known[1].saved

    def _turn_at_home(self, client: ClientId, order: RoundOrder) -> tuple[Turn, SavedState]:
        """The turn of the client that a person labels: its home holds its state, the checkpoint a copy."""
        store = ClientStore(self._open_home(), self._world.start(client))
        turn = self._make(client, store, store).take_turn(order)
        return turn, self._checkpoint.write_client(client, max(order.round, 0), turn.state.to_arrays())

    def _open_home(self) -> Home:
        self._home = self._home or Home(self._checkpoint.path.parent / HOME)
        return self._home

    def _make(self, client: ClientId, annotator: Annotator | Truth, store: StateStore) -> Client:
        world = self._world
        behaviour = world.behaviour(client, self._usual[client])
        return build_client(
            client, world.settings, world.samples, self.net, world.num_classes, behaviour, annotator, store
        )
