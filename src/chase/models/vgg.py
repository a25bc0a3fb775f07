"""VGG-19 with batch norm for 32x32 images, as the paper uses it on CIFAR-100.

Sixteen 3x3 convolutions in five blocks, each followed by batch norm and ReLU, a maximum pool after each
block, then three linear layers: 512-4096-4096-classes, a ReLU and the network's dropout after each hidden one.
With a projection the third layer gives that many values (512-4096-4096-256 in the authors' code), and one more
layer makes classes of them; the alignment loss can then compare the projection's outputs (align_on = "features").
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chase.models.layers import Dropout
from chase.models.net import Net

BLOCKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Channels and convolutions of each block."""


def _block(channels_in: int, channels: int, convolutions: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(convolutions):
        layers.append(nn.Conv2d(channels_in if number == 0 else channels, channels, 3, padding=1))
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(2, ceil_mode=True))


WIDTH = 4096
"""Units of both hidden linear layers."""


class VGG19(Net):
    """Features of 4096 values, or of ``projection`` values."""

    taps = ("block1", "block2", "block3", "block4", "block5", "hidden1", "hidden2")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float, projection: int = 0) -> None:
        super().__init__()
        channels_in = shape[0]
        for number, (channels, convolutions) in enumerate(BLOCKS, start=1):
            self.add_module(f"block{number}", _block(channels_in, channels, convolutions))
            channels_in = channels
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = Dropout(dropout)
        self.fc1, self.fc2 = nn.Linear(channels_in, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.hidden1, self.hidden2 = nn.Identity(), nn.Identity()
        self.project = nn.Linear(WIDTH, projection) if projection else None
        self.head = nn.Linear(projection or WIDTH, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, 4096 or projection)."""
        for number in range(1, len(BLOCKS) + 1):
            x = self.get_submodule(f"block{number}")(x)
        x = self.drop(self.hidden1(F.relu(self.fc1(self.pool(x).flatten(1)))))
        features: Tensor = self.drop(self.hidden2(F.relu(self.fc2(x))))
        return features if self.project is None else self.project(features)
