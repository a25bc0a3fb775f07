"""The plain engine: clients one after another in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from chase.checkpoint import Checkpoint, SavedFile
from chase.client import Client
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.engine.roster import FileStore, World, make_client


@dataclass(frozen=True)
class RoundResult:
    """What an engine returns of a round."""

    updates: list[ClientUpdate]
    journal: list[dict[str, Any]]


class InProcess:
    """Runs every client here, with one thread."""

    def __init__(
        self, world: World, net: nn.Module, checkpoint: Checkpoint, saved: Mapping[ClientId, SavedFile]
    ) -> None:
        torch.set_num_threads(1)
        self._world, self._net, self._checkpoint = world, net, checkpoint
        self._saved = dict(saved)
        self._behaviours = world.behaviours()
        self._clients: dict[ClientId, tuple[Client, FileStore]] = {}

    @property
    def saved(self) -> Mapping[ClientId, SavedFile]:
        """The file of every client that has had a turn."""
        return self._saved

    def _client(self, client: ClientId) -> tuple[Client, FileStore]:
        """The client and its store, built when first needed."""
        if client not in self._clients:
            store = FileStore(client, self._checkpoint, self._world.start(client), self._saved.get(client))
            built = make_client(self._world, client, self._net, self._behaviours[client], store)
            self._clients[client] = built, store
        return self._clients[client]

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        result = RoundResult([], [])
        for number, order in orders.items():
            client, store = self._client(number)
            turn = client.take_turn(order)
            if store.saved is not None:
                self._saved[number] = store.saved
            result.updates.append(turn.update)
            result.journal.extend(turn.journal)
        return result

    def close(self) -> None:
        """Nothing to end."""
