"""What a turn trains on and how: options, samples, the loss of the labelled half, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chase.core.timing import Stopwatch
from chase.data.resident import Samples
from chase.learning.fused import FusedRanking
from chase.learning.losses import Alignment
from chase.learning.tracking import History


@dataclass(frozen=True)
class TrainingOptions:
    """How a turn trains."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    mu: float
    prox: float = 0.0
    """FedProx: weight of prox/2 * ||w - w_start||^2."""
    stop_at: float = 0.0
    """End after the epoch that classifies this share rightly (0 = never); the labelled samples are then watched."""
    device: str = "cpu"
    augment: bool = False
    """Crop and flip the labelled images of every step."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    balanced: bool = False
    """Weigh labelled samples so that every class of the client counts the same."""


@dataclass(frozen=True)
class TrainingTask:
    """What one turn trains on."""

    samples: Samples
    labeled_rows: Tensor
    labels: Tensor
    """Class numbers beside ``labeled_rows``."""
    watched_rows: Tensor
    alignment: Alignment | None
    track: bool
    seed: int
    coordinates: tuple[str | int, ...]
    """(round, client): where the draws of this turn are seeded."""
    observed_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Predicted after every epoch too, only to be looked at."""


@dataclass
class TrainingResult:
    """What a turn's training found out."""

    history: History
    """(epochs, watched) predicted classes; (0, watched) when nothing was tracked."""
    loss: float
    """Mean loss over the last epoch."""
    inferences: int
    observed: History = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """(epochs, observed) predicted classes."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


class LabeledLoss(Protocol):
    """The loss of the labelled half of a step; methods with a loss of their own bring one."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """Further parameters that are trained with the network's."""
        ...

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """outputs (batch, classes) that ``net`` just gave for the labelled samples, y (batch,) -> scalar."""
        ...


@runtime_checkable
class RankingLoss(LabeledLoss, Protocol):
    """Cross-entropy plus a loss that a module beside the network learns: fused steps can take it too."""

    def fused(self) -> FusedRanking:
        """The module in hand-written form."""
        ...

    def reaches_network(self, step: Step) -> bool:
        """Whether the gradient of what is added to cross-entropy goes into the network in this step."""
        ...


class CrossEntropy:
    """The plain loss: mean cross-entropy."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """None beyond the network's."""
        return ()

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Mean over the batch."""
        return F.cross_entropy(outputs, y)


class BalancedCrossEntropy(CrossEntropy):
    """Cross-entropy in which every class of the labelled samples counts the same."""

    def __init__(self, labels: Tensor) -> None:
        counts = torch.bincount(labels)
        self._weights = labels.numel() / (counts.clamp(min=1) * (counts > 0).sum())

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Weighted mean over the batch."""
        weights = self._weights.to(y.device)[y]
        losses = F.cross_entropy(outputs, y, reduction="none")
        mean: Tensor = (losses * weights).sum() / weights.sum()
        return mean


@dataclass(frozen=True)
class Step:
    """Where in a turn a step stands."""

    epoch: int
    """Counts from 0."""
    epochs: int
    take: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Positions of the step's batch among the labelled samples."""

    @property
    def last_epoch(self) -> bool:
        """Whether the loss is wanted."""
        return self.epoch == self.epochs - 1
