"""VGG-19 with batch norm for 32x32 images, as the paper uses it on CIFAR-100.

Sixteen 3x3 convolutions in five blocks, each followed by batch norm and ReLU, a maximum pool after each
block, one linear layer. With a projection the features go through two linear layers to that many
dimensions first, as the authors' code has it.
"""

from __future__ import annotations

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


class VGG19(Net):
    """Features of 512 values, or of ``projection`` values."""

    taps = ("block1", "block2", "block3", "block4", "block5")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float, projection: int = 0) -> None:
        super().__init__()
        channels_in = shape[0]
        for number, (channels, convolutions) in enumerate(BLOCKS, start=1):
            self.add_module(f"block{number}", _block(channels_in, channels, convolutions))
            channels_in = channels
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = Dropout(dropout)
        self.project = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, projection)) if projection else None
        self.head = nn.Linear(projection or 512, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, 512 or projection)."""
        for name in self.taps:
            x = self.get_submodule(name)(x)
        features: Tensor = self.drop(self.pool(x).flatten(1))
        return features if self.project is None else self.project(features)
