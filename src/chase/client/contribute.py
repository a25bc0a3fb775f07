"""A client's part in the closed-form learner: sums instead of training.

    preparation   sums over all its samples, step by step, until the features are fitted (no label is used)
    every turn    what has changed since the server last confirmed: the sums of newly labelled samples, minus those of
                  labels that were revised or withdrawn

The client keeps which labels the server has (``sent``) and which went up in the last message (``pending``). An order
says which round of each client was received last: a message that was lost is sent again with the next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chase.client.context import ClientContext, Costs, turn_metrics
from chase.client.state import ClientState
from chase.closed_form import ridge
from chase.closed_form.calibration import closed_form, left_out, log_losses
from chase.closed_form.feature_map import Reals, decode, least_ridge
from chase.closed_form.leave_one_out import LOO, LOSSES, leverage
from chase.closed_form.model import ClosedFormNet
from chase.closed_form.sums import Sums
from chase.core.errors import DataError, SettingsError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.pools import SampleIds, is_in
from chase.core.weights import Array, Arrays, Weights, part_of, prefixed
from chase.learning.inference import logits
from chase.learning.tracking import classes_seen, epistemic_variation
from chase.models.net import set_weights

PREPARE = "prepare"
"""The phase of an order that fits features."""
FIT = "fit."
"""Prefix of feature parameters while they are being fitted."""
SUM = "sum."
"""Prefix of arrays that the server adds up."""
RECEIVED = "received"
"""In an order: the last round in which each client's sums arrived."""
NEVER = -(2**31)
"""Stands there for a client of whose labels the server has nothing."""
HISTORY = "history"
"""In a client's state: classes predicted by the last global models (models, samples)."""


def sum_shapes(order: RoundOrder) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the sums of labelled samples, without their prefix, under the model of an order."""
    classes, width = order.weights["head.weight"].shape
    return {"outer": (width * (width + 1) // 2,), "cross": (width, classes), "features": (width,), "counts": (classes,)}


def model_of(context: ClientContext) -> ClosedFormNet:
    """The closed-form model of a context."""
    if not isinstance(context.net, ClosedFormNet):
        raise SettingsError("learner = 'closed-form' needs its own model: this client was built for a network")
    return context.net


def fit_step(context: ClientContext, state: ClientState, order: RoundOrder) -> ClientUpdate:
    """The sums of one preparatory step over all samples of the client."""
    feature_map = model_of(context).feature_map
    params = part_of(order.extras, FIT)
    rows = context.samples.rows(state.ids)
    sums = feature_map.sums(order.round + feature_map.steps - 1, params, context.samples, rows)
    extras = prefixed(SUM, sums)
    metrics = turn_metrics(state, Costs())
    return ClientUpdate(context.client, order.round, {}, int(state.pools.labeled.size), metrics, extras)


def observe(context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs) -> ClientState:
    """With the new global model's predictions: EV is counted over the last E global models."""
    settings = context.settings
    if not (settings.tracks_ev or settings.observe_ev) or state.turn == 0 or not order.track:
        return state
    with costs.stopwatch.phase("track"):
        set_weights(context.net, order.weights)
        now = logits(context.net, context.samples, context.samples.rows(state.ids)).argmax(dim=1).numpy()
        before = state.extras.get(HISTORY)
        if before is None or before.shape[1] != state.ids.size:
            before = np.zeros((0, state.ids.size), dtype=np.int16)
        history = np.concatenate([before, now[None].astype(np.int16)])[-settings.local_epochs :]
        costs.inferences += int(state.pools.unlabeled.size)
        costs.inferred.append(state.pools.unlabeled)
    wide = history.astype(np.int64)
    tracked = state.with_tracking(state.ids, epistemic_variation(wide), classes_seen(wide))
    return replace(tracked, extras={**state.extras, HISTORY: history})


def history_is_full(context: ClientContext, state: ClientState) -> bool:
    """Whether EV was counted over as many models as it should be: nothing is frozen before."""
    history = state.extras.get(HISTORY)
    return history is not None and history.shape[0] >= context.settings.local_epochs


