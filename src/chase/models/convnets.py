"""Small convolutional networks: one for 8x8 digits and the paper's two.

The identities do nothing: they give each block's output a name, for what reads it (``taps``).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chase.models.layers import Dropout
from chase.models.net import Net


def _pooled(size: int) -> int:
    return (size - 4) // 2


class TinyCNN(Net):
    """For 8x8 images: conv 3x3 of 16, pool, conv 3x3 of 32, pool, fc 64."""

    taps = ("block1", "block2", "hidden")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (height, width)
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.drop = Dropout(dropout)
        self.fc = nn.Linear(32 * (height // 4) * (width // 4), 64)
        self.block1, self.block2, self.hidden = nn.Identity(), nn.Identity(), nn.Identity()
        self.head = nn.Linear(64, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, 64)."""
        x = self.block1(F.max_pool2d(F.relu(self.conv1(x)), 2))
        x = self.block2(F.max_pool2d(F.relu(self.conv2(x)), 2))
        features: Tensor = self.drop(self.hidden(F.relu(self.fc(x.flatten(1)))))
        return features


class MnistCNN(Net):
    """conv 5x5 10-20 and one hidden layer (50 for MNIST, 512 for EMNIST).

    Dropout is channel-wise after conv 2 and plain before the last layer.
    """

    taps = ("block1", "block2", "hidden")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float, hidden: int = 50) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (height, width)
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.drop_channels = Dropout(dropout, channelwise=True)
        self.fc = nn.Linear(20 * _pooled(_pooled(height)) * _pooled(_pooled(width)), hidden)
        self.drop = Dropout(dropout)
        self.block1, self.block2, self.hidden = nn.Identity(), nn.Identity(), nn.Identity()
        self.head = nn.Linear(hidden, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, hidden)."""
        x = self.block1(F.relu(F.max_pool2d(self.conv1(x), 2)))
        x = self.block2(F.relu(F.max_pool2d(self.drop_channels(self.conv2(x)), 2)))
        features: Tensor = self.drop(self.hidden(F.relu(self.fc(x.flatten(1)))))
        return features


class CifarCNN(Net):
    """conv 5x5 6-16, fc 120-84; element-wise dropout on both convolutions' outputs."""

    taps = ("block1", "block2", "hidden1", "hidden2")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (height, width)
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.drop = Dropout(dropout)
        self.fc1 = nn.Linear(16 * _pooled(_pooled(height)) * _pooled(_pooled(width)), 120)
        self.fc2 = nn.Linear(120, 84)
        self.block1, self.block2 = nn.Identity(), nn.Identity()
        self.hidden1, self.hidden2 = nn.Identity(), nn.Identity()
        self.head = nn.Linear(84, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, 84)."""
        x = self.block1(F.max_pool2d(F.relu(self.drop(self.conv1(x))), 2))
        x = self.block2(F.max_pool2d(F.relu(self.drop(self.conv2(x))), 2))
        features: Tensor = self.hidden2(F.relu(self.fc2(self.hidden1(F.relu(self.fc1(x.flatten(1)))))))
        return features
