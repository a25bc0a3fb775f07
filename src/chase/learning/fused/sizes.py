"""How much of their padded inputs two pooled convolutions read.

Pooling leaves out the last row or column of a map with an odd number of them. What is computed for that place alone is
not computed at all: the maps end before it, and every map has an even number of rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

Pair = tuple[int, int]


@dataclass(frozen=True)
class Sizes:
    """(rows, columns) that are read of the padded image and of the padded map between the convolutions."""

    outer: Pair
    inner: Pair
    pooled: Pair
    """Of the last pooled map."""
    whole: bool
    """Whether everything is read."""


def sizes_read(convs: Sequence[nn.Conv2d], size: Pair, pads: Pair) -> Sizes | None:
    """Of images of this size; None where they are too small for the convolutions."""
    kernels = (int(convs[0].kernel_size[0]), int(convs[1].kernel_size[0]))
    found = [_side(side, kernels, pads) for side in size]
    if any(pooled < 1 for _, _, pooled, _ in found):
        return None
    (top, high, rows, all_rows), (left, wide, columns, all_columns) = found
    return Sizes((top, left), (high, wide), (rows, columns), all_rows and all_columns)


def _side(side: int, kernels: Pair, pads: Pair) -> tuple[int, int, int, bool]:
    middle = (side + 2 * pads[0] - kernels[0] + 1) // 2
    pooled = (middle + 2 * pads[1] - kernels[1] + 1) // 2 if middle > 0 else 0
    inner = 2 * pooled + kernels[1] - 1
    outer = 2 * min(middle, inner - pads[1]) + kernels[0] - 1
    return outer, inner, pooled, outer == side + 2 * pads[0] and inner == middle + 2 * pads[1]
