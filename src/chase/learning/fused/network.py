"""The whole network: parameters in one flat vector, forward, backward with SGD, inference."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from chase.learning.fused.buffers import Buffers
from chase.learning.fused.compiled import CompiledNet, fits
from chase.learning.fused.compiled_buffers import CompiledBuffers
from chase.learning.fused.conv import FACTORS, PooledConv
from chase.learning.fused.dense import DenseBuffers, FusedLayers, FusedPerceptron, Prepared, relu_backward
from chase.learning.fused.form import Form
from chase.learning.fused.sizes import Pair, sizes_read
from chase.learning.fused.trace import OwnNet, Perceptron, form_of, has_hooks
from chase.learning.native.choice import OWN_FORMS, Kernels, chosen
from chase.learning.native.kernel import kernel
from chase.models.catalog import SAMPLE_SHAPE
from chase.models.convnets import CifarCNN, MnistCNN, TinyCNN
from chase.models.layers import MaskSource
from chase.models.net import Net

CHUNK = 20
"""Samples an inference pass: all buffers stay in the cache."""


class FusedNet(FusedLayers[Buffers]):
    """conv-pool-conv-pool-fc..., trained by SGD with momentum; dropout p = 1/2 where ``form`` says."""

    chunk = CHUNK

    def __init__(
        self, convs: Sequence[nn.Conv2d], linears: Sequence[nn.Linear], size: Pair, form: Form, pads: Pair = (0, 0)
    ) -> None:
        weights: list[tuple[int, ...]] = [(c.out_channels, *c.kernel_size, c.in_channels) for c in convs]
        super().__init__(linears, [*weights, *((c.out_channels,) for c in convs)], form.hidden)
        self._sources: list[nn.Conv2d | nn.Linear] = [*convs, *linears]
        self._form, self._pads = form, pads
        self._conv_weights, self._conv_biases = self._front[:2], self._front[2:]
        self._conv_gradients = list(zip(self._front_gradients[:2], self._front_gradients[2:], strict=True))
        sizes = sizes_read(convs, size, pads)
        assert sizes is not None, "images that are too small have been left to autograd"
        self._first, self._second = (
            PooledConv(conv.in_channels, *read, weight, bias)
            for conv, read, weight, bias in zip(
                convs, (sizes.outer, sizes.inner), self._conv_weights, self._conv_biases, strict=True
            )
        )
        self._second_slices_t = [view.t() for view in self._second.slices]
        self._first_scale = 2.0 if form.first else 1.0
        self._scale = 2.0 if form.second == "element" else 1.0

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter, with torch's shapes."""
        own = [w.permute(0, 3, 1, 2) for w in self._conv_weights] + [*self._weights, *self._conv_biases, *self._biases]
        theirs = [layer.weight for layer in self._sources] + [layer.bias for layer in self._sources]
        return [(a, b) for a, b in zip(own, theirs, strict=True) if b is not None]

    def prepare(self, x: Tensor) -> Prepared:
        """(n, c, h, w) -> padded rows, as far as they are read, with even columns before odd ones."""
        n, c = x.shape[:2]
        pad, height, width = self._pads[0], self._first.height, self._first.width
        plain = x.numpy()[:, :, : height - pad, : width - pad]
        if not pad:
            return plain.reshape(n, c, height, width // 2, 2).swapaxes(3, 4).reshape(n, c * height * width)
        wide = np.zeros((n, c, height, 2, width // 2), dtype=np.float32)
        for first in (0, 1):  # a column s of the image is column s + pad of the padded one
            parity, left, columns = (first + pad) % 2, (first + pad) // 2, plain[..., first::2]
            wide[:, :, pad : pad + columns.shape[2], parity, left : left + columns.shape[3]] = columns
        return wide.reshape(n, c * height * width)

    def _make_buffers(self, batch: int, train: bool) -> Buffers:
        return Buffers(self._first, self._second, self._pads[1], self._hidden, batch, train)

    def _expand(self) -> None:
        self._first.expand()
        self._second.expand()

    def _flatten(self, b: Buffers, bits: MaskSource | None) -> None:
        """inputs -> b.flat, the pooled map of the second layer after its relu."""
        b.input_patches.copy_(b.input_windows)
        b.first.forward(bits if self._form.first else None)
        for source, inner in b.first_split:
            torch.clamp_min(source, 0.0, out=inner)
        if bits is not None and self._form.first:
            torch.mul(b.middle_windows, self._first_scale, out=b.middle_patches)
        else:
            b.middle_patches.copy_(b.middle_windows)
        b.second.forward(bits if self._form.second == "element" else None)
        if bits is not None and self._form.second == "channel":
            np.take(FACTORS, bits.octets(len(b.channel_mask_np)), axis=0, out=b.channel_mask_np, mode="clip")
            b.second_by_channel.mul_(b.channel_mask)  # factors 0 and 2 commute with the relu
        torch.clamp_min(b.second_t, 0.0, out=b.flat)

    def _blocks(self, b: Buffers, count: int, dropping: bool) -> list[Tensor]:
        """The first ``count`` samples' blocks averaged over space, as the network's taps give them: (count, width).

        With dropout the maps lack its factor 2; the fully connected layers are read before theirs.
        """
        first, second = (self._first_scale, self._scale) if dropping else (1.0, 1.0)
        places = self._first.rows * self._first.columns  # the zero border, where there is one, is not counted
        pooled = b.middle.sum((1, 2, 3, 4)).mul_(first / places).t()
        blocks = [pooled, b.flat_by_channel.mean(2).mul_(second)]
        return [*(block[:count] for block in blocks), *super()._blocks(b, count, dropping)]

    def _backward_front(self, b: Buffers, blocks: Sequence[Tensor]) -> None:
        torch.mm(b.gradients[0], self._weights[0], out=b.flat_gradient)
        if blocks:
            places = self._second.rows * self._second.columns
            b.flat_gradient_by_channel[: len(blocks[1])].add_(blocks[1][:, :, None], alpha=1.0 / places)
        # masked while contiguous, then transposed: relu's backward is slow on strided tensors
        relu_backward(b.flat_gradient, b.flat, 0.0, grad_input=b.flat_gradient)
        np.multiply(b.flat_gradient_t, np.float32(self._scale), out=b.second_gradient_np)
        if self._form.second == "channel":
            b.second_gradient_by_channel.mul_(b.channel_mask)
        b.second.backward(*self._conv_gradients[1])
        b.patch_gradient.zero_()
        for weights_t, gradient in zip(self._second_slices_t, b.shifted_gradient, strict=True):
            gradient.addmm_(weights_t, b.second.values)
        b.middle_gradient.zero_()
        for target, source in zip(b.middle_gradient_windows, b.patch_gradient_windows, strict=True):
            target.add_(source, alpha=self._first_scale)
        if blocks:
            share = self._first_scale / (self._first.rows * self._first.columns)
            spread = blocks[0].t()[:, None, None, None, None, :]
            b.middle_gradient[..., : len(blocks[0])].add_(spread, alpha=share)
        b.middle_gradient.mul_(b.middle.sign_())  # the map is not negative: its sign is the relu's mask
        for target, inner in b.first_gradient_split:
            target.copy_(inner)
        b.first.backward(*self._conv_gradients[0])


Fused = FusedLayers[DenseBuffers] | FusedLayers[Buffers] | FusedLayers[CompiledBuffers]
"""A network with hand-written steps."""

_KNOWN: WeakKeyDictionary[nn.Module, dict[Kernels, Fused | None]] = WeakKeyDictionary()


def fused_for(net: nn.Module) -> Fused | None:
    """The fused form of a network, made once; None where it has none (other layers, sizes or dropout).

    The attribute ``kernels`` of a network says what computes it: compiled, fused, plain (left to autograd), or auto,
    which is the default. A user's own network is fused where it has the form of the small ones, or is a perceptron
    (``trace``), and as long as no hook is on it; its attribute ``own_forms`` is the last version of the forms that
    counts.
    """
    kernels = chosen(getattr(net, "kernels", "auto"))
    if kernels == "plain" or (_is_own(net) and has_hooks(net)):
        return None
    known = _KNOWN.setdefault(net, {})
    if kernels not in known:
        known[kernels] = _make(net, kernels == "compiled")
    return known[kernels]


def _with_convolutions(
    convs: Sequence[nn.Conv2d],
    linears: Sequence[nn.Linear],
    size: Pair,
    form: Form,
    pads: Pair,
    compiled: bool,
) -> CompiledNet | FusedNet:
    if compiled and fits(convs, size, pads):
        return CompiledNet(convs, linears, size, form, pads, kernel())
    return FusedNet(convs, linears, size, form, pads)


CLOSE = 1e-4
"""How far the outputs of a fused own network may be from its own, relative to the largest."""


def _is_own(net: nn.Module) -> bool:
    return not type(net).__module__.startswith("chase.")


def _own_form(net: nn.Module) -> OwnNet | Perceptron | None:
    shape: tuple[int, ...] = getattr(net, SAMPLE_SHAPE, ())
    return form_of(net, shape) if shape and _is_own(net) else None


def fused_since(net: nn.Module) -> int:
    """Which version of the forms of own networks (``OWN_FORMS``) is the first that has this network's.

    0 for networks of this package, and for those that none of them has.
    """
    found = _own_form(net)
    return 0 if found is None else found.since


def _own(net: nn.Module, compiled: bool) -> Fused | None:
    """The fused form of a user's own network, where it has a form that is known and gives the same outputs.

    What it calls its features (``embed``) must be what the last layer of that form sees: strategies select by them.
    """
    found = _own_form(net)
    if found is None or found.since > getattr(net, "own_forms", OWN_FORMS):
        return None
    shape: tuple[int, ...] = getattr(net, SAMPLE_SHAPE)
    if isinstance(found, Perceptron):
        fused: Fused = FusedPerceptron(found.linears, drops=found.drops)
    else:
        fused = _with_convolutions(
            found.convolutions, found.linears, (shape[1], shape[2]), found.form, found.pads, compiled
        )
    x = torch.randn(CHUNK, *shape, generator=torch.Generator().manual_seed(0))
    was_training = net.training
    with torch.inference_mode():
        net.eval()
        pairs = [(net(x), fused.outputs)]
        pairs += [(net.embed(x), fused.features)] if isinstance(net, Net) else []
        net.train(was_training)
        fused.load()
        prepared = fused.prepare(x)
        same = all(_close(theirs, ours(prepared)) for theirs, ours in pairs)
    return fused if same else None


def _close(theirs: Tensor, ours: Tensor) -> bool:
    return theirs.shape == ours.shape and bool((theirs - ours).abs().max() <= CLOSE * theirs.abs().max())


def _make(net: nn.Module, compiled: bool) -> Fused | None:
    if type(net) is CifarCNN:
        drops = net.drop.p > 0
        form = Form(drops, "element" if drops else "none", False)
        linears: list[nn.Module] = [net.fc1, net.fc2, net.head]
    elif type(net) is MnistCNN:
        drops = net.drop.p > 0
        form = Form(False, "channel" if drops else "none", drops)
        linears = [net.fc, net.head]
    elif type(net) is TinyCNN:
        form = Form(False, "none", net.drop.p > 0)
        linears = [net.fc, net.head]
    else:
        return _own(net, compiled)
    height, width = net.size
    pad = 1 if type(net) is TinyCNN else 0
    even = all(side % 2 == 0 and (side if pad else side - 4) % 4 == 0 for side in (height, width))
    known = [layer for layer in linears if isinstance(layer, nn.Linear)]
    if net.drop.p not in (0.0, 0.5) or not even or len(known) < len(linears):
        return None
    fused = _with_convolutions([net.conv1, net.conv2], known, (height, width), form, (pad, pad), compiled)
    fused.gives_blocks = True
    return fused
