"""Parameters that live in one flat vector and are taken from and written back to torch's layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def cut(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The start of a flat vector as views of these shapes, one after another."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    parts = torch.split(flat[: sum(sizes)], sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


class FlatParameters(ABC):
    """``theta`` and its momentum; whoever computes holds views of ``theta``, so it is written to and never replaced."""

    def __init__(self, total: int) -> None:
        self.theta, self.velocity = torch.zeros(total), torch.zeros(total)

    @abstractmethod
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter, with torch's shapes."""

    @torch.no_grad()
    def load(self) -> None:
        """Take torch's parameters, with no momentum."""
        for own, source in self.pairs():
            own.copy_(source)
        self.velocity.zero_()

    @torch.no_grad()
    def store(self) -> None:
        """Write the parameters back."""
        for own, target in self.pairs():
            target.copy_(own)
