"""A small convolutional network by the compiled kernel: the same mathematics and the same masks as ``FusedNet``.

Samples are laid out as (row, column, channel); a training step is three calls of the kernel on buffers that are made
once for each batch size. Outputs of a sample have the same bits whatever other samples are in its pass.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.errors import SettingsError
from chase.learning.fused.compiled_buffers import CompiledBuffers, size_of
from chase.learning.fused.dense import FusedLayers, Prepared, Series, Soft
from chase.learning.fused.form import Form
from chase.learning.fused.predictor import FusedRanking
from chase.learning.fused.sizes import Pair, sizes_read
from chase.learning.native.kernel import MOST_FLOATS, SLACK, Convolution, Kernel, SoftStructure, Steps
from chase.models.layers import MaskSource

CHUNK = 16
"""Samples an inference pass: all buffers stay in the cache, and no lane of a vector is empty."""


CALLS = 64
"""Steps, or passes of inference, in one call of the kernel, which no signal interrupts."""
MASKS = 1 << 22
"""Bytes of dropout masks that are drawn at once, at most, unless one step has more."""
USUAL_BATCH = 100
"""Samples that a step can have at least, labelled and watched together."""


class CompiledNet(FusedLayers[CompiledBuffers]):
    """conv-pool-conv-pool-fc..., trained by SGD with momentum; dropout p = 1/2 where ``form`` says."""

    chunk = CHUNK

    def __init__(
        self,
        convs: Sequence[nn.Conv2d],
        linears: Sequence[nn.Linear],
        size: Pair,
        form: Form,
        pads: Pair,
        kernel: Kernel,
    ) -> None:
        weights: list[tuple[int, ...]] = [(c.out_channels, *c.kernel_size, c.in_channels) for c in convs]
        super().__init__(linears, [*weights, *((c.out_channels,) for c in convs)], form.hidden)
        self._sources: list[nn.Conv2d | nn.Linear] = [*convs, *linears]
        self.form, self._size, self._pad, self.pad = form, size, *pads
        self._kernel, self._call = kernel, kernel.library
        self.geometry = tuple(_geometry(convs, size, pads))
        self.widths = [linears[0].in_features, *self._hidden]
        self.convolutions, self.gradients = self._front, self._front_gradients
        self.weights, self.velocities = self._weights, self._weight_velocity
        self.biases, self.bias_gradients = self._biases, self._bias_gradients
        self.small, self.small_gradient = self._small_gradient.numel(), self._small_gradient
        self.packed = [np.zeros(c.weight.numel() + SLACK, dtype=np.float32) for c in convs]
        self.flat_scale = 2.0 if form.second == "element" else 1.0
        self.first_scale = 2.0 if form.first else 1.0
        self.second_scale = 1.0 if form.second == "none" else 2.0

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter, with torch's shapes."""
        own = [w.permute(0, 3, 1, 2) for w in self._front[:2]] + [*self._weights, *self._front[2:], *self._biases]
        theirs = [layer.weight for layer in self._sources] + [layer.bias for layer in self._sources]
        return [(a, b) for a, b in zip(own, theirs, strict=True) if b is not None]

    def prepare(self, x: Tensor) -> Prepared:
        """(n, c, h, w) -> (n, padded rows, padded columns, c), as far as they are read."""
        first, (n, channels, h, w) = self.geometry[0], x.shape
        if (channels, h, w) != (first.channels, *self._size):
            wanted = (first.channels, *self._size)
            raise ValueError(f"images of {tuple(x.shape[1:])}; this network was laid out for {wanted}")
        images = x.to(torch.float32).contiguous()
        found = np.zeros((n, size_of(first)), dtype=np.float32)
        self._call.chase_prepare(ctypes.addressof(first), images.data_ptr(), n, h, w, self._pad, found.ctypes.data)
        return found

    def in_passes(self, samples: Prepared) -> list[Prepared]:
        """The samples as inference takes them, the batch innermost, for those that are inferred often."""
        first, size, found = self.geometry[0], size_of(self.geometry[0]), []
        room = np.zeros(samples.size + SLACK, dtype=np.float32)
        for at in range(0, len(samples), self.chunk):
            n = min(self.chunk, len(samples) - at)
            part = room[at * size : (at + n) * size].reshape(size, n)
            address = samples.ctypes.data + at * samples.strides[0]
            self._call.chase_lay_out(ctypes.addressof(first), self._kernel.path, address, n, part.ctypes.data)
            found.append(part)
        return found

    def _make_buffers(self, batch: int, train: bool) -> CompiledBuffers:
        if any(batch * size_of(c) >= MOST_FLOATS for c in self.geometry):
            raise SettingsError(
                f"steps of {batch} samples are too large for the compiled kernel: set a smaller batch_size, or "
                "kernels=fused for a new run"
            )
        return CompiledBuffers(self, batch, train)

    def _fill(self, b: CompiledBuffers, samples: Prepared, positions: NDArray[np.int64], at: int) -> None:
        outside = self._call.chase_fill(
            b.address, samples.ctypes.data, len(samples), positions.ctypes.data, len(positions), at
        )
        if outside:
            raise IndexError(f"positions outside of {len(samples)} samples: {positions}")

    @torch.inference_mode()
    def step(
        self,
        batches: Sequence[tuple[Prepared, NDArray[np.int64]]],
        labels: Tensor,
        bits: MaskSource,
        alignment: tuple[Tensor, Tensor] | None,
        mu: float,
        sgd: tuple[float, float, float],
        want_loss: bool,
        ranking: FusedRanking | None = None,
        attached: bool = True,
        soft: Soft | None = None,
    ) -> float:
        """One step, see ``FusedLayers.step``."""
        b = self._buffer(sum(len(positions) for _, positions in batches), True)
        at = 0
        for samples, positions in batches:
            self._fill(b, samples, positions, at)
            at += len(positions)
        b.draw(bits)
        call, path = self._call, self._kernel.path
        call.chase_pack(b.address, path)
        call.chase_forward(b.address, path, 1, 1)
        directions, aligned = (None, None) if alignment is None else (of.data_ptr() for of in alignment)
        told = None if soft is None else ctypes.byref(_softened(soft))
        loss = float(
            call.chase_loss(b.address, len(labels), labels.data_ptr(), directions, aligned, None, mu, told, None)
        )
        if loss == -1.0:
            raise IndexError(f"labels outside of {self._hidden[-1]} classes: {labels}")
        blocks: list[Tensor] = []
        if ranking is not None:
            n = len(labels)
            real = nn.functional.cross_entropy(b.hidden[-1][:n], labels, reduction="none")
            blocks, ranked = ranking.step(self._blocks(b, n, True), real, sgd, want_loss)
            loss += ranked
        self._backward_step(b, sgd, blocks if attached else [])
        return loss if want_loss else 0.0

    def steps(self, series: Series, bits: MaskSource, want_loss: bool) -> NDArray[np.float64]:
        """All steps of a series, several in one call of the kernel; always with their losses."""
        samples, positions, watched = series.samples, series.positions, series.watched
        count, labelled = positions.shape
        losses = np.empty(count, dtype=np.float64)
        b = self._buffer(labelled + (0 if watched is None else watched.picks.shape[1]), True)
        b.sgd.rate, b.sgd.momentum, b.sgd.decay = series.sgd
        together = min(CALLS, max(1, MASKS // max(1, b.masks.size)))
        for at in range(0, count, together):
            here = slice(at, at + together)
            masks = b.drawn(bits, len(positions[here]))
            order = Steps(count=len(positions[here]), labelled=labelled, total=len(samples), mu=series.mu)
            order.samples, order.positions = samples.ctypes.data, positions[here].ctypes.data
            order.labels, order.losses = series.labels[here].ctypes.data, losses[here].ctypes.data
            order.masks, order.masks_to, order.mask_bytes = masks.ctypes.data, b.masks.ctypes.data, b.masks.size
            if series.soft is not None:
                order.soft = _softened(series.soft)
            if watched is not None:
                order.watched, order.others_total = watched.picks.shape[1], len(watched.samples)
                order.others, order.picks = watched.samples.ctypes.data, watched.picks[here].ctypes.data
                order.directions, order.aligned = watched.directions.data_ptr(), watched.aligned.data_ptr()
            wrong = self._call.chase_steps(
                b.address, self._kernel.path, ctypes.addressof(b.sgd), ctypes.addressof(order)
            )
            if wrong:
                raise IndexError(
                    f"positions outside of {len(samples)} samples, or labels outside of {self._hidden[-1]} classes"
                )
        return losses

    def _backward_step(self, b: CompiledBuffers, sgd: tuple[float, float, float], blocks: list[Tensor]) -> None:
        b.sgd.rate, b.sgd.momentum, b.sgd.decay = sgd
        if not blocks:
            self._call.chase_backward(b.address, self._kernel.path, ctypes.addressof(b.sgd), None, 0)
            return
        first, second = self.geometry
        blocks[0] = blocks[0] / (first.rows * first.columns)
        blocks[1] = blocks[1] / (second.rows * second.columns)
        blocks = [block.contiguous() for block in blocks]
        addresses = (ctypes.c_void_p * len(blocks))(*(block.data_ptr() for block in blocks))
        self._call.chase_backward(b.address, self._kernel.path, ctypes.addressof(b.sgd), addresses, len(blocks[0]))

    def _blocks(self, b: CompiledBuffers, count: int, dropping: bool) -> list[Tensor]:
        """The first ``count`` samples' blocks averaged over space, as the network's taps give them: (count, width).

        Of the maps the first has dropout's factor 2 already; the second has it where whole channels are dropped.
        """
        places = self.geometry[0].rows * self.geometry[0].columns  # the zero border, where there is one, is not counted
        pooled = b.middle_images.sum(1).mul_(1.0 / places)
        flat = b.flat_by_channel.mean(2).mul_(self.flat_scale if dropping else 1.0)
        return [pooled[:count], flat[:count], *super()._blocks(b, count, dropping)]

    @torch.inference_mode()
    def outputs_of(self, parts: Sequence[Prepared]) -> Tensor:
        """Logits of samples that ``in_passes`` has laid out, several passes in one call."""
        found = torch.empty(sum(part.shape[1] for part in parts), self._hidden[-1])
        at, path = found.data_ptr(), self._kernel.path
        for i, (n, alike) in enumerate(groupby(parts, key=lambda part: part.shape[1])):
            b, addresses = self._buffer(n, False), [part.ctypes.data for part in alike]
            if i == 0:
                self._call.chase_pack(b.address, path)
            for first in range(0, len(addresses), CALLS):
                some = addresses[first : first + CALLS]
                self._call.chase_passes(b.address, path, (ctypes.c_void_p * len(some))(*some), len(some), at)
                at += 4 * len(some) * n * self._hidden[-1]
        return found

    def _gather(
        self, parts: Sequence[Prepared], shape: tuple[int, ...], read: Callable[[CompiledBuffers], Tensor]
    ) -> Tensor:
        """Forward passes without dropout over samples that are in passes; what ``read`` finds in each, joined."""
        found, at = torch.empty(sum(part.shape[1] for part in parts), *shape), 0
        keep_middle, path = not shape, self._kernel.path
        for i, part in enumerate(parts):
            b = self._buffer(part.shape[1], False)
            if i == 0:
                self._call.chase_pack(b.address, path)
            b.c.planes = part.ctypes.data
            self._call.chase_forward(b.address, path, 0, keep_middle)
            found[at : at + b.batch] = read(b)
            at += b.batch
        return found

    def _parts(self, samples: Prepared) -> list[Prepared]:
        return self.in_passes(samples)


def _softened(soft: Soft) -> SoftStructure:
    """For the kernel; the targets must live as long as it."""
    return SoftStructure(soft.targets.data_ptr(), soft.weight, soft.temperature)


def _geometry(convs: Sequence[nn.Conv2d], size: Pair, pads: Pair) -> list[Convolution]:
    sizes = sizes_read(convs, size, pads)
    assert sizes is not None, "images that are too small have been left to autograd"
    found = []
    for conv, (height, width) in zip(convs, (sizes.outer, sizes.inner), strict=True):
        k = conv.kernel_size[0]
        rows, columns = (height - k + 1) // 2, (width - k + 1) // 2
        found.append(Convolution(conv.in_channels, height, width, conv.out_channels, k, rows, columns))
    return found


def fits(convs: Sequence[nn.Conv2d], size: Pair, pads: Pair) -> bool:
    """Whether all places in the buffers of a usual batch are numbers of 32 bits."""
    return all(USUAL_BATCH * size_of(c) < MOST_FLOATS for c in _geometry(convs, size, pads))
