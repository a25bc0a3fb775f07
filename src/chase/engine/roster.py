"""All clients of a simulation, built from settings and data in the same way in every process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from chase.annotation.behaviour import Behaviour, behaviours, per_cycle
from chase.annotation.home import Home
from chase.annotation.oracle import Oracle
from chase.checkpoint import Checkpoint, SavedFile
from chase.client import Client, Turn, Workshop
from chase.core.errors import CheckpointError
from chase.core.messages import ClientId, RoundOrder
from chase.core.pools import SampleIds
from chase.data.resident import Samples
from chase.division import initial_rows
from chase.homestore import HomeStore
from chase.models.catalog import NetSpec, build
from chase.settings import Settings
from chase.state import ClientState

HOME = "home"
"""Directory, within a run's, of the client that a person labels."""


def build_net(settings: Settings, samples: Samples, num_classes: int) -> nn.Module:
    """The network that the settings name for these samples, with its initial weights."""
    net = build(NetSpec.of(settings.net, samples, num_classes, settings.dropout), settings.seed)
    net.plain_kernels = settings.kernels == "plain"  # type: ignore[assignment]
    return net


@dataclass(frozen=True)
class World:
    """What a simulation is made of. The truth is for the oracles alone."""

    settings: Settings
    samples: Samples
    truth: NDArray[np.int64]
    num_classes: int
    parts: list[SampleIds]
    test: Samples

    def behaviours(self) -> list[Behaviour]:
        """One a client; in cycles a share of its original unlabelled pool, asked for once a cycle."""
        s = self.settings
        if s.form == "cycles":
            pools = [self.start(client).pools.unlabeled.size for client in range(s.clients)]
            return [per_cycle(pool, s.cycle_rounds, s.cycle_budget) for pool in pools]
        return behaviours(s.behaviour, s.clients, s.seed, s.budget, s.period)

    def start(self, client: ClientId) -> ClientState:
        """The client before its first turn."""
        part = self.parts[client]
        labeled = initial_rows(self.settings, client, part, self.truth)
        return ClientState.start(part, labeled, self.truth[labeled])

    def net(self) -> nn.Module:
        """The network with its initial weights."""
        return build_net(self.settings, self.samples, self.num_classes)


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


class Roster:
    """The clients that this process has run, each rebuilt when its saved state is not the one at hand."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        self._world, self._checkpoint = world, checkpoint
        self._behaviours = world.behaviours()
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
            known = self._clients[client] = (self._make(client, store), store)
        turn = known[0].take_turn(order)
        if known[1].saved is None:
            raise CheckpointError(f"the state of client {client} was not saved")
        return turn, known[1].saved

    def _turn_at_home(self, client: ClientId, order: RoundOrder) -> tuple[Turn, SavedFile]:
        """The turn of the client that a person labels: its home holds its state, the checkpoint a copy."""
        self._home = self._home or Home(self._checkpoint.path.parent / HOME)
        store = HomeStore(self._home, self._world.start(client))
        turn = Client(replace(self._shop(client), for_people=True), store, store).take_turn(order)
        return turn, self._checkpoint.write_client(client, order.round, turn.state.to_arrays())

    def _shop(self, client: ClientId) -> Workshop:
        world = self._world
        return Workshop(client, world.settings, world.samples, self.net, world.num_classes, self._behaviours[client])

    def _make(self, client: ClientId, store: FileStore) -> Client:
        world, s, part = self._world, self._world.settings, self._world.parts[client]
        oracle = Oracle(
            part, world.truth[part], world.num_classes, seed=s.seed, wrong=s.wrong_labels, delay=s.answer_delay
        )
        return Client(self._shop(client), oracle, store)
