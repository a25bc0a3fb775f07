"""The memory that the compiled kernel works on, for one network and one batch size (``native/net.h``)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.learning.fused.dense import DenseBuffers
from chase.learning.native.kernel import SLACK, Convolution, Linear, Net, Sgd
from chase.models.layers import MaskSource

if TYPE_CHECKING:
    from chase.learning.fused.compiled import CompiledNet


def octets(count: int) -> int:
    """How many groups of eight hold so many."""
    return -(-count // 8)


def size_of(c: Convolution) -> int:
    """Floats of one sample that a convolution sees."""
    return int(c.height * c.width * c.channels)


class CompiledBuffers(DenseBuffers):
    """All buffers of a batch size; ``address`` is that of the structure that the kernel reads."""

    def __init__(self, net: CompiledNet, batch: int, train: bool) -> None:
        super().__init__(net.widths[0], net.widths[1:], batch, train)
        self._net, self.sgd = net, Sgd()
        self._held: list[NDArray[Any]] = []
        """Memory that the structure points to."""
        first, second = net.geometry
        self.c = c = Net(batch=batch, pad=net.pad, linears=len(net.widths) - 1, small=net.small)
        size, middle = size_of(first), size_of(second)
        c.image_stride = size + 16  # samples that are a multiple of 4 KB apart would share one place in the cache
        c.images, c.own_planes = self._floats(batch * c.image_stride), self._floats(size * batch)
        c.planes = c.own_planes
        c.middle, c.middle_images = self._floats(middle * batch), self._floats(middle * batch)
        images = torch.from_numpy(self._held[-1][: middle * batch])
        self.middle_images = images.view(batch, second.height * second.width, second.channels)
        self.flat_by_channel = self.flat.view(batch, second.out, second.rows * second.columns)
        c.flat = self.flat.data_ptr()
        c.first, c.second = (self._convolution(i) for i in (0, 1))
        c.row = self._floats(max(first.out * c.first.stride, second.out * c.second.stride))
        c.flat_scale = net.flat_scale if train else 1.0
        c.first_scale, c.second_scale = net.first_scale, net.second_scale
        self._layers = self._linears(train)
        c.linear = self._layers
        if train:
            self._for_training()
            self._for_masks()
        self.address = ctypes.addressof(c)

    def _hold(self, buffer: NDArray[Any]) -> int:
        self._held.append(buffer)
        return int(buffer.ctypes.data)

    def _floats(self, count: int) -> int:
        return self._hold(np.zeros(count + SLACK, dtype=np.float32))

    def _bytes(self, count: int) -> int:
        return self._hold(np.zeros(count + SLACK, dtype=np.uint8))

    def _convolution(self, i: int) -> Convolution:
        net, c = self._net, Convolution()
        ctypes.pointer(c)[0] = net.geometry[i]
        c.stride = 8 * octets(c.columns * self.batch)
        c.weight, c.bias = net.convolutions[i].data_ptr(), net.convolutions[2 + i].data_ptr()
        c.gradient, c.bias_gradient = net.gradients[i].data_ptr(), net.gradients[2 + i].data_ptr()
        c.packed = net.packed[i].ctypes.data
        return c

    def _linears(self, train: bool) -> ctypes.Array[Linear]:
        net = self._net
        layers = (Linear * (len(net.widths) - 1))()
        for i, layer in enumerate(layers):
            setattr(layer, "in", net.widths[i])
            layer.out = net.widths[i + 1]
            layer.weight, layer.velocity = net.weights[i].data_ptr(), net.velocities[i].data_ptr()
            layer.bias, layer.bias_gradient = net.biases[i].data_ptr(), net.bias_gradients[i].data_ptr()
            layer.values = self.hidden[i].data_ptr()
            if train:
                layer.gradient = self.gradients[i].data_ptr()
        return layers

    def _for_training(self) -> None:
        net, c, batch = self._net, self.c, self.batch
        first, second = net.geometry
        one, two, channels, out = first.kernel, second.kernel, second.channels, second.out
        places = second.rows * second.columns
        self._flat_gradient = torch.zeros_like(self.flat)
        c.flat_gradient = self._flat_gradient.data_ptr()
        c.middle_gradient = self._floats(size_of(second) * batch)
        c.sums = self._floats(8 * max(one * first.out * octets(one * first.channels), two * octets(two * channels)))
        c.wide = self._floats(out * (two + 2) * (channels + 8 * octets((two + 1) * channels)))
        c.places = self._floats(2 * max(out * batch * places, first.rows * first.columns) + 2)
        c.window_places = self._floats(2 * places * out + 2)
        c.counts = self._floats(2 * (out + places))
        c.dropped = self.dropped.data_ptr()
        c.small_theta, c.small_velocity = net.theta.data_ptr(), net.velocity.data_ptr()
        c.small_gradient = net.small_gradient.data_ptr()
        c.first.chosen = self._bytes(first.out * first.rows * c.first.stride)
        c.second.chosen = self._bytes(out * second.rows * c.second.stride)

    def _for_masks(self) -> None:
        """Room for the masks, one after the other in the order in which they are drawn."""
        net, c, batch, form = self._net, self.c, self.batch, self._net.form
        first, second = net.geometry
        wanted: list[tuple[Convolution | Net, str, int]] = []
        if form.first:
            wanted.append((c.first, "bytes", 4 * first.out * first.rows * first.columns * batch))
        if form.second == "element":
            wanted.append((c.second, "bytes", 4 * second.out * second.rows * second.columns * batch))
        elif form.second == "channel":
            wanted.append((c, "channel_bytes", second.out * batch))
        if form.hidden:
            wanted.append((c, "unit_bytes", net.widths[1] * batch))
        self._mask_sizes = [octets(bits) for _, _, bits in wanted]
        at = self._bytes(sum(self._mask_sizes))
        self.masks: NDArray[np.uint8] = self._held[-1][: sum(self._mask_sizes)]
        """What the kernel reads in a step."""
        for (structure, field, _), size in zip(wanted, self._mask_sizes, strict=True):
            setattr(structure, field, at)
            at += size

    def drawn(self, bits: MaskSource, steps: int) -> NDArray[np.uint8]:
        """The masks of the next steps -> (steps, bytes of a step)."""
        found = np.empty((steps, self.masks.size), dtype=np.uint8)
        for step in found:
            at = 0
            for size in self._mask_sizes:
                step[at : at + size] = bits.octets(size)
                at += size
        return found

    def draw(self, bits: MaskSource) -> None:
        """The masks of the next step."""
        np.copyto(self.masks, self.drawn(bits, 1)[0])
