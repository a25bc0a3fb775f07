"""A small network for vectors and rows of tables."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chase.models.layers import Dropout
from chase.models.net import Net


class Mlp(Net):
    """Two hidden layers of 64."""

    taps = ("fc1", "fc2")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float) -> None:
        super().__init__()
        (width,) = shape
        self.fc1 = nn.Linear(width, 64)
        self.fc2 = nn.Linear(64, 64)
        self.drop = Dropout(dropout)
        self.head = nn.Linear(64, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, width) -> (batch, 64)."""
        features: Tensor = self.drop(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return features
