"""Layers that the networks share: seeded dropout from cheap random bits, and the paper's initialisation."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.randomness import fold

_BITS = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.float32)
_EIGHT_MASKS = torch.from_numpy(2.0 * _BITS)
"""Row b: the bits of byte b as dropout factors for p = 0.5 (0 drops, 2 keeps and rescales)."""


class MaskSource:
    """Random bits for the dropout of one client's turn, seeded by coordinates."""

    BLOCK = 1 << 18
    """Bytes of a block: what is left of one that is too short for the next masks is not used."""
    PIECE = 1 << 9
    """Words that are drawn first; then eight times as many, and so on: a small turn needs little of a block."""

    def __init__(self, seed: int, *coordinates: str | int) -> None:
        self._seed, self._coordinates = seed, coordinates
        self._rng: np.random.Generator | None = None
        self._words = np.empty(0, dtype=np.uint64)
        self._block, self._drawn, self._at = self._words.view(np.uint8), 0, 0

    def octets(self, count: int) -> NDArray[np.uint8]:
        """The next ``count`` random bytes (the end of a block that is too short is left out)."""
        if self._at + count > self._block.size:
            self._draw(self._words.size)
            self._words = np.empty(max(self.BLOCK, count) // 8 + 1, dtype=np.uint64)
            self._block, self._drawn, self._at = self._words.view(np.uint8), 0, 0
        self._at += count
        while 8 * self._drawn < self._at:
            self._draw(max(self.PIECE, 8 * self._drawn))
        return self._block[self._at - count : self._at]

    def _draw(self, words: int) -> None:
        """The next words of the block; the same numbers come in whatever pieces they are drawn."""
        if self._rng is None:
            self._rng = np.random.Generator(np.random.SFC64(fold(self._seed, "dropout", *self._coordinates)))
        last = min(self._drawn + words, self._words.size)
        self._words[self._drawn : last] = self._rng.integers(0, 2**64, last - self._drawn, dtype=np.uint64)
        self._drawn = last

    def factors(self, count: int, p: float) -> Tensor:
        """``count`` factors: 0 with chance p, else 1/(1-p).

        For p = 0.5 one random bit decides; otherwise 16 random bits are compared with p, so p is met
        to within 1/65536.
        """
        if p == 0.5:
            octets = self.octets((count + 7) // 8).astype(np.int32)
            return _EIGHT_MASKS.index_select(0, torch.from_numpy(octets)).view(-1)[:count]
        words = self.octets(2 * count).view(np.uint16)
        keep: NDArray[np.float32] = (words >= round(p * 65536)).astype(np.float32)
        return torch.from_numpy(keep).mul_(1.0 / (1.0 - p))


class Dropout(nn.Module):
    """Dropout whose masks come from a ``MaskSource``; whole channels with ``channelwise``."""

    def __init__(self, p: float, channelwise: bool = False) -> None:
        super().__init__()
        self.p, self.channelwise = p, channelwise
        self.source: MaskSource | None = None
        self.always = False
        """Drop in eval mode too, for passes that measure what dropout changes."""

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, channels, ...) with elements or channels dropped when training."""
        if self.p == 0.0 or not (self.training or self.always):
            return x
        if self.source is None:
            raise RuntimeError("dropout was not seeded: call seed_dropout(net, source) before training")
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if self.channelwise else x.shape
        mask = self.source.factors(int(np.prod(shape)), self.p).view(shape)
        return x * mask.to(x.device)


def seed_dropout(net: nn.Module, source: MaskSource | None) -> None:
    """Give every dropout of the net its source of bits."""
    for module in net.modules():
        if isinstance(module, Dropout):
            module.source = source


Init = Literal["xavier", "normal"]
"""How first weights are drawn."""
NORMAL_STD = 0.05


def draw_weights_(net: nn.Module, init: Init, generator: torch.Generator) -> None:
    """First weights of convolutions and linear layers, drawn as ``init`` says."""
    (xavier_ if init == "xavier" else normal_)(net, generator)


def normal_(net: nn.Module, generator: torch.Generator) -> None:
    """The start of the authors' VGG-19: weights from N(0, 0.05), biases 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.normal_(module.weight, std=NORMAL_STD, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def xavier_(net: nn.Module, generator: torch.Generator) -> None:
    """The paper's start: Xavier-normal weights, biases 0.01, from one generator in order of the layers."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.constant_(module.bias, 0.01)
