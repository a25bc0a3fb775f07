"""What the labelling page needs to re-rank open questions after each answer (``live = true``).

Samples are described by how the head's system relates them to each other (``chase.closed_form.updates``), not by their
features: a few numbers per pair of open questions, for a page that works without torch. The head is the one that the
client received; the system is its local copy, over the client's own labels that this head contains, unless the order
brings the system of all clients (``temperature = "leave-one-out"``). Own labels that the head does not contain yet are
learnt here already.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_solve

from chase.client.context import ClientContext
from chase.client.contribute import model_of, sent, sums_of
from chase.client.state import ClientState
from chase.closed_form import ridge
from chase.closed_form.feature_map import Reals, decode
from chase.closed_form.leave_one_out import LOO
from chase.closed_form.sums import unpack
from chase.closed_form.updates import LiveScores
from chase.core.errors import DataError
from chase.core.messages import RoundOrder
from chase.core.pools import SampleIds, is_in
from chase.core.weights import Array, Weights
from chase.models.net import set_weights

MOST = 500
"""Open questions that are re-ranked; more wait behind them in the order in which they were asked."""


def live_base(context: ClientContext, state: ClientState, order: RoundOrder) -> dict[str, Array]:
    """What a page starts from; empty without ``live``, questions or a head, or while own labels are of one class."""
    settings, asked = context.settings, state.pools.asked
    if not settings.live or not context.for_people or asked.size == 0:
        return {}
    alone = settings.form == "isolated"
    weights = state.local_weights if alone and state.local_weights is not None else order.weights
    heat, known = temperature(weights), state.pools.labeled if alone else sent(state)[0]
    set_weights(context.net, weights)
    related = None if heat is None else relation(context, state, order, known[is_in(known, state.pools.labeled)])
    if heat is None or related is None:
        return {}
    fresh = state.pools.labeled[~is_in(state.pools.labeled, known)]
    points = features_of(context, np.concatenate([asked[:MOST], fresh]))
    outputs = points @ weights["head.weight"].astype(np.float64).T + weights["head.bias"].astype(np.float64)
    live = LiveScores(related(points), outputs * heat)
    many = points.shape[0] - fresh.size
    for row, label in enumerate(state.labels_of(fresh), start=many):
        live.learn(row, int(label))
    return {
        "ids": asked,
        "kernel": live.kernel[:many, :many],
        "scores": live.scores[:many],
        "temperature": np.array([heat]),
        "counts": np.bincount(state.labels_of(state.pools.labeled), minlength=context.num_classes).astype(np.int64),
        "strategy": np.frombuffer(settings.strategy.encode(), dtype=np.uint8),
    }


def temperature(weights: Weights) -> float | None:
    """The temperature that a head was divided by: its scores add up to 1, so its biases do; None if not solved yet."""
    total = float(weights["head.bias"].astype(np.float64).sum())
    return 1.0 / total if total > 0 else None


def features_of(context: ClientContext, ids: SampleIds) -> Reals:
    """Features (samples, width) under the feature map that the network holds."""
    return decode(model_of(context).codes(context.samples, context.samples.rows(ids))).astype(np.float64)


def relation(
    context: ClientContext, state: ClientState, order: RoundOrder, known: SampleIds
) -> Callable[[Reals], Reals] | None:
    """How the system relates samples (samples, width) to each other; None if too little is labelled for one.

    With H over centred features and n samples: (x - mean)' H^-1 (z - mean) + 1 / n, the last for the intercept.
    """
    if f"{LOO}about" in order.extras and context.settings.form != "isolated":
        mean, samples = order.extras[f"{LOO}mean"], float(order.extras[f"{LOO}about"][0])
        inverse = unpack(order.extras[f"{LOO}inverse"].astype(np.float64), mean.size)
        return lambda points: (points - mean) @ inverse @ (points - mean).T + 1.0 / samples
    sums = sums_of(context, known, state.labels_of(known))
    try:
        chosen = ridge.solve(sums, context.settings.ridge or None).ridge
        centred = ridge.Centred.of(sums)
        lower = ridge.factor(centred.scatter, chosen)
    except DataError:
        return None
    return lambda points: (points - centred.mean) @ cho_solve(lower, (points - centred.mean).T) + 1.0 / centred.samples
