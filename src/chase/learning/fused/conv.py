"""One convolution with 2x2 max-pooling as shifted matrix products, forward and backward."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from chase.models.layers import MaskSource

DROPPED = -1e30
"""Added to a value that is dropped: no bias lifts it above the relu."""

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
ADDITIVE = np.where(_BITS > 0, np.float32(0), np.float32(DROPPED))
"""Row b: eight additive masks from byte b."""
FACTORS = np.where(_BITS > 0, np.float32(2), np.float32(0))
"""Row b: eight dropout factors from byte b."""


class PooledConv:
    """Geometry and shifted weights of a k x k convolution with pooling."""

    def __init__(self, channels: int, height: int, width: int, weight: Tensor, bias: Tensor) -> None:
        out, k = weight.shape[0], weight.shape[1]
        self.channels, self.height, self.width, self.out = channels, height, width, out
        self.rows, self.columns = (height - k + 1) // 2, (width - k + 1) // 2
        self.shifts = (k + 1) // 2
        self.depth = 2 * (k + 1) * channels
        """Rows of the patch matrix: (row parity, column offset, channel)."""
        self.bias = bias.view(out, 1)
        wide = self.shifts * self.depth
        self.big = torch.zeros(4 * out, wide)
        """Shifted weights: rows (column in window, row in window, out), columns (row, column, channel)."""
        self.big_gradient = torch.zeros_like(self.big)
        cuts = [slice(a * self.depth, (a + 1) * self.depth) for a in range(self.shifts)]
        self.slices = [self.big[:, cut] for cut in cuts]
        self.gradient_slices = [self.big_gradient[:, cut] for cut in cuts]
        patch = k + 1
        self._window = self.big.as_strided(
            (2, 2, out, k, k, channels),
            (2 * out * wide + channels, out * wide + patch * channels, wide, patch * channels, channels, 1),
        )
        self._weight = weight.expand(2, 2, out, k, k, channels)
        spread = self.big_gradient.view(2, 2, out, patch, patch, channels)
        self._spread = [spread[q, p, :, p : p + k, q : q + k] for q in (0, 1) for p in (0, 1)]

    def expand(self) -> None:
        """Write the weights into their four shifted places."""
        self._window.copy_(self._weight)

    def fold_gradient(self, out: Tensor) -> None:
        """Add up the gradients of the four places -> (out, k, k, channels)."""
        torch.add(self._spread[0], self._spread[1], out=out)
        out.add_(self._spread[2]).add_(self._spread[3])


class ConvBuffers:
    """Everything one pooled convolution needs for one batch size."""

    def __init__(self, conv: PooledConv, batch: int, train: bool) -> None:
        self.conv = conv
        size = conv.rows * conv.columns * batch
        self.step = conv.columns * batch
        self.patches = torch.zeros(conv.depth, (conv.height // 2) * self.step)
        self.shifted = [self.patches[:, a * self.step : a * self.step + size] for a in range(conv.shifts)]
        count = 4 * conv.out * size
        flat = torch.zeros(-(-count // 8) * 8)
        self.values = flat[:count].view(4 * conv.out, size)
        """The four values of every window; after ``backward`` their gradients."""
        self._mask = flat.numpy().reshape(-1, 8)
        halves = flat[:count].view(2, -1)
        self._left, self._right = halves[0], halves[1]
        pairs = torch.zeros(2, conv.out * size)
        self._pairs, self._upper, self._lower = pairs.view(-1), pairs[0], pairs[1]
        self.pooled = torch.zeros(conv.out, size)
        self._pooled_flat = self.pooled.view(-1)
        if train:
            self.pooled_gradient = torch.zeros(conv.out, size)
            self._gradient_flat = self.pooled_gradient.view(-1)
            self._shifted_t = [view.t() for view in self.shifted]

    def forward(self, bits: MaskSource | None) -> None:
        """patches -> pooled (before the relu, without dropout's factor 2)."""
        if bits is None:
            torch.mm(self.conv.slices[0], self.shifted[0], out=self.values)
            rest = range(1, self.conv.shifts)
        else:
            np.take(ADDITIVE, bits.octets(len(self._mask)), axis=0, out=self._mask, mode="clip")
            rest = range(self.conv.shifts)
        for a in rest:
            self.values.addmm_(self.conv.slices[a], self.shifted[a])
        torch.maximum(self._left, self._right, out=self._pairs)
        torch.maximum(self._upper, self._lower, out=self._pooled_flat)
        self.pooled.add_(self.conv.bias)

    def backward(self, weight_gradient: Tensor, bias_gradient: Tensor) -> None:
        """pooled_gradient (relu applied) -> gradients; ties go to the first, as in torch."""
        torch.sum(self.pooled_gradient, 1, out=bias_gradient)
        self._upper.ge_(self._lower).mul_(self._gradient_flat)
        torch.sub(self._gradient_flat, self._upper, out=self._lower)
        self._left.ge_(self._right).mul_(self._pairs)
        torch.sub(self._pairs, self._left, out=self._right)
        for gradient, view in zip(self.conv.gradient_slices, self._shifted_t, strict=True):
            torch.mm(self.values, view, out=gradient)
        self.conv.fold_gradient(weight_gradient)
