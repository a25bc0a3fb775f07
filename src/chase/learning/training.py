"""Local training of one client's turn, tracking predictions after every epoch.

A fresh SGD optimiser every turn; labelled batches without replacement within an epoch; with
alignment, every step also draws as many watched samples as the labelled batch has, without
replacement within the step. Student in train mode; tracking in eval mode on plain samples.

Every purpose draws from a generator of its own: the order of the labelled batches ("batches"), the watched
samples of each step ("aligned"), augmentation and dropout. So two methods of one seed that hold as many labels
see the same batches in the same order, whatever else each of them draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.errors import TrainingError
from chase.core.randomness import fold, rng
from chase.core.timing import Stopwatch
from chase.data.resident import Samples
from chase.learning.augment import crop_and_flip
from chase.learning.fused import FusedNet, FusedRanking, Prepared, fused_for
from chase.learning.inference import fused_logits, logits
from chase.learning.losses import Alignment, AlignOn, alignment_loss
from chase.learning.optimisers import FlatAdam, FlatSGD
from chase.learning.tracking import History
from chase.models.layers import MaskSource, seed_dropout
from chase.models.net import has_batch_norm, with_embedding

RESIDENT_ROWS = 6000
"""Up to this many samples are kept as floats during a turn; more are converted when they are needed."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a turn trains."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    mu: float
    prox: float = 0.0
    """FedProx: weight of prox/2 * ||w - w_start||^2."""
    stop_at: float = 0.0
    """End after the epoch that classifies this share rightly (0 = never); the labelled samples are then watched."""
    device: str = "cpu"
    augment: bool = False
    """Crop and flip the labelled images of every step."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    balanced: bool = False
    """Weigh labelled samples so that every class of the client counts the same."""


@dataclass(frozen=True)
class TrainingTask:
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
    observed_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Predicted after every epoch too, only to be looked at."""


@dataclass
class TrainingResult:
    """What a turn's training found out."""

    history: History
    """(epochs, watched) predicted classes; (0, watched) when nothing was tracked."""
    loss: float
    """Mean loss over the last epoch."""
    inferences: int
    observed: History = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """(epochs, observed) predicted classes."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


class LabeledLoss(Protocol):
    """The loss of the labelled half of a step; methods with a loss of their own bring one."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """Further parameters that are trained with the network's."""
        ...

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """outputs (batch, classes) that ``net`` just gave for the labelled samples, y (batch,) -> scalar."""
        ...


@runtime_checkable
class RankingLoss(LabeledLoss, Protocol):
    """Cross-entropy plus a loss that a module beside the network learns: fused steps can take it too."""

    def fused(self) -> FusedRanking:
        """The module in hand-written form."""
        ...

    def reaches_network(self, step: Step) -> bool:
        """Whether the gradient of what is added to cross-entropy goes into the network in this step."""
        ...


class CrossEntropy:
    """The plain loss: mean cross-entropy."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """None beyond the network's."""
        return ()

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Mean over the batch."""
        return F.cross_entropy(outputs, y)


class BalancedCrossEntropy(CrossEntropy):
    """Cross-entropy in which every class of the labelled samples counts the same."""

    def __init__(self, labels: Tensor) -> None:
        counts = torch.bincount(labels)
        self._weights = labels.numel() / (counts.clamp(min=1) * (counts > 0).sum())

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Weighted mean over the batch."""
        weights = self._weights.to(y.device)[y]
        losses = F.cross_entropy(outputs, y, reduction="none")
        mean: Tensor = (losses * weights).sum() / weights.sum()
        return mean


@dataclass(frozen=True)
class Step:
    """Where in a turn a step stands."""

    epoch: int
    """Counts from 0."""
    epochs: int
    take: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Positions of the step's batch among the labelled samples."""

    @property
    def last_epoch(self) -> bool:
        """Whether the loss is wanted."""
        return self.epoch == self.epochs - 1


class Aligned:
    """The loss of the labelled half plus mu times the alignment loss on as many watched samples."""

    def __init__(self, job: TrainingTask, plan: TrainingOptions, one_pass: bool, labeled: LabeledLoss) -> None:
        self._mu, self._one_pass, self._labeled = plan.mu, one_pass, labeled
        self._alignment = alignment_in_use(job, plan)
        self._draw = aligned_draws(job)
        if self._alignment is not None:
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
    """The same steps by ``chase.learning.fused``: cross-entropy, ranked losses and alignment on small networks."""

    def __init__(self, fused: FusedNet, job: TrainingTask, plan: TrainingOptions, labeled: RankingLoss | None) -> None:
        self._fused, self._job, self._plan, self._labeled = fused, job, plan, labeled
        self._ranking = None if labeled is None else labeled.fused()
        fused.load()
        if self._ranking is not None:
            self._ranking.load()
        self._x, self._y = fused.prepare(job.samples.ready(job.labeled_rows)), job.labels
        self._alignment = alignment_in_use(job, plan)
        self._draw = aligned_draws(job)
        self._bits = MaskSource(job.seed, *job.coordinates)
        few = job.watched_rows.numel() <= RESIDENT_ROWS
        self._watched = fused.prepare(job.samples.ready(job.watched_rows)) if few else None

    def step(self, take: Tensor, step: Step) -> float:
        """One fused forward, backward and update."""
        plan = self._plan
        batches = [(self._x, take.numpy())]
        alignment = None
        if self._alignment is not None:
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
        )

    def _watched_at(self, pick: Tensor) -> tuple[Prepared, NDArray[np.int64]]:
        if self._watched is not None:
            return self._watched, pick.numpy()
        rows = self._job.samples.ready(self._job.watched_rows[pick])
        return self._fused.prepare(rows), np.arange(pick.numel())

    def predictions(self) -> NDArray[np.int64]:
        """Predicted classes, from the parameters as they stand."""
        if self._watched is not None:
            return self._fused.outputs(self._watched).argmax(dim=1).numpy()
        return self.predict(self._job.watched_rows)

    def predict(self, rows: Tensor) -> NDArray[np.int64]:
        """The same for any rows."""
        return fused_logits(self._fused, self._job.samples, rows).argmax(dim=1).numpy()

    def finite(self) -> bool:
        """Of the network."""
        return bool(torch.isfinite(self._fused.theta.sum()))

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


def make_stepper(net: nn.Module, job: TrainingTask, plan: TrainingOptions, labeled: LabeledLoss | None) -> Stepper:
    """The fused steps where network, loss and device allow them."""
    by_features = job.alignment is not None and job.alignment.on == "features"
    if plan.balanced and labeled is None:
        labeled = BalancedCrossEntropy(job.labels)
    plain = plan.optimizer != "sgd" or plan.prox != 0.0 or plan.device != "cpu" or plan.augment or by_features
    fused = None if plain else fused_for(net)
    if fused is not None and (labeled is None or isinstance(labeled, RankingLoss)):
        return FusedStepper(fused, job, plan, labeled)
    return PlainStepper(net, job, plan, labeled)


def batches(order: Tensor, size: int, normed: bool) -> Sequence[Tensor]:
    """Positions of each step. Batch norm cannot learn from one sample: a last batch of one joins the one before."""
    parts = list(torch.split(order, size))
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
            for take in batches(torch.from_numpy(draw.permutation(size)), plan.batch_size, normed):
                total += stepper.step(take, Step(epoch, plan.epochs, take)) * take.numel()
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
