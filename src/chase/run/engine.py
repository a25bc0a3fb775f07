"""What every engine does: have the clients of a round take their turns, and infer the test set.

Engines: in this process, in worker processes, and the sites of a federation (``chase.federation.engine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Weights
from chase.server.aggregation import Mean


@dataclass(frozen=True)
class RoundResult:
    """What an engine returns of a round."""

    orders: Mapping[ClientId, RoundOrder]
    """The order that each update answers: this round's, or an earlier one where it came late."""
    updates: list[ClientUpdate] = field(default_factory=list)
    """In id order; without their arrays where those are in ``mean``."""
    mean: Mean | None = None
    """The weighted mean of the updates, where they were added as they came."""
    journal: list[dict[str, Any]] = field(default_factory=list)
    """Lines for selections.jsonl; in simulation only."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """What the engine adds to the round's line of metrics."""
    names: Mapping[ClientId, str] = field(default_factory=dict)
    """What sites are called; in a federation only."""
    sums_lost: bool = False
    """The server and a site do not remember the same sums: the server has to begin its sums anew after this round."""


class Engine(Protocol):
    """Runs turns; results do not depend on which engine does it."""

    notes: list[str]
    """What went wrong and was dealt with, for the user to read."""

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order and can be reached.

        The new states of simulated clients are staged in the checkpoint: they count when the round is committed.
        """
        ...

    def test_logits(self, weights: Weights) -> Tensor:
        """Outputs of a model on the whole test set (samples, classes)."""
        ...

    def processor_seconds(self) -> float:
        """What the engine's own processes, if it has any beside this one, have used so far."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...
