"""The whole network: parameters in one flat vector, forward, backward with SGD, inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.learning.fused.buffers import Buffers
from chase.learning.fused.conv import FACTORS, PooledConv
from chase.learning.fused.parameters import FlatParameters, cut
from chase.learning.fused.predictor import FusedRanking
from chase.learning.fused.trace import own_form
from chase.models.catalog import SAMPLE_SHAPE
from chase.models.convnets import CifarCNN, MnistCNN, TinyCNN
from chase.models.layers import MaskSource

CHUNK = 20
"""Samples an inference pass: all buffers stay in the cache."""

Prepared = NDArray[np.float32]
"""(samples, channels * height * width), columns split by parity."""

_relu_backward = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True)
class Form:
    """Where a network has its dropout."""

    first: bool
    second: Literal["none", "element", "channel"]
    hidden: bool


class FusedNet(FlatParameters):
    """conv-pool-conv-pool-fc..., trained by SGD with momentum; dropout p = 1/2 where ``form`` says."""

    def __init__(
        self, convs: Sequence[nn.Conv2d], linears: Sequence[nn.Linear], size: tuple[int, int], form: Form, pad: int = 0
    ) -> None:
        self._sources: list[nn.Conv2d | nn.Linear] = [*convs, *linears]
        self._form, self._pad = form, pad
        k = convs[0].kernel_size[0]
        shapes: list[tuple[int, ...]] = [(c.out_channels, k, k, c.in_channels) for c in convs]
        shapes += [(layer.weight.shape[0],) for layer in self._sources]
        small = sum(int(np.prod(shape)) for shape in shapes)
        shapes += [(layer.out_features, layer.in_features) for layer in linears]
        super().__init__(sum(int(np.prod(shape)) for shape in shapes))
        self._small_gradient = torch.zeros(small)
        self._small_velocity = self.velocity[:small]
        places, speeds = cut(self.theta, shapes), cut(self.velocity, shapes)
        n = len(linears)
        self._conv_weights, conv_biases = places[:2], places[2:4]
        self._biases, self._weights = places[4 : 4 + n], places[4 + n :]
        self._weights_t = [w.t() for w in self._weights]
        self._weight_velocity = speeds[4 + n :]
        gradients = cut(self._small_gradient, shapes[: 4 + n])
        self._conv_gradients, self._bias_gradients = (
            list(zip(gradients[:2], gradients[2:4], strict=True)),
            gradients[4:],
        )
        height, width = size
        outer = (height + 2 * pad, width + 2 * pad)
        self._first = PooledConv(convs[0].in_channels, *outer, self._conv_weights[0], conv_biases[0])
        inner = (self._first.rows + 2 * pad, self._first.columns + 2 * pad)
        self._second = PooledConv(convs[1].in_channels, *inner, self._conv_weights[1], conv_biases[1])
        self._second_slices_t = [view.t() for view in self._second.slices]
        self._conv_biases = conv_biases
        self._hidden = [layer.out_features for layer in linears]
        self._first_scale = 2.0 if form.first else 1.0
        self._second_scale = 2.0 if form.second == "element" else 1.0
        self._buffers: dict[tuple[int, bool], Buffers] = {}
        self._eye = torch.eye(self._hidden[-1])

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter, with torch's shapes."""
        own = [w.permute(0, 3, 1, 2) for w in self._conv_weights] + [*self._weights, *self._conv_biases, *self._biases]
        theirs = [layer.weight for layer in self._sources] + [layer.bias for layer in self._sources]
        return [(a, b) for a, b in zip(own, theirs, strict=True) if b is not None]

    def prepare(self, x: Tensor) -> Prepared:
        """(n, c, h, w) -> padded rows with even columns before odd ones, for ``step`` and ``outputs``."""
        n, c, h, w = x.shape
        pad, plain = self._pad, x.numpy()
        if not pad:
            return plain.reshape(n, c, h, w // 2, 2).swapaxes(3, 4).reshape(n, c * h * w)
        wide = np.zeros((n, c, h + 2 * pad, 2, w // 2 + pad), dtype=np.float32)
        for first in (0, 1):  # a column s of the image is column s + pad of the padded one
            parity, left = (first + pad) % 2, (first + pad) // 2
            wide[:, :, pad : pad + h, parity, left : left + w // 2] = plain[..., first::2]
        return wide.reshape(n, c * (h + 2 * pad) * (w + 2 * pad))

    def _buffer(self, batch: int, train: bool) -> Buffers:
        key = (batch, train)
        if key not in self._buffers:
            self._buffers[key] = Buffers(self._first, self._second, self._hidden, batch, train)
        return self._buffers[key]

    def _convolve(self, b: Buffers, bits: MaskSource | None) -> None:
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

    def _forward(self, b: Buffers, bits: MaskSource) -> Tensor:
        """Logits (batch, classes) of what stands in b.inputs, with dropout."""
        self._first.expand()
        self._second.expand()
        self._convolve(b, bits)
        h, alpha = b.flat, self._second_scale
        for i, z in enumerate(b.hidden):
            torch.addmm(self._biases[i], h, self._weights_t[i], alpha=alpha, out=z)
            if i < len(b.hidden) - 1:
                z.relu_()
                if i == 0 and self._form.hidden:
                    np.take(FACTORS, bits.octets(len(b.unit_mask_np)), axis=0, out=b.unit_mask_np, mode="clip")
                    z = torch.mul(z, b.unit_mask, out=b.dropped)
            h, alpha = z, 1.0
        return h

    def _blocks(self, b: Buffers, count: int, dropping: bool) -> list[Tensor]:
        """The first ``count`` samples' blocks averaged over space, as the network's taps give them: (count, width).

        With dropout the maps lack its factor 2; the fully connected layers are read before theirs.
        """
        first, second = (self._first_scale, self._second_scale) if dropping else (1.0, 1.0)
        places = self._first.rows * self._first.columns  # the zero border, where there is one, is not counted
        pooled = b.middle.sum((1, 2, 3, 4)).mul_(first / places).t()
        blocks = [pooled, b.flat_by_channel.mean(2).mul_(second), *b.hidden[:-1]]
        return [block[:count] for block in blocks]

    def _backward(self, b: Buffers, momentum: float, blocks: Sequence[Tensor] = ()) -> None:
        """b.gradients[-1], the gradient of the logits -> velocity.

        ``blocks``: gradients of the pooled blocks of the first samples (see ``_blocks``), which are added where the
        backward pass comes by them.
        """
        for i in range(len(b.hidden) - 1, 0, -1):
            gradient, before = b.gradients[i], b.gradients[i - 1]
            torch.sum(gradient, 0, out=self._bias_gradients[i])
            dropped = i == 1 and self._form.hidden
            inputs = b.dropped if dropped else b.hidden[i - 1]
            self._weight_velocity[i].addmm_(b.gradients_t[i], inputs, beta=momentum)
            torch.mm(gradient, self._weights[i], out=before)
            if dropped:
                before.mul_(b.unit_mask)
            if blocks:
                before[: len(blocks[0])].add_(blocks[1 + i])
            _relu_backward(before, b.hidden[i - 1], 0.0, grad_input=before)
        torch.sum(b.gradients[0], 0, out=self._bias_gradients[0])
        self._weight_velocity[0].addmm_(b.gradients_t[0], b.flat, beta=momentum, alpha=self._second_scale)
        torch.mm(b.gradients[0], self._weights[0], out=b.flat_gradient)
        self._backward_convs(b, blocks)
        self._small_velocity.mul_(momentum).add_(self._small_gradient)

    def _backward_convs(self, b: Buffers, blocks: Sequence[Tensor]) -> None:
        if blocks:
            places = self._second.rows * self._second.columns
            b.flat_gradient_by_channel[: len(blocks[1])].add_(blocks[1][:, :, None], alpha=1.0 / places)
        # masked while contiguous, then transposed: relu's backward is slow on strided tensors
        _relu_backward(b.flat_gradient, b.flat, 0.0, grad_input=b.flat_gradient)
        np.multiply(b.flat_gradient_t, np.float32(self._second_scale), out=b.second_gradient_np)
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
    ) -> float:
        """One step; ``batches`` are (samples, positions): the labelled, then, with alignment, the watched.

        ``alignment``: directions (watched, outputs) and aligned (watched,). ``sgd``: learning rate, momentum, weight
        decay. ``ranking``: a loss-prediction module that is trained beside the network on the labelled samples;
        ``attached``: its gradient continues into the network. Returns the loss where it is wanted, else 0.
        """
        total = sum(len(positions) for _, positions in batches)
        b = self._buffer(total, True)
        at = 0
        for samples, positions in batches:
            np.copyto(b.inputs_np[:, at : at + len(positions)], samples.take(positions, axis=0).T)
            at += len(positions)
        z = self._forward(b, bits)
        gradient = b.gradients[-1]
        n = labels.shape[0]
        torch.softmax(z, 1, out=gradient)
        loss = 0.0
        if want_loss:
            loss = -float(gradient[:n].gather(1, labels[:, None]).clamp_min(1e-30).log().mean())
        gradient[:n].sub_(self._eye.index_select(0, labels)).mul_(1.0 / n)
        if alignment is not None:
            loss += mu * align_gradient(z[n:], gradient[n:], *alignment, mu, want_loss)
        lr, momentum, weight_decay = sgd
        blocks: list[Tensor] = []
        if ranking is not None:
            real = nn.functional.cross_entropy(z[:n], labels, reduction="none")
            blocks, ranked = ranking.step(self._blocks(b, n, True), real, sgd, want_loss)
            loss += ranked
        self._backward(b, momentum, blocks if attached else ())
        if weight_decay:
            self.velocity.add_(self.theta, alpha=weight_decay)
        self.theta.add_(self.velocity, alpha=-lr)
        return loss

    @torch.inference_mode()
    def outputs(self, samples: Prepared) -> Tensor:
        """Logits (samples, classes) without dropout."""
        return self._gather(samples, (self._hidden[-1],), lambda b: b.hidden[-1])

    @torch.inference_mode()
    def features(self, samples: Prepared) -> Tensor:
        """What the last layer sees (samples, width), without dropout."""
        return self._gather(samples, (self._hidden[-2],), lambda b: b.hidden[-2])

    @torch.inference_mode()
    def predicted_losses(self, samples: Prepared, ranking: FusedRanking) -> Tensor:
        """Predicted losses (samples,), without dropout."""
        return self._gather(samples, (), lambda b: ranking.predict(self._blocks(b, b.batch, False)))

    def _gather(self, samples: Prepared, shape: tuple[int, ...], read: Callable[[Buffers], Tensor]) -> Tensor:
        """Forward passes without dropout; what ``read`` finds in the buffers of each, joined -> (samples, *shape)."""
        found = torch.empty(len(samples), *shape)
        self._first.expand()
        self._second.expand()
        for at in range(0, len(samples), CHUNK):
            part = samples[at : at + CHUNK]
            b = self._buffer(len(part), False)
            np.copyto(b.inputs_np, part.T)
            self._convolve(b, None)
            h = b.flat
            for i, z in enumerate(b.hidden):
                torch.addmm(self._biases[i], h, self._weights_t[i], out=z)
                h = z if i == len(b.hidden) - 1 else z.relu_()
            found[at : at + len(part)] = read(b)
        return found


def align_gradient(
    f: Tensor, gradient: Tensor, directions: Tensor, aligned: Tensor, mu: float, want_loss: bool
) -> float:
    """Gradient of mu * mean softplus(<f/|f|, D>) over the aligned: mu * sigmoid(s) / |f| * (D - s * f/|f|)."""
    share = aligned / aligned.sum().clamp_min(1.0)
    norm = torch.linalg.vector_norm(f, 2, 1, True).clamp_min_(1e-12)
    unit = f / norm
    s = (unit * directions).sum(1, True)
    torch.addcmul(directions, unit, s, value=-1.0, out=gradient)
    gradient.mul_(torch.sigmoid(s).div_(norm).mul_(mu * share[:, None]))
    return float((nn.functional.softplus(s[:, 0]) * share).sum()) if want_loss else 0.0


_KNOWN: WeakKeyDictionary[nn.Module, FusedNet | None] = WeakKeyDictionary()


def fused_for(net: nn.Module) -> FusedNet | None:
    """The fused form of a network, made once; None where it has none (other layers, sizes or dropout).

    A network with the attribute ``plain_kernels`` set is left to autograd. A user's own network is fused where it has
    the form of the small ones (``trace``).
    """
    if getattr(net, "plain_kernels", False):
        return None
    if net not in _KNOWN:
        _KNOWN[net] = _make(net)
    return _KNOWN[net]


CLOSE = 1e-4
"""How far the outputs of a fused own network may be from its own, relative to the largest."""


def _own(net: nn.Module) -> FusedNet | None:
    """The fused form of a user's own network, where it has the form of the small ones and gives the same outputs."""
    shape: tuple[int, ...] = getattr(net, SAMPLE_SHAPE, ())
    if len(shape) != 3 or type(net).__module__.startswith("chase."):
        return None
    channels, height, width = shape
    found = own_form(net, (height, width))
    if found is None or found.convolutions[0].in_channels != channels:
        return None
    fused = FusedNet(found.convolutions, found.linears, (height, width), Form(False, "none", found.drops), found.pad)
    x = torch.randn(CHUNK, *shape, generator=torch.Generator().manual_seed(0))
    was_training = net.training
    with torch.inference_mode():
        theirs = net.eval()(x)
        net.train(was_training)
        fused.load()
        apart = (theirs - fused.outputs(fused.prepare(x))).abs().max()
    return fused if bool(apart <= CLOSE * theirs.abs().max()) else None


def _make(net: nn.Module) -> FusedNet | None:
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
        return _own(net)
    height, width = net.size
    pad = 1 if type(net) is TinyCNN else 0
    even = all(side % 2 == 0 and (side if pad else side - 4) % 4 == 0 for side in (height, width))
    known = [layer for layer in linears if isinstance(layer, nn.Linear)]
    if net.drop.p not in (0.0, 0.5) or not even or len(known) < len(linears):
        return None
    return FusedNet([net.conv1, net.conv2], known, (height, width), form, pad)
