"""Local training of one client's turn, tracking predictions after every epoch.

A fresh SGD optimiser every turn; labelled batches without replacement within an epoch; with
alignment, every step also draws as many watched samples as the labelled batch has, without
replacement within the step. Student in train mode; tracking in eval mode on plain samples.

Every purpose draws from a generator of its own: the order of the labelled batches ("batches"), the watched
samples of each step ("aligned"), augmentation and dropout. So two methods of one seed that hold as many labels
see the same batches in the same order, whatever else each of them draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.errors import TrainingError
from chase.core.randomness import rng
from chase.core.timing import Stopwatch
from chase.learning.distillation import Distillation
from chase.learning.fused import fused_for
from chase.learning.steppers import FusedStepper, PlainStepper, Stepper
from chase.learning.task import (
    BalancedCrossEntropy,
    CrossEntropy,
    LabeledLoss,
    RankingLoss,
    Step,
    TrainingOptions,
    TrainingResult,
    TrainingTask,
)
from chase.models.net import has_batch_norm

__all__ = [
    "BalancedCrossEntropy",
    "CrossEntropy",
    "FusedStepper",
    "LabeledLoss",
    "PlainStepper",
    "RankingLoss",
    "Step",
    "Stepper",
    "TrainingOptions",
    "TrainingResult",
    "TrainingTask",
    "batches",
    "make_stepper",
    "rng",
    "train",
]


def make_stepper(net: nn.Module, job: TrainingTask, plan: TrainingOptions, labeled: LabeledLoss | None) -> Stepper:
    """The hand-written steps where network, loss and device allow them, else autograd."""
    by_features = job.alignment is not None and job.alignment.on == "features"
    if plan.balanced and labeled is None:
        labeled = BalancedCrossEntropy(job.labels)
    plain = plan.optimizer != "sgd" or plan.prox != 0.0 or plan.device != "cpu" or plan.augment or by_features
    fused = None if plain else fused_for(net)
    if fused is not None:
        ranks = isinstance(labeled, RankingLoss) and fused.gives_blocks
        if labeled is None or ranks or isinstance(labeled, Distillation):
            return FusedStepper(fused, job, plan, labeled)
    return PlainStepper(net, job, plan, labeled)


def batches(order: Tensor, size: int, normed: bool) -> Sequence[Tensor]:
    """Positions of each step. Batch norm cannot learn from one sample: a last batch of one joins the one before."""
    parts = [order] if 0 < order.numel() <= size else list(torch.split(order, size))
    if not normed or not parts or parts[-1].numel() > 1:
        return parts
    if len(parts) == 1:
        return [order.repeat(2)]
    return [*parts[:-2], torch.cat(parts[-2:])] if size > 1 else [part.repeat(2) for part in parts]


def _diverged(epoch: int, labeled: int, plan: TrainingOptions) -> str:
    steps = -(-labeled // plan.batch_size)
    return (
        f"training diverged: weights are not numbers after local epoch {epoch + 1} (steps {epoch * steps + 1} to "
        f"{(epoch + 1) * steps}) with lr = {plan.lr:g} ({plan.optimizer}): use a smaller learning rate, for example "
        f"lr={plan.lr / 10:.2g}"
    )


def train(
    net: nn.Module, job: TrainingTask, plan: TrainingOptions, labeled: LabeledLoss | None = None
) -> TrainingResult:
    """Train ``net`` in place for one turn; ``labeled`` None is plain cross-entropy."""
    watch = Stopwatch()
    with watch.phase("train"):
        stepper = make_stepper(net, job, plan, labeled)
        draw = rng(job.seed, "batches", *job.coordinates)
        size, normed = job.labels.numel(), has_batch_norm(net)
    history: list[NDArray[np.int64]] = []
    observed: list[NDArray[np.int64]] = []
    total = 0.0
    for epoch in range(plan.epochs):
        with watch.phase("train"):
            order = torch.from_numpy(draw.permutation(size))
            total += stepper.epoch(batches(order, plan.batch_size, normed), epoch, plan.epochs)
            if not stepper.finite():
                raise TrainingError(_diverged(epoch, size, plan))
        if job.track:
            with watch.phase("track"):
                history.append(stepper.predictions())
            if plan.stop_at and float((history[-1] == job.labels.numpy()).mean()) >= plan.stop_at:
                break
        if job.observed_rows.numel():
            with watch.phase("observe"):
                observed.append(stepper.predict(job.observed_rows))
    stepper.finish()
    watched = job.watched_rows.numel()
    return TrainingResult(
        history=np.stack(history) if history else np.zeros((0, watched), dtype=np.int64),
        loss=total / max(1, size),
        inferences=len(history) * watched,
        observed=np.stack(observed) if observed else np.zeros((0, 0), dtype=np.int64),
        stopwatch=watch,
    )
