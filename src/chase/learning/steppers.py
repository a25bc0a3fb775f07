"""Who takes the steps of a turn: autograd for any network, or hand-written steps where network and loss allow them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.randomness import fold, rng
from chase.data.resident import Samples
from chase.learning.augment import crop_and_flip
from chase.learning.distillation import Distillation
from chase.learning.fused import Fused, Prepared, Series, Watched
from chase.learning.inference import fused_logits, logits
from chase.learning.losses import Alignment, AlignOn, alignment_loss
from chase.learning.optimisers import FlatAdam, FlatSGD
from chase.learning.task import CrossEntropy, LabeledLoss, RankingLoss, Step, TrainingOptions, TrainingTask
from chase.models.layers import MaskSource, seed_dropout
from chase.models.net import has_batch_norm, with_embedding

RESIDENT_ROWS = 6000
"""Up to this many samples are kept as floats during a turn; more are converted when they are needed."""


class Aligned:
    """The loss of the labelled half plus mu times the alignment loss on as many watched samples."""

    def __init__(self, job: TrainingTask, plan: TrainingOptions, one_pass: bool, labeled: LabeledLoss) -> None:
        self._mu, self._one_pass, self._labeled = plan.mu, one_pass, labeled
        self._alignment = alignment_in_use(job, plan)
        if self._alignment is not None:
            self._draw = aligned_draws(job)
            self._watched = ready_rows(job.samples, job.watched_rows)

    def parameters(self) -> Sequence[nn.Parameter]:
        """Those of the labelled half."""
        return self._labeled.parameters()

    def loss(self, net: nn.Module, x: Tensor, y: Tensor, step: Step) -> Tensor:
        """Labelled loss + mu * alignment."""
        if self._alignment is None:
            return self._labeled.loss(net, net(x), y, step)
        size = y.shape[0]
        pick = draw_watched(self._draw, self._watched.total, size)
        unlabeled = self._watched.take(pick).to(x.device)
        forward = forward_for(net, self._alignment.on)
        if self._one_pass:
            out, compared = forward(torch.cat([x, unlabeled]))
            labeled_loss, unlabeled_out = self._labeled.loss(net, out[:size], y, step), compared[size:]
        else:
            labeled_loss, unlabeled_out = self._labeled.loss(net, net(x), y, step), forward(unlabeled)[1]
        align = alignment_loss(
            unlabeled_out,
            self._alignment.directions[pick].to(x.device),
            self._alignment.aligned[pick].to(x.device),
        )
        return labeled_loss + self._mu * align


def alignment_in_use(job: TrainingTask, plan: TrainingOptions) -> Alignment | None:
    """The alignment, unless it has no weight or fewer samples are watched than a batch holds."""
    return job.alignment if plan.mu > 0 and job.watched_rows.numel() >= plan.batch_size else None


def aligned_draws(job: TrainingTask) -> np.random.Generator:
    """Where the watched samples of a turn's steps are drawn from."""
    return rng(job.seed, "aligned", *job.coordinates)


