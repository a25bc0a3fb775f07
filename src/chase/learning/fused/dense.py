"""Linear layers with ReLU between them, and the steps that all fused networks share.

``FusedDense`` is a whole perceptron: own networks for tables, vectors or flattened images. A network with other layers
before the linear ones derives from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.learning.fused.conv import FACTORS
from chase.learning.fused.parameters import FlatParameters, cut
from chase.learning.fused.predictor import FusedRanking
from chase.models.layers import MaskSource

Prepared = NDArray[np.float32]
"""(samples, width): what ``prepare`` makes of samples."""

relu_backward = torch.ops.aten.threshold_backward.grad_input


class Watched(NamedTuple):
    """Samples without labels that steps are aligned on."""

    samples: Prepared
    picks: NDArray[np.int64]
    """(steps, watched in each): positions among the samples."""
    directions: Tensor
    """(samples, outputs)"""
    aligned: Tensor
    """(samples,)"""


class Soft(NamedTuple):
    """What a teacher says of labelled samples, which they learn beside their labels (``distillation.py``)."""

    targets: Tensor
    """(samples, classes): softmax(outputs / temperature)"""
    weight: float
    temperature: float

    def of(self, positions: Tensor) -> Soft:
        """Of these samples."""
        return self._replace(targets=self.targets.index_select(0, positions))


class Series(NamedTuple):
    """Steps of one size, one after the other."""

    samples: Prepared
    positions: NDArray[np.int64]
    """(steps, size): among the samples."""
    labels: NDArray[np.int64]
    """(steps, size)"""
    sgd: tuple[float, float, float]
    """Learning rate, momentum, weight decay."""
    mu: float = 0.0
    watched: Watched | None = None
    soft: Soft | None = None
    """Of all the samples."""


class DenseBuffers:
    """Everything that the linear layers need for one batch size."""

    def __init__(self, width: int, hidden: Sequence[int], batch: int, train: bool) -> None:
        self.batch = batch
        self.flat = torch.zeros(batch, width)
        """What the first linear layer sees."""
        self.inputs_np = self.flat.numpy().T
        """Where samples are written to, (width, batch)."""
        self.hidden = [torch.zeros(batch, size) for size in hidden]
        if train:
            self.gradients = [torch.zeros(batch, size) for size in hidden]
            self.gradients_t = [g.t() for g in self.gradients]
            units = torch.zeros(-(-hidden[0] * batch // 8) * 8)
            self.unit_mask_np = units.numpy().reshape(-1, 8)
            self.unit_mask = units[: hidden[0] * batch].view(batch, hidden[0])
            self.dropped = torch.zeros(batch, hidden[0])
            """The first hidden layer after its dropout."""


B = TypeVar("B", bound=DenseBuffers)


class FusedLayers(FlatParameters, Generic[B]):
    """Linear layers, trained by SGD with momentum; ``drops``: dropout of 1/2 after the first hidden layer.

    ``front``: shapes of the parameters of what stands before them.
    """

    chunk = 200
    """Samples an inference pass: all buffers stay in the cache."""
    gives_blocks = False
    """Whether a loss-prediction module can read what the network's taps name; own networks may name anything."""

    def __init__(
        self, linears: Sequence[nn.Linear], front: Sequence[tuple[int, ...]] = (), drops: bool = False
    ) -> None:
        self._linears, self._drops = linears, drops
        shapes = [*front, *((layer.out_features,) for layer in linears)]
        small = sum(int(np.prod(shape)) for shape in shapes)
        shapes += [(layer.out_features, layer.in_features) for layer in linears]
        super().__init__(sum(int(np.prod(shape)) for shape in shapes))
        self._small_gradient = torch.zeros(small)
        self._small_velocity = self.velocity[:small]
        places, speeds = cut(self.theta, shapes), cut(self.velocity, shapes)
        first, last = len(front), len(front) + len(linears)
        self._front, self._biases, self._weights = places[:first], places[first:last], places[last:]
        self._weights_t = [w.t() for w in self._weights]
        self._weight_velocity = speeds[last:]
        gradients = cut(self._small_gradient, shapes[:last])
        self._front_gradients, self._bias_gradients = gradients[:first], gradients[first:]
        self._hidden = [layer.out_features for layer in linears]
        self._scale = 1.0
        """Factor of what the first linear layer sees in training."""
        self._buffers: dict[tuple[int, bool], B] = {}
        self._eye = torch.eye(self._hidden[-1])

    @abstractmethod
    def prepare(self, x: Tensor) -> Prepared:
        """Samples for ``step`` and ``outputs``."""

    @abstractmethod
    def _make_buffers(self, batch: int, train: bool) -> B: ...

    def _buffer(self, batch: int, train: bool) -> B:
        key = (batch, train)
        if key not in self._buffers:
            self._buffers[key] = self._make_buffers(batch, train)
        return self._buffers[key]

    def _expand(self) -> None:
        """Before passes with new parameters."""

    def _flatten(self, b: B, bits: MaskSource | None) -> None:
        """inputs -> b.flat."""

    def _blocks(self, b: B, count: int, dropping: bool) -> list[Tensor]:
        """What a loss-prediction module reads of the first ``count`` samples, where ``gives_blocks``: hidden layers."""
        return [block[:count] for block in b.hidden[:-1]]

    def _forward(self, b: B, bits: MaskSource) -> Tensor:
        """Logits (batch, classes) of what stands in b.inputs, with dropout."""
        self._expand()
        self._flatten(b, bits)
        h, alpha = b.flat, self._scale
        for i, z in enumerate(b.hidden):
            torch.addmm(self._biases[i], h, self._weights_t[i], alpha=alpha, out=z)
            if i < len(b.hidden) - 1:
                z.relu_()
                if i == 0 and self._drops:
                    np.take(FACTORS, bits.octets(len(b.unit_mask_np)), axis=0, out=b.unit_mask_np, mode="clip")
                    z = torch.mul(z, b.unit_mask, out=b.dropped)
            h, alpha = z, 1.0
        return h

    def _backward(self, b: B, momentum: float, blocks: Sequence[Tensor] = ()) -> None:
        """b.gradients[-1], the gradient of the logits -> velocity.

        ``blocks``: gradients of the pooled blocks of the first samples (see ``_blocks``), which are added where the
        backward pass comes by them.
        """
        for i in range(len(b.hidden) - 1, 0, -1):
            gradient, before = b.gradients[i], b.gradients[i - 1]
            torch.sum(gradient, 0, out=self._bias_gradients[i])
            dropped = i == 1 and self._drops
            inputs = b.dropped if dropped else b.hidden[i - 1]
            self._weight_velocity[i].addmm_(b.gradients_t[i], inputs, beta=momentum)
            torch.mm(gradient, self._weights[i], out=before)
            if dropped:
                before.mul_(b.unit_mask)
            if blocks:
                before[: len(blocks[0])].add_(blocks[i - len(b.hidden)])
            relu_backward(before, b.hidden[i - 1], 0.0, grad_input=before)
        torch.sum(b.gradients[0], 0, out=self._bias_gradients[0])
        self._weight_velocity[0].addmm_(b.gradients_t[0], b.flat, beta=momentum, alpha=self._scale)
        self._backward_front(b, blocks)
        self._small_velocity.mul_(momentum).add_(self._small_gradient)

    def _backward_front(self, b: B, blocks: Sequence[Tensor]) -> None:
        """b.gradients[0] -> gradients of what stands before the linear layers."""

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
        """One step; ``batches`` are (samples, positions): the labelled, then, with alignment, the watched.

        ``alignment``: directions (watched, outputs) and aligned (watched,). ``sgd``: learning rate, momentum, weight
        decay. ``ranking``: a loss-prediction module that is trained beside the network on the labelled samples;
        ``attached``: its gradient continues into the network. ``soft``: of the labelled samples. Returns the loss where
        it is wanted, else 0.
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
        if soft is not None:
            loss = (1.0 - soft.weight) * loss + soft.weight * soft_gradient(z[:n], gradient[:n], soft, want_loss)
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

    def steps(self, series: Series, bits: MaskSource, want_loss: bool) -> NDArray[np.float64]:
        """All steps of a series; the loss of each where it is wanted."""
        losses = np.zeros(len(series.positions))
        watched = series.watched
        for i, (positions, labels) in enumerate(zip(series.positions, series.labels, strict=True)):
            batches, alignment = [(series.samples, positions)], None
            if watched is not None:
                batches.append((watched.samples, watched.picks[i]))
                pick = torch.from_numpy(watched.picks[i])
                alignment = watched.directions.index_select(0, pick), watched.aligned.index_select(0, pick)
            soft = None if series.soft is None else series.soft.of(torch.from_numpy(positions))
            taken, sgd = torch.from_numpy(labels), series.sgd
            losses[i] = self.step(batches, taken, bits, alignment, series.mu, sgd, want_loss, soft=soft)
        return losses

    @torch.inference_mode()
    def outputs(self, samples: Prepared) -> Tensor:
        """Logits (samples, classes) without dropout."""
        return self.outputs_of(self._parts(samples))

    @torch.inference_mode()
    def outputs_of(self, parts: Sequence[Prepared]) -> Tensor:
        """The same of samples that ``in_passes`` has laid out."""
        return self._gather(parts, (self._hidden[-1],), lambda b: b.hidden[-1])

    def in_passes(self, samples: Prepared) -> list[Prepared]:
        """The samples as inference takes them, (width, samples) per pass, for those that are inferred often."""
        return [np.ascontiguousarray(part) for part in self._parts(samples)]

    def _parts(self, samples: Prepared) -> list[Prepared]:
        """The samples of each pass, (width, samples)."""
        return [samples[at : at + self.chunk].T for at in range(0, len(samples), self.chunk)]

    @torch.inference_mode()
    def features(self, samples: Prepared) -> Tensor:
        """What the last layer sees (samples, width), without dropout."""
        width = [self._linears[0].in_features, *self._hidden][-2]
        return self._gather(self._parts(samples), (width,), lambda b: [b.flat, *b.hidden][-2])

    @torch.inference_mode()
    def predicted_losses(self, samples: Prepared, ranking: FusedRanking) -> Tensor:
        """Predicted losses (samples,), without dropout."""
        parts = self._parts(samples)
        return self._gather(parts, (), lambda b: ranking.predict(self._blocks(b, b.batch, False)))

    def _gather(self, parts: Sequence[Prepared], shape: tuple[int, ...], read: Callable[[B], Tensor]) -> Tensor:
        """Forward passes without dropout; what ``read`` finds in the buffers of each, joined -> (samples, *shape)."""
        found, at = torch.empty(sum(part.shape[1] for part in parts), *shape), 0
        self._expand()
        for part in parts:
            b = self._buffer(part.shape[1], False)
            np.copyto(b.inputs_np, part)
            self._flatten(b, None)
            h = b.flat
            for i, z in enumerate(b.hidden):
                torch.addmm(self._biases[i], h, self._weights_t[i], out=z)
                h = z if i == len(b.hidden) - 1 else z.relu_()
            found[at : at + b.batch] = read(b)
            at += b.batch
        return found


class FusedPerceptron(FusedLayers[DenseBuffers]):
    """Linear layers alone."""

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter."""
        theirs = [layer.weight for layer in self._linears] + [layer.bias for layer in self._linears]
        return list(zip([*self._weights, *self._biases], theirs, strict=True))

    def prepare(self, x: Tensor) -> Prepared:
        """(n, ...) -> (n, width)."""
        prepared: Prepared = x.reshape(len(x), self._linears[0].in_features).numpy()
        return prepared

    def _make_buffers(self, batch: int, train: bool) -> DenseBuffers:
        return DenseBuffers(self._linears[0].in_features, self._hidden, batch, train)


def soft_gradient(z: Tensor, gradient: Tensor, soft: Soft, want_loss: bool) -> float:
    """``gradient``, of the mean cross-entropy, becomes that of (1 - w) * it + w * T^2 * KL(targets || softmax(z / T)).

    Returns T^2 * KL where it is wanted, else 0.
    """
    heat, n = soft.temperature, z.shape[0]
    log_p = nn.functional.log_softmax(z / heat, 1)
    gradient.mul_(1.0 - soft.weight).add_(log_p.exp() - soft.targets, alpha=soft.weight * heat / n)
    if not want_loss:
        return 0.0
    return heat * heat * float(nn.functional.kl_div(log_p, soft.targets, reduction="batchmean"))


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
