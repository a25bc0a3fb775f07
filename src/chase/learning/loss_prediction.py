"""Learning loss (LL4AL, Yoo and Kweon 2019): a small module that predicts the loss of a sample.

Each tapped block of the network is averaged over space, goes through fc 128 and ReLU, and all of them
together through fc 1. It is trained beside the network to *rank* losses: of the pairs (i, B-1-i) of a
batch, max(0, 1 - s * (predicted_i - predicted_j)) with s = +1 if loss_i > loss_j, else -1, the real
losses detached. The middle sample of an odd batch has no partner and is left out. Weight 1.

Our choice, where the published one depends on a long schedule: in the last 40 % of a turn's epochs
the gradient of this loss stops before the network. The module is averaged like the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chase.core.errors import SettingsError
from chase.core.randomness import torch_rng
from chase.core.weights import Array, Arrays, part_of, prefixed
from chase.data.resident import Samples
from chase.learning.fused import FusedRanking
from chase.learning.inference import fused_chunks, fused_on_cpu, run_chunks
from chase.learning.training import Step
from chase.models.layers import xavier_
from chase.models.net import Net, get_weights, set_weights

WIDTH = 128
MARGIN = 1.0
PREFIX = "loss."
ATTACHED = 0.6
"""Share of a turn's epochs in which the ranking loss also trains the network."""


class LossPredictor(nn.Module):
    """Pooled activations of the tapped blocks -> predicted loss (batch,)."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(width, WIDTH) for width in widths)
        self.score = nn.Linear(WIDTH * len(widths), 1)

    def forward(self, pooled: Sequence[Tensor]) -> Tensor:
        """pooled: one (batch, width) a block."""
        parts = [F.relu(branch(block)) for branch, block in zip(self.branches, pooled, strict=True)]
        scores: Tensor = self.score(torch.cat(parts, dim=1))
        return scores.squeeze(1)


def pool(activation: Tensor) -> Tensor:
    """Global average over space or time: (batch, channels, h, w) or (batch, length, width) -> (batch, width)."""
    if activation.dim() == 4:
        return activation.mean(dim=(2, 3))
    return activation.mean(dim=1) if activation.dim() == 3 else activation


def with_taps(net: nn.Module) -> Net:
    """The network, if its blocks can be read."""
    if not isinstance(net, Net) or not net.taps:
        raise SettingsError("the loss-prediction module reads blocks of the network, so it must be a Net with `taps`")
    return net


@contextmanager
def tapped(net: Net) -> Iterator[dict[str, Tensor]]:
    """While inside, the dictionary holds each tapped block's output of the last forward pass."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda module, inputs, output: seen.update({name: output})

    handles = [net.get_submodule(name).register_forward_hook(keep(name)) for name in net.taps]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def new_predictor(net: Net, shape: tuple[int, ...], seed: int) -> LossPredictor:
    """A predictor that fits the network's blocks for samples of this shape, with seeded initial weights."""
    tokens = any(isinstance(module, nn.Embedding) for module in net.modules())  # else images, vectors or table rows
    blank = torch.zeros(1, *shape, dtype=torch.int64 if tokens else torch.float32)
    training = net.training
    net.eval()
    with tapped(net) as seen, torch.no_grad():
        net(blank)
        predictor = LossPredictor([pool(seen[name]).shape[1] for name in net.taps])
    net.train(training)
    xavier_(predictor, torch_rng(seed, "loss-predictor"))
    return predictor


def to_extras(predictor: LossPredictor) -> dict[str, Array]:
    """The module as named arrays, for a message."""
    return prefixed(PREFIX, get_weights(predictor))


def loss_extras(arrays: Arrays, prefix: str = "") -> dict[str, Array]:
    """Those of the arrays that are a loss-prediction module, without the prefix."""
    return prefixed(PREFIX, part_of(arrays, prefix + PREFIX))


def from_extras(extras: Arrays) -> LossPredictor:
    """The module that ``to_extras`` gave."""
    arrays = part_of(extras, PREFIX)
    widths = [arrays[f"branches.{i}.weight"].shape[1] for i in range(len(arrays) // 2 - 1)]
    predictor = LossPredictor(widths)
    set_weights(predictor, arrays)
    return predictor


def predict(net: Net, predictor: LossPredictor, samples: Samples, rows: Tensor) -> Tensor:
    """Predicted loss of every row -> (rows,)."""
    fused = fused_on_cpu(net)
    if fused is not None and fused.gives_blocks:
        ranking = fused_ranking(predictor)
        fused.load()
        ranking.load()
        return fused_chunks(lambda part: fused.predicted_losses(part, ranking), fused, samples, rows)
    predictor.to(next(net.parameters()).device)
    with tapped(net) as seen:

        def forward(x: Tensor) -> Tensor:
            net(x)
            loss: Tensor = predictor([pool(seen[name]) for name in net.taps])
            return loss

        return run_chunks(forward, net, samples, rows)


def ranking_loss(predicted: Tensor, real: Tensor) -> Tensor:
    """Mean over the pairs (i, B-1-i) of max(0, 1 - s * (predicted_i - predicted_j)); 0 without a pair.

    predicted, real (batch,); no gradient goes into the real losses.
    """
    pairs = predicted.shape[0] // 2
    if pairs == 0:
        return predicted.sum() * 0.0
    real = real.detach()
    sign = torch.where(real[:pairs] > real.flip(0)[:pairs], 1.0, -1.0)
    return F.relu(MARGIN - sign * (predicted - predicted.flip(0))[:pairs]).mean()


class WithLossPrediction:
    """Cross-entropy plus the ranking loss of the predictor; use inside ``tapped(net)``."""

    def __init__(self, predictor: LossPredictor, taps: Sequence[str], seen: dict[str, Tensor]) -> None:
        self._predictor, self._taps, self._seen = predictor, taps, seen

    def parameters(self) -> Sequence[nn.Parameter]:
        """The predictor's."""
        return list(self._predictor.parameters())

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Cross-entropy + ranking loss; the labelled samples stand first in the last forward pass."""
        real = F.cross_entropy(outputs, y, reduction="none")
        blocks = [pool(self._seen[name][: y.shape[0]]) for name in self._taps]
        if not self.reaches_network(step):
            blocks = [block.detach() for block in blocks]
        return real.mean() + ranking_loss(self._predictor(blocks), real)

    def reaches_network(self, step: Step) -> bool:
        """In the first epochs of a turn."""
        return step.epoch < round(ATTACHED * step.epochs)

    def fused(self) -> FusedRanking:
        """The predictor by hand."""
        return fused_ranking(self._predictor)


def fused_ranking(predictor: LossPredictor) -> FusedRanking:
    """A predictor in hand-written form."""
    branches = [layer for layer in predictor.branches if isinstance(layer, nn.Linear)]
    return FusedRanking(branches, predictor.score, MARGIN)
