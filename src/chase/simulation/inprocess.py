"""The plain engine: clients one after another in this process."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from chase.core.messages import ClientId, RoundOrder
from chase.core.weights import Weights
from chase.learning.inference import logits
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint, SavedFile
from chase.run.engine import RoundResult
from chase.simulation.clients import SimulatedClients
from chase.simulation.world import World


class InProcess:
    """Runs every client here, with one thread."""

    def __init__(self, world: World, checkpoint: Checkpoint, saved: Mapping[ClientId, SavedFile]) -> None:
        torch.set_num_threads(1)
        self._roster, self._test, self._saved = SimulatedClients(world, checkpoint), world.test, dict(saved)
        self.notes: list[str] = []

    @property
    def saved(self) -> Mapping[ClientId, SavedFile]:
        """The file of every client that has had a turn."""
        return self._saved

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        result = RoundResult(orders)
        for client in sorted(orders):
            turn, self._saved[client] = self._roster.take_turn(client, orders[client], self._saved.get(client))
            result.updates.append(turn.update)
            result.journal.extend(turn.journal)
        return result

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the whole test set."""
        set_weights(self._roster.net, weights)
        return logits(self._roster.net, self._test, torch.arange(len(self._test)))

    def processor_seconds(self) -> float:
        """None beside this process's own."""
        return 0.0

    def close(self) -> None:
        """Nothing to end."""
