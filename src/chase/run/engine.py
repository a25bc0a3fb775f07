"""What every engine does: run the clients of a round, and evaluate a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Weights
from chase.run.checkpoint import SavedFile


@dataclass(frozen=True)
class RoundResult:
    """What an engine returns of a round."""

    updates: list[ClientUpdate] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)


class Engine(Protocol):
    """Runs turns; results do not depend on which engine does it."""

    notes: list[str]
    """What went wrong and was mended, for the user to read."""

    @property
    def saved(self) -> Mapping[ClientId, SavedFile]:
        """The file of every client that has had a turn."""
        ...

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One turn of every client that has an order; updates in the order of the ids."""
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
