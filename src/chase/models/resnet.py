"""A small ResNet with group norm, for those who want more than the paper's small networks can give.

Group norm has no running statistics, so averaging clients with different data does it no harm.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chase.models.layers import Dropout
from chase.models.net import Net

WIDTHS = (16, 32, 64)
GROUPS = 8


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with group norm and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, channels)
        same = stride == 1 and channels_in == channels
        self.around = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, channels_in, h, w) -> (batch, channels, h / stride, w / stride)."""
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.around(x))


class SmallResNet(Net):
    """A 3x3 convolution and three stages of two residual blocks; features of 64 values."""

    taps = ("stage1", "stage2", "stage3")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, WIDTHS[0])
        before = (WIDTHS[0], *WIDTHS[:-1])
        for number, (channels_in, channels) in enumerate(zip(before, WIDTHS, strict=True), start=1):
            first = ResidualBlock(channels_in, channels, stride=1 if number == 1 else 2)
            self.add_module(f"stage{number}", nn.Sequential(first, ResidualBlock(channels, channels, stride=1)))
        self.drop = Dropout(dropout)
        self.head = nn.Linear(WIDTHS[-1], classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, c, h, w) -> (batch, 64)."""
        x = F.relu(self.norm(self.stem(x)))
        for name in self.taps:
            x = self.get_submodule(name)(x)
        features: Tensor = self.drop(x.mean(dim=(2, 3)))
        return features
