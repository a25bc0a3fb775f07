"""The plain engine: clients one after another in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from chase.core.messages import ClientId, RoundOrder
from chase.core.weights import Weights
from chase.learning.inference import logits
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.client_counts import counts_of
from chase.run.engine import RoundResult
from chase.server.intake import Intake
from chase.simulation.clients import SimulatedClients
from chase.simulation.world import World


class InProcess:
    """Runs every client here, with one thread."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        torch.set_num_threads(1)
        self._roster, self._checkpoint = SimulatedClients(world, checkpoint), checkpoint
        self._settings, self._test = world.settings, world.test
        self.notes: list[str] = []

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order."""
        intake, journal = Intake(self._settings, orders), list[dict[str, Any]]()
        for client in sorted(orders):
            turn, saved = self._roster.take_turn(client, orders[client], self._checkpoint.where(client))
            self._checkpoint.stage(client, saved, counts_of(turn.update.metrics))
            intake.take(turn.update)
            journal.extend(turn.journal)
        return RoundResult(orders, intake.updates, intake.mean(), journal)

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs on the whole test set."""
        set_weights(self._roster.net, weights)
        return logits(self._roster.net, self._test, torch.arange(len(self._test)))

    def processor_seconds(self) -> float:
        """None beside this process's own."""
        return 0.0

    def close(self) -> None:
        """Nothing to end."""