def contribute(
    context: ClientContext, state: ClientState, order: RoundOrder
) -> tuple[ClientState, dict[str, Array], Weights]:
    """The state after sending, the sums to send (none if too few are new) and the model that counts as local."""
    state = confirmed(state, order.extras, context.client)
    ids, labels = state.pools.labeled, state.labels_of(state.pools.labeled)
    sent_ids, sent_labels = sent(state)
    same = _matches(ids, labels, sent_ids, sent_labels)
    gone = ~_matches(sent_ids, sent_labels, ids, labels)
    changed = np.union1d(ids[~same], sent_ids[gone]).size  # a corrected label is one sample
    extras: dict[str, Array] = {}
    least = context.settings.min_labels or 1
    if changed and ids.size >= least and changed >= least:
        set_weights(context.net, order.weights)
        new = sums_of(context, ids[~same], labels[~same])
        change = new.minus_any(sums_of(context, sent_ids[gone], sent_labels[gone])) if gone.any() else new
        extras = prefixed(SUM, change.to_arrays())
        kept = {"pending_ids": ids, "pending_labels": labels, "pending_round": np.array([order.round])}
        state = replace(state, extras={**state.extras, **kept})
    return state, {**extras, **left_out_losses(context, state, order)}, local_model(context, state, order)


def left_out_losses(context: ClientContext, state: ClientState, order: RoundOrder) -> dict[str, Array]:
    """Summed losses of the samples that the server has, each left out, at fixed temperatures; none unless asked for."""
    ids, labels = sent(state)
    stay = is_in(ids, state.ids)  # a sample may have been forgotten since
    ids, labels = ids[stay], labels[stay]
    if f"{LOO}about" not in order.extras or ids.size < max(1, context.settings.min_labels):
        return {}
    set_weights(context.net, order.weights)
    return {LOSSES: log_losses(left_out_scores(context, order, ids, labels), labels)}


def left_out_scores(context: ClientContext, order: RoundOrder, ids: SampleIds, labels: NDArray[np.int64]) -> Reals:
    """Scores (samples, classes) of samples that the server has with these labels, as if each had been left out.

    The network holds the model of the order, which brings the system of all clients.
    """
    rows, net = context.samples.rows(ids), model_of(context)
    scores = logits(net, context.samples, rows).double().numpy() * order.extras[f"{LOO}about"][1]
    features = decode(net.codes(context.samples, rows)).astype(np.float64)
    return left_out(scores, labels, leverage(features, order.extras))


def received_of(told: Arrays, client: int) -> int:
    """The last round in which the server received sums of a client, by what it told."""
    received = told[RECEIVED]
    return int(received[client]) if client < received.size else NEVER


def confirmed(state: ClientState, told: Arrays, client: int) -> ClientState:
    """With what the server told that it has received; a message that did not arrive counts as not sent.

    A server that began its sums anew has nothing: all labels are new to it.
    """
    extras, received = dict(state.extras), received_of(told, client)
    if received == NEVER:
        extras = {name: array for name, array in extras.items() if name not in ("sent_ids", "sent_labels")}
    if "pending_round" in extras:
        ids, labels, sent_in = (extras.pop(f"pending_{name}") for name in ("ids", "labels", "round"))
        if received == int(sent_in[0]):
            extras |= {"sent_ids": ids, "sent_labels": labels}
    return replace(state, extras=extras)


def sent(state: ClientState) -> tuple[SampleIds, NDArray[np.int64]]:
    """Samples and labels whose sums the server has."""
    none = np.empty(0, dtype=np.int64)
    return state.extras.get("sent_ids", none), state.extras.get("sent_labels", none)


def sent_to(state: ClientState, received: Array, client: int) -> tuple[SampleIds, NDArray[np.int64]]:
    """Samples and labels of a client whose sums the server has, by the rounds in which it received sums."""
    return sent(confirmed(state, {RECEIVED: received}, client))


def sums_of(context: ClientContext, ids: SampleIds, labels: NDArray[np.int64]) -> Sums:
    """Sums of labelled samples under the features that the network holds."""
    codes = model_of(context).codes(context.samples, context.samples.rows(ids))
    return Sums.of(codes, labels, context.num_classes)


def local_model(context: ClientContext, state: ClientState, order: RoundOrder) -> Weights:
    """What counts as the client's own model: a head solved from its own labels where a method reads one."""
    settings = context.settings
    if settings.form != "isolated" and "local_model" not in settings.needs:
        return order.weights
    return own_solution(context, state, order)


def own_solution(context: ClientContext, state: ClientState, order: RoundOrder) -> Weights:
    """The features with a head solved from this client's labels alone; the global one while it has too few."""
    labeled = state.pools.labeled
    set_weights(context.net, order.weights)
    try:
        sums = sums_of(context, labeled, state.labels_of(labeled))
        found = ridge.solve(sums, context.settings.ridge or None, least_ridge(model_of(context).feature_map))
    except DataError:
        return order.weights
    return {**order.weights, **found.to_weights(closed_form(found.noise))}


def _matches(
    ids: SampleIds, labels: NDArray[np.int64], among: SampleIds, among_labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which samples stand among the others (sorted) with the same label."""
    found = is_in(ids, among)
    at = np.searchsorted(among, ids[found])
    found[found] = among_labels[at] == labels[found]
    return found
