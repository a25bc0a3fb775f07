"""Local training of one client's turn, tracking predictions after every epoch.

A fresh SGD optimiser every turn; labelled batches without replacement within an epoch; with
alignment, every step also draws as many watched samples as the labelled batch has, without
replacement within the step. Student in train mode; tracking in eval mode on plain samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.randomness import rng
from chase.core.timing import Stopwatch
from chase.data.resident import Samples
from chase.learning.inference import CHUNK, logits
from chase.learning.losses import Alignment, alignment_loss
from chase.learning.tracking import History
from chase.models.layers import MaskSource, seed_dropout
from chase.models.net import has_batch_norm

RESIDENT_FLOATS = 2000
"""Up to this many watched samples are kept as floats during a turn; more are converted chunk by chunk."""


@dataclass(frozen=True)
class Plan:
    """How a turn trains."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    mu: float
    device: str = "cpu"


@dataclass(frozen=True)
class Job:
    """What one turn trains on."""

    samples: Samples
    labeled_rows: Tensor
    labels: Tensor
    """Class numbers beside ``labeled_rows``."""
    watched_rows: Tensor
    alignment: Alignment | None
    track: bool
    seed: int
    coordinates: tuple[str | int, ...]
    """(round, client): where the draws of this turn are seeded."""


@dataclass
class Outcome:
    """What a turn's training found out."""

    history: History
    """(epochs, watched) predicted classes; (0, watched) when nothing was tracked."""
    loss: float
    """Mean loss over the last epoch."""
    inferences: int
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


class Objective(Protocol):
    """The loss of a step; methods with a loss of their own bring one."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """Further parameters that are trained with the network's."""
        ...

    def loss(self, net: nn.Module, x: Tensor, y: Tensor, step: Step) -> Tensor:
        """x (batch, ...), y (batch,) -> scalar."""
        ...


@dataclass(frozen=True)
class Step:
    """Where in a turn a step stands."""

    epoch: int
    epochs: int
    draw: np.random.Generator


class FlatSGD:
    """SGD with momentum over one flat buffer: a handful of operations however many parameters there are.

    Equal to ``torch.optim.SGD``: v = momentum * v + (g + decay * w); w = w - lr * v.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.grad = torch.zeros_like(self.flat)
        self.velocity = torch.zeros_like(self.flat)
        at = 0
        for p in parameters:
            size = p.numel()
            p.data = self.flat[at : at + size].view_as(p)
            p.grad = self.grad[at : at + size].view_as(p)
            at += size

    def step(self) -> None:
        """One step from the gathered gradients, which are cleared."""
        if self.weight_decay:
            self.grad.add_(self.flat, alpha=self.weight_decay)
        self.velocity.mul_(self.momentum).add_(self.grad)
        self.flat.add_(self.velocity, alpha=-self.lr)
        self.grad.zero_()


class Aligned:
    """Cross-entropy on the labelled half plus mu times the alignment loss on as many watched samples."""

    def __init__(self, job: Job, plan: Plan, one_pass: bool) -> None:
        self._mu, self._one_pass = plan.mu, one_pass
        self._alignment = job.alignment if plan.mu > 0 and job.watched_rows.numel() >= plan.batch_size else None
        if self._alignment is not None:
            self._watched = _ready(job.samples, job.watched_rows)

    def parameters(self) -> Sequence[nn.Parameter]:
        """None beyond the network's."""
        return ()

    def loss(self, net: nn.Module, x: Tensor, y: Tensor, step: Step) -> Tensor:
        """CE + mu * alignment."""
        if self._alignment is None:
            return F.cross_entropy(net(x), y)
        size = y.shape[0]
        pick = torch.from_numpy(step.draw.choice(self._watched.total, size, replace=False))
        unlabeled = self._watched.take(pick).to(x.device)
        if self._one_pass:
            out = net(torch.cat([x, unlabeled]))
            labeled_out, unlabeled_out = out[:size], out[size:]
        else:
            labeled_out, unlabeled_out = net(x), net(unlabeled)
        align = alignment_loss(
            unlabeled_out,
            self._alignment.directions[pick].to(x.device),
            self._alignment.aligned[pick].to(x.device),
        )
        return F.cross_entropy(labeled_out, y) + self._mu * align


@dataclass(frozen=True)
class _Ready:
    samples: Samples
    rows: Tensor
    floats: Tensor | None

    @property
    def total(self) -> int:
        return int(self.rows.numel())

    def take(self, positions: Tensor) -> Tensor:
        """Samples at positions among the rows, as the network takes them."""
        if self.floats is not None:
            return self.floats.index_select(0, positions)
        return self.samples.ready(self.rows[positions])


def _ready(samples: Samples, rows: Tensor) -> _Ready:
    """The rows as floats at once where they are few, else on demand."""
    return _Ready(samples, rows, samples.ready(rows) if rows.numel() <= RESIDENT_FLOATS else None)


def train(net: nn.Module, job: Job, plan: Plan, objective: Objective | None = None) -> Outcome:
    """Train ``net`` in place for one turn."""
    watch = Stopwatch()
    device = torch.device(plan.device)
    with watch.phase("train"):
        goal = objective or Aligned(job, plan, one_pass=not has_batch_norm(net))
        net.to(device).train()
        seed_dropout(net, MaskSource(job.seed, *job.coordinates))
        optimiser = FlatSGD([*net.parameters(), *goal.parameters()], plan.lr, plan.momentum, plan.weight_decay)
        draw = rng(job.seed, "batches", *job.coordinates)
        x_all = _ready(job.samples, job.labeled_rows)
        y_all = job.labels.to(device)
    history: list[NDArray[np.int64]] = []
    total = 0.0
    for epoch in range(plan.epochs):
        with watch.phase("train"):
            total = 0.0
            step = Step(epoch, plan.epochs, draw)
            for take in torch.split(torch.from_numpy(draw.permutation(x_all.total)), plan.batch_size):
                loss = goal.loss(net, x_all.take(take).to(device), y_all[take], step)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += float(loss.detach()) * take.numel()
        if job.track:
            with watch.phase("track"):
                history.append(logits(net, job.samples, job.watched_rows).argmax(dim=1).numpy())
    seed_dropout(net, None)
    watched = job.watched_rows.numel()
    return Outcome(
        history=np.stack(history) if history else np.zeros((0, watched), dtype=np.int64),
        loss=total / max(1, x_all.total),
        inferences=len(history) * watched,
        stopwatch=watch,
    )


__all__ = ["CHUNK", "Aligned", "FlatSGD", "Job", "Objective", "Outcome", "Plan", "Step", "train"]
