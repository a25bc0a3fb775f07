"""All clients of a simulation, built from settings and data in the same way in every process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from chase.annotation.behaviour import Behaviour, behaviours
from chase.annotation.oracle import Oracle
from chase.checkpoint import Checkpoint, SavedFile
from chase.client import Client, Turn, Workshop
from chase.core.messages import ClientId
from chase.core.pools import SampleIds
from chase.core.randomness import rng
from chase.data.partition import initial_labels
from chase.data.resident import Samples
from chase.settings import Settings
from chase.state import ClientState


@dataclass(frozen=True)
class World:
    """What a simulation is made of. The truth is for the oracles alone."""

    settings: Settings
    samples: Samples
    truth: NDArray[np.int64]
    num_classes: int
    parts: list[SampleIds]

    def behaviours(self) -> list[Behaviour]:
        """One a client."""
        s = self.settings
        return behaviours(s.behaviour, s.clients, s.seed, s.budget, s.period)

    def start(self, client: ClientId) -> ClientState:
        """The client before its first turn."""
        s, part = self.settings, self.parts[client]
        draw = rng(s.seed, "initial-labels", client)
        labeled = initial_labels(part, self.truth, s.initial_labels, s.initial_per_class, draw)
        return ClientState.start(part, labeled, self.truth[labeled])


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


def make_client(world: World, client: ClientId, net: nn.Module, behaviour: Behaviour, store: FileStore) -> Client:
    """One simulated client with its oracle."""
    s, part = world.settings, world.parts[client]
    shop = Workshop(client, s, world.samples, net, world.num_classes, behaviour)
    oracle = Oracle(part, world.truth[part], world.num_classes, seed=s.seed, wrong=s.wrong_labels, delay=s.answer_delay)
    return Client(shop, oracle, store)
