"""All buffers of a fused network for one batch size, and the views that join its layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chase.learning.fused.conv import ConvBuffers, PooledConv
from chase.learning.fused.dense import DenseBuffers


class Buffers(DenseBuffers):
    """One batch size; the batch is the innermost dimension up to the fully connected part."""

    def __init__(
        self, first: PooledConv, second: PooledConv, pad: int, hidden: Sequence[int], batch: int, train: bool
    ) -> None:
        flat = second.out * second.rows * second.columns
        super().__init__(flat, hidden, batch, train)
        self.inputs = torch.zeros(first.channels * first.height * first.width, batch)
        """(channel, row, column parity, column // 2) x batch."""
        self.inputs_np = self.inputs.numpy()
        self.first, self.second = ConvBuffers(first, batch, train), ConvBuffers(second, batch, train)
        self._join_input(first, batch)
        self._join_middle(first, second, pad, batch, train)
        self.second_t = self.second.pooled.view(flat, batch).t()
        self.flat_by_channel = self.flat.view(batch, second.out, second.rows * second.columns)
        if train:
            self.flat_gradient = torch.zeros(batch, flat)
            self.flat_gradient_by_channel = self.flat_gradient.view_as(self.flat_by_channel)
            self.flat_gradient_t = self.flat_gradient.numpy().T
            self.second_gradient_np = self.second.pooled_gradient.view(flat, batch).numpy()
            self._masks(second, batch)

    def _join_input(self, first: PooledConv, batch: int) -> None:
        plane, half, n = first.height * first.width * batch, first.width // 2 * batch, first.shifts
        shape = (2, n, 2, first.channels, first.height // 2, first.columns * batch)
        self.input_windows = self.inputs.as_strided(shape, (2 * half, batch, half, plane, 4 * half, 1))
        self.input_patches = self.first.patches.view(shape)

    def _join_middle(self, first: PooledConv, second: PooledConv, pad: int, batch: int, train: bool) -> None:
        """The pooled map between the layers, split by row and column parity: (channel, 2, 2, h, w, batch).

        Where the second convolution pads, the border of the map stays zero.
        """
        c, h, w, n = second.channels, second.height // 2, second.width // 2, second.shifts
        shape = (2, n, 2, c, h, second.columns * batch)
        plane = h * w * batch

        def windows(t: Tensor) -> Tensor:
            return t.as_strided(shape, (2 * plane, batch, plane, 4 * plane, w * batch, 1))

        self.middle = torch.zeros(c, 2, 2, h, w, batch)
        self.first_split = _by_parity(self.first.pooled, self.middle, first, pad, batch)
        self.middle_windows, self.middle_patches = windows(self.middle), self.second.patches.view(shape)
        if train:
            self.middle_gradient = torch.zeros_like(self.middle)
            spread = windows(self.middle_gradient)
            self.middle_gradient_windows = [spread[:, a] for a in range(n)]
            gradient = self.first.pooled_gradient
            self.first_gradient_split = _by_parity(gradient, self.middle_gradient, first, pad, batch)
            self.patch_gradient = torch.zeros_like(self.second.patches)
            size, step = second.rows * second.columns * batch, self.second.step
            self.shifted_gradient = [self.patch_gradient[:, a * step : a * step + size] for a in range(n)]
            self.patch_gradient_windows = [self.patch_gradient.view(shape)[:, a] for a in range(n)]

    def _masks(self, second: PooledConv, batch: int) -> None:
        channels = torch.zeros(-(-second.out * batch // 8) * 8)
        self.channel_mask_np = channels.numpy().reshape(-1, 8)
        self.channel_mask = channels[: second.out * batch].view(second.out, 1, batch)
        shape = (second.out, second.rows * second.columns, batch)
        self.second_by_channel = self.second.pooled.view(shape)
        self.second_gradient_by_channel = self.second.pooled_gradient.view(shape)


def _by_parity(pooled: Tensor, middle: Tensor, first: PooledConv, pad: int, batch: int) -> list[tuple[Tensor, Tensor]]:
    """Pairs of views (of the pooled map, of the inner map) that hold the same places.

    Without padding one pair covers everything; with it there is a pair for each parity of row and column.
    """
    c, _, _, h, w, _ = middle.shape
    if pad == 0:
        return [(pooled.view(c, h, 2, w, 2, batch).permute(0, 2, 4, 1, 3, 5), middle)]
    whole = pooled.view(c, first.rows, first.columns, batch)
    pairs = []
    for row in (0, 1):
        for column in (0, 1):
            # place (r, s) of the pooled map is place (r + pad, s + pad) of the inner one
            r, s = (row - pad) % 2, (column - pad) % 2
            source = whole[:, r::2, s::2]
            top, left = (r + pad) // 2, (s + pad) // 2
            inner = middle[:, row, column, top : top + source.shape[1], left : left + source.shape[2]]
            pairs.append((source, inner))
    return pairs
