"""The loss-prediction module beside a fused network: prediction, ranking loss and SGD by hand.

Takes the pooled blocks of the network and gives back their gradients, so the network's own backward
pass continues from them. The mathematics is that of ``chase.learning.loss_prediction``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chase.learning.fused.parameters import FlatParameters, cut


class FusedRanking(FlatParameters):
    """One fully connected branch a block, ReLU, joined, one score; all parameters in ``theta``."""

    def __init__(self, branches: Sequence[nn.Linear], score: nn.Linear, margin: float) -> None:
        self._sources, self._margin = [*branches, score], margin
        super().__init__(sum(p.numel() for layer in self._sources for p in layer.parameters()))
        shapes = [tuple(p.shape) for layer in self._sources for p in (layer.weight, layer.bias)]
        self._gradient = torch.zeros_like(self.theta)
        places, gradients = cut(self.theta, shapes), cut(self._gradient, shapes)
        self._weights, self._biases = places[0:-2:2], places[1:-2:2]
        self._score, self._score_bias = places[-2][0], places[-1]
        self._branch_gradients = list(zip(gradients[0:-2:2], gradients[1:-2:2], strict=True))
        self._score_gradient, self._score_bias_gradient = gradients[-2][0], gradients[-1]
        self._places = places

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(own, torch's) view of every parameter."""
        theirs = [p for layer in self._sources for p in (layer.weight, layer.bias)]
        return list(zip(self._places, theirs, strict=True))

    def _joined(self, blocks: Sequence[Tensor]) -> Tensor:
        parts = [torch.addmm(b, x, w.t()) for x, w, b in zip(blocks, self._weights, self._biases, strict=True)]
        return torch.cat(parts, 1).relu_()

    def predict(self, blocks: Sequence[Tensor]) -> Tensor:
        """Pooled blocks, each (batch, width) -> predicted losses (batch,)."""
        return torch.mv(self._joined(blocks), self._score).add_(self._score_bias)

    def step(
        self, blocks: Sequence[Tensor], real: Tensor, sgd: tuple[float, float, float], want_loss: bool
    ) -> tuple[list[Tensor], float]:
        """One step of the module on the real losses (batch,).

        Returns the gradients of the blocks, from the parameters before the step, and the ranking loss where it is
        wanted. ``sgd``: learning rate, momentum, weight decay.
        """
        joined = self._joined(blocks)
        outward, loss = self._ranking(torch.mv(joined, self._score).add_(self._score_bias), real, want_loss)
        torch.mv(joined.t(), outward, out=self._score_gradient)
        torch.sum(outward, 0, keepdim=True, out=self._score_bias_gradient)
        inward = torch.outer(outward, self._score).mul_(joined.sign_())  # not negative: its sign is the relu's mask
        gradients = []
        parts = torch.split(inward, self._weights[0].shape[0], 1)
        for part, block, weight, (to_weight, to_bias) in zip(
            parts, blocks, self._weights, self._branch_gradients, strict=True
        ):
            torch.mm(part.t(), block, out=to_weight)
            torch.sum(part, 0, out=to_bias)
            gradients.append(torch.mm(part, weight))
        lr, momentum, weight_decay = sgd
        self.velocity.mul_(momentum).add_(self._gradient)
        if weight_decay:
            self.velocity.add_(self.theta, alpha=weight_decay)
        self.theta.add_(self.velocity, alpha=-lr)
        return gradients, loss

    def _ranking(self, predicted: Tensor, real: Tensor, want_loss: bool) -> tuple[Tensor, float]:
        """Gradient (batch,) and value of the mean of max(0, margin - s * (predicted_i - predicted_j)) over pairs."""
        pairs = predicted.shape[0] // 2
        outward = torch.zeros_like(predicted)
        if pairs == 0:
            return outward, 0.0
        sign = torch.where(real[:pairs] > real.flip(0)[:pairs], 1.0, -1.0)
        hinge = self._margin - sign * (predicted - predicted.flip(0))[:pairs]
        pull = sign * (hinge > 0) / pairs
        outward[:pairs] = -pull
        outward[-pairs:] = pull.flip(0)
        return outward, float(hinge.clamp_min(0.0).mean()) if want_loss else 0.0
