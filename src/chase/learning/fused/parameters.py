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
        self._pairs: tuple[list[Tensor], list[Tensor]] = ([], [])

    @abstractmethod
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter, with torch's shapes: made once, for layers keep their parameters."""

    def _known_pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        if not self._pairs[0]:
            pairs = self.pairs()
            self._pairs = [own for own, _ in pairs], [theirs for _, theirs in pairs]
        return self._pairs

    @torch.no_grad()
    def load(self) -> None:
        """Take torch's parameters, with no momentum."""
        own, theirs = self._known_pairs()
        torch._foreach_copy_(own, theirs)
        self.velocity.zero_()

    @torch.no_grad()
    def store(self) -> None:
        """Write the parameters back."""
        own, theirs = self._known_pairs()
        torch._foreach_copy_(theirs, own)
