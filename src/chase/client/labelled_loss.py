"""The labelled loss that a method brings: plain, with a loss-prediction module (LL4AL), or KCFU (KAFAL)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from chase.client.context import ClientContext, Costs
from chase.client.state import ClientState
from chase.core import plugins
from chase.core.errors import SettingsError
from chase.core.messages import RoundOrder
from chase.core.randomness import rng
from chase.core.weights import Array
from chase.learning.compensation import KnowledgeCompensation
from chase.learning.loss_prediction import (
    LossPredictor,
    WithLossPrediction,
    from_extras,
    loss_extras,
    tapped,
    to_extras,
    with_taps,
)
from chase.learning.training import LabeledLoss, Step
from chase.models.net import set_weights


@dataclass
class MethodLoss:
    """A labelled loss; after training, ``extras`` is what travels beside the weights."""

    labeled: LabeledLoss | None = None
    """None is plain cross-entropy."""
    predictor: LossPredictor | None = None

    @property
    def extras(self) -> dict[str, Array]:
        """The trained module as arrays, if there is one."""
        return {} if self.predictor is None else to_extras(self.predictor)


@dataclass(frozen=True)
class GivenLoss:
    """A loss of one's own: a function of logits (batch, classes) and labels (batch,) that gives one number."""

    function: Callable[[Tensor, Tensor], Tensor]

    def parameters(self) -> Sequence[nn.Parameter]:
        """Those of the function, where it is a module with some."""
        return list(self.function.parameters()) if isinstance(self.function, nn.Module) else []

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """What the function gives, a mean over the batch for example."""
        found = self.function(outputs, y)
        if not isinstance(found, Tensor) or found.ndim:
            raise SettingsError(f"loss '{plugins.name_of(self.function)}' must give one number, a tensor of shape ()")
        return found


@contextmanager
def labelled_loss(context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs) -> Iterator[MethodLoss]:
    """The loss for one turn; the network's blocks are tapped only while inside."""
    if "loss_module" in context.settings.needs:
        net = with_taps(context.net)
        predictor = from_extras(loss_extras(order.extras, "start.") or loss_extras(order.extras))
        predictor.to(context.settings.device)
        with tapped(net) as seen:
            yield MethodLoss(WithLossPrediction(predictor, net.taps, seen), predictor)
    elif context.settings.loss == "kcfu":
        loss = compensation(context, state, order)
        yield MethodLoss(loss)
        costs.inferences += loss.inferences
        pool = compensation_pool(context, state)
        costs.inferred.append(pool[np.isin(context.samples.rows(pool).numpy(), loss.inferred_rows.numpy())])
    elif context.settings.loss in (None, "cross-entropy"):
        yield MethodLoss()
    else:
        yield MethodLoss(GivenLoss(plugins.find("loss", str(context.settings.loss))))


def compensation_pool(context: ClientContext, state: ClientState) -> Array:
    """The unlabelled samples that KCFU mixes: the watched ones with subset sampling, else all."""
    return state.watched if context.settings.subset and state.watched.size else state.pools.unlabeled


def compensation(context: ClientContext, state: ClientState, order: RoundOrder) -> KnowledgeCompensation:
    """KCFU; without the server's model in a client's first turn and after a fresh start."""
    labels = state.labels_of(state.pools.labeled)
    server = None
    if state.turn > 0 and not order.fresh:
        server = copy.deepcopy(context.net)
        set_weights(server, order.weights)
    counts = np.bincount(labels, minlength=context.num_classes).astype(np.int64)
    rows = context.samples.rows(compensation_pool(context, state))
    draw = rng(order.seed, "kcfu", order.round, context.client)
    return KnowledgeCompensation(counts, context.samples, rows, server, draw)
