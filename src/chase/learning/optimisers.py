"""Optimisers over one flat buffer, fresh every turn: SGD with momentum, and Adam."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class FlatSGD:
    """SGD with momentum over one flat buffer: a handful of operations however many parameters there are.

    Equal to ``torch.optim.SGD``: v = momentum * v + (g + decay * w); w = w - lr * v. With ``prox``, g has
    the gradient of FedProx's term, prox * (w - w_start), added to it.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, momentum: float, weight_decay: float, prox: float = 0.0
    ) -> None:
        self.lr, self.momentum, self.weight_decay, self.prox = lr, momentum, weight_decay, prox
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.start = self.flat.clone() if prox else self.flat
        self.grad = torch.zeros_like(self.flat)
        self.velocity = torch.zeros_like(self.flat)
        at = 0
        for p in parameters:
            size = p.numel()
            p.data = self.flat[at : at + size].view_as(p)
            p.grad = self.grad[at : at + size].view_as(p)
            at += size

    def add_penalties(self) -> None:
        """Weight decay and the pull towards the start, as gradients."""
        if self.weight_decay:
            self.grad.add_(self.flat, alpha=self.weight_decay)
        if self.prox:
            self.grad.add_(self.flat, alpha=self.prox).sub_(self.start, alpha=self.prox)

    def step(self) -> None:
        """One step from the gathered gradients, which are cleared."""
        self.add_penalties()
        self.velocity.mul_(self.momentum).add_(self.grad)
        self.flat.add_(self.velocity, alpha=-self.lr)
        self.grad.zero_()

    def finite(self) -> bool:
        """Whether all weights are numbers still."""
        return bool(torch.isfinite(self.flat.sum()))


class FlatAdam(FlatSGD):
    """Adam (Kingma and Ba, 2015) with the usual constants; equal to ``torch.optim.Adam``. ``momentum`` is not used."""

    betas = (0.9, 0.999)
    epsilon = 1e-8

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, momentum: float, weight_decay: float, prox: float = 0.0
    ) -> None:
        super().__init__(parameters, lr, momentum, weight_decay, prox)
        self.square = torch.zeros_like(self.flat)
        self.steps = 0

    def step(self) -> None:
        """One step from the gathered gradients, which are cleared."""
        self.add_penalties()
        self.steps += 1
        first, second = self.betas
        self.velocity.mul_(first).add_(self.grad, alpha=1 - first)
        self.square.mul_(second).addcmul_(self.grad, self.grad, value=1 - second)
        scale = self.square.div(1 - second**self.steps).sqrt_().add_(self.epsilon)
        self.flat.addcdiv_(self.velocity, scale, value=-self.lr / (1 - first**self.steps))
        self.grad.zero_()