def forward_for(net: nn.Module, on: AlignOn) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """One forward pass -> logits and what alignment compares: the logits, or the features before the last layer."""
    if on == "features":
        return with_embedding(net).both

    def same(x: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Tensor = net(x)
        return outputs, outputs

    return same


def draw_watched(draw: np.random.Generator, watched: int, size: int) -> Tensor:
    """``size`` distinct positions among the watched samples, or all of them."""
    return torch.from_numpy(draw.choice(watched, min(size, watched), replace=False))


class Stepper(Protocol):
    """Takes the steps of a turn and predicts in between; plain or fused."""

    def step(self, take: Tensor, step: Step) -> float:
        """One SGD step on labelled positions; the loss (wanted in the last epoch only)."""
        ...

    def epoch(self, parts: Sequence[Tensor], epoch: int, epochs: int) -> float:
        """One step on each of these positions; the sum of the samples' losses (in the last epoch only)."""
        ...

    def predictions(self) -> NDArray[np.int64]:
        """Predicted classes of the watched samples."""
        ...

    def predict(self, rows: Tensor) -> NDArray[np.int64]:
        """Predicted classes of any samples."""
        ...

    def finite(self) -> bool:
        """Whether the weights are numbers still."""
        ...

    def finish(self) -> None:
        """The network holds what was learnt."""
        ...


def step_by_step(stepper: Stepper, parts: Sequence[Tensor], epoch: int, epochs: int) -> float:
    """An epoch of single steps."""
    total = 0.0
    for take in parts:
        total += stepper.step(take, Step(epoch, epochs, take)) * take.numel()
    return total


class PlainStepper:
    """Any network and any labelled loss, by autograd."""

    def __init__(self, net: nn.Module, job: TrainingTask, plan: TrainingOptions, labeled: LabeledLoss | None) -> None:
        self._net, self._job, self._device = net, job, torch.device(plan.device)
        self._goal = Aligned(job, plan, one_pass=not has_batch_norm(net), labeled=labeled or CrossEntropy())
        if next(net.parameters()).device != self._device:
            net.to(self._device)
        net.train()
        seed_dropout(net, MaskSource(job.seed, *job.coordinates))
        parameters = [*net.parameters(), *self._goal.parameters()]
        make = FlatAdam if plan.optimizer == "adam" else FlatSGD
        self._optimiser = make(parameters, plan.lr, plan.momentum, plan.weight_decay, plan.prox)
        self._x, self._y = ready_rows(job.samples, job.labeled_rows), job.labels.to(self._device)
        self._augment = rng(job.seed, "augment", *job.coordinates) if plan.augment else None
        # A user's own network may draw from torch's generator, in nn.Dropout for example.
        torch.manual_seed(fold(job.seed, "torch", *job.coordinates))

    def step(self, take: Tensor, step: Step) -> float:
        """Forward, backward, update."""
        x = self._x.take(take)
        if self._augment is not None:
            x = crop_and_flip(x, self._job.samples.black, self._augment)
        loss = self._goal.loss(self._net, x.to(self._device), self._y[take], step)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return float(loss.detach()) if step.last_epoch else 0.0

    def epoch(self, parts: Sequence[Tensor], epoch: int, epochs: int) -> float:
        """Step after step."""
        return step_by_step(self, parts, epoch, epochs)

    def predictions(self) -> NDArray[np.int64]:
        """Eval mode, plain samples."""
        return self.predict(self._job.watched_rows)

    def predict(self, rows: Tensor) -> NDArray[np.int64]:
        """The same for any rows."""
        return logits(self._net, self._job.samples, rows).argmax(dim=1).numpy()

    def finite(self) -> bool:
        """Of all that is trained."""
        return self._optimiser.finite()

    def finish(self) -> None:
        """Take the dropout's source away."""
        seed_dropout(self._net, None)


class FusedStepper:
    """The same steps by ``chase.learning.fused``, which has them for small networks.

    Cross-entropy, ranked losses, distillation and alignment.
    """

    def __init__(self, fused: Fused, job: TrainingTask, plan: TrainingOptions, labeled: LabeledLoss | None) -> None:
        self._fused, self._job, self._plan = fused, job, plan
        self._labeled = labeled if isinstance(labeled, RankingLoss) else None
        self._ranking = None if self._labeled is None else self._labeled.fused()
        self._soft = labeled.soft() if isinstance(labeled, Distillation) else None
        fused.load()
        if self._ranking is not None:
            self._ranking.load()
        self._x, self._y = fused.prepare(job.samples.ready(job.labeled_rows)), job.labels
        self._alignment = alignment_in_use(job, plan)
        self._draw = aligned_draws(job) if self._alignment is not None else None
        self._bits = MaskSource(job.seed, *job.coordinates)
        few = 0 < job.watched_rows.numel() <= RESIDENT_ROWS
        watched = fused.prepare(job.samples.ready(job.watched_rows)) if few else None
        self._passes = fused.in_passes(watched) if watched is not None and job.track else None
        self._watched = watched if self._alignment is not None else None

    def step(self, take: Tensor, step: Step) -> float:
        """One fused forward, backward and update."""
        plan = self._plan
        batches = [(self._x, take.numpy())]
        alignment = None
        if self._alignment is not None and self._draw is not None:
            pick = draw_watched(self._draw, self._job.watched_rows.numel(), take.numel())
            batches.append(self._watched_at(pick))
            alignment = (
                self._alignment.directions.index_select(0, pick),
                self._alignment.aligned.index_select(0, pick),
            )
        sgd = (plan.lr, plan.momentum, plan.weight_decay)
        labels = self._y.index_select(0, take)
        return self._fused.step(
            batches,
            labels,
            self._bits,
            alignment,
            plan.mu,
            sgd,
            step.last_epoch,
            self._ranking,
            attached=self._labeled is not None and self._labeled.reaches_network(step),
            soft=None if self._soft is None else self._soft.of(take),
        )

    def epoch(self, parts: Sequence[Tensor], epoch: int, epochs: int) -> float:
        """All steps of a size together, unless a module learns beside them or the watched samples are too many."""
        resident = self._alignment is None or self._watched is not None
        if self._ranking is not None or not resident:
            return step_by_step(self, parts, epoch, epochs)
        plan, total, last = self._plan, 0.0, epoch == epochs - 1
        sgd = (plan.lr, plan.momentum, plan.weight_decay)
        for size, alike in groupby(parts, key=Tensor.numel):
            positions = torch.stack(list(alike))
            labels, watched = self._y[positions].numpy(), self._watched_in(len(positions), size)
            series = Series(self._x, positions.numpy(), labels, sgd, plan.mu, watched, self._soft)
            losses = self._fused.steps(series, self._bits, last).tolist()
            for loss in losses if last else ():
                total += loss * size
        return total

    def _watched_in(self, steps: int, size: int) -> Watched | None:
        """The watched samples of steps of a size, drawn step by step."""
        if self._alignment is None or self._draw is None or self._watched is None:
            return None
        watched = self._job.watched_rows.numel()
        picks = np.stack([draw_watched(self._draw, watched, size).numpy() for _ in range(steps)])
        directions, aligned = self._alignment.directions.contiguous(), self._alignment.aligned.contiguous()
        return Watched(self._watched, picks, directions, aligned)

    def _watched_at(self, pick: Tensor) -> tuple[Prepared, NDArray[np.int64]]:
        if self._watched is not None:
            return self._watched, pick.numpy()
        rows = self._job.samples.ready(self._job.watched_rows[pick])
        return self._fused.prepare(rows), np.arange(pick.numel())

    def predictions(self) -> NDArray[np.int64]:
        """Predicted classes, from the parameters as they stand."""
        if self._passes is not None:
            return self._fused.outputs_of(self._passes).argmax(dim=1).numpy()
        return self.predict(self._job.watched_rows)

    def predict(self, rows: Tensor) -> NDArray[np.int64]:
        """The same for any rows."""
        return fused_logits(self._fused, self._job.samples, rows).argmax(dim=1).numpy()

    def finite(self) -> bool:
        """Of the network."""
        return math.isfinite(self._fused.theta.sum().item())

    def finish(self) -> None:
        """Write the parameters back."""
        self._fused.store()
        if self._ranking is not None:
            self._ranking.store()


@dataclass(frozen=True)
class ReadyRows:
    """Rows as the network takes them: kept as floats where they are few, else made on demand."""

    samples: Samples
    rows: Tensor
    floats: Tensor | None

    @property
    def total(self) -> int:
        """How many rows there are."""
        return int(self.rows.numel())

    def take(self, positions: Tensor) -> Tensor:
        """Samples at positions among the rows."""
        if self.floats is not None:
            return self.floats.index_select(0, positions)
        return self.samples.ready(self.rows[positions])


def ready_rows(samples: Samples, rows: Tensor) -> ReadyRows:
    """The rows as floats at once where they are few."""
    return ReadyRows(samples, rows, samples.ready(rows) if rows.numel() <= RESIDENT_ROWS else None)
