"""The second step of a turn: freeze, awaken, watch, and train while tracking EV (Alg. 1 and 2 of the paper)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from chase.acquisition import freeze_awaken
from chase.client.choose import BEFORE, training_plan
from chase.client.context import ClientContext, Costs, turn_metrics
from chase.client.contribute import HISTORY, contribute, history_is_full
from chase.client.labelled_loss import labelled_loss
from chase.client.solved_head import measure_features
from chase.client.state import ClientState
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.pools import SampleIds
from chase.core.randomness import rng
from chase.core.weights import Array, Weights, prefixed
from chase.learning import training
from chase.learning.inference import features, logits
from chase.learning.loss_prediction import loss_extras
from chase.learning.losses import Alignment, easy_samples, prepare_alignment
from chase.learning.tracking import classes_seen, epistemic_variation
from chase.models.net import get_weights, set_weights, with_embedding


def rest_and_watch(context: ClientContext, state: ClientState, order: RoundOrder) -> ClientState:
    """Freeze, awaken, and draw the samples to watch (Alg. 2)."""
    settings, pools = context.settings, state.pools
    if settings.freeze and (settings.learner == "network" or history_is_full(context, state)):
        pools = freeze_awaken.freeze(pools, state.watched, state.ev_of(state.watched))
    if settings.awaken:
        below = settings.awaken_below * context.behaviour.budget
        draw = rng(order.seed, "awaken", order.round, context.client)
        pools = freeze_awaken.awaken(pools, below, settings.beta, draw)
    watched = state.watched[:0]
    if settings.watches and order.track and pools.labeled.size:
        size = settings.subset_size if settings.subset else None
        draw = rng(order.seed, "watch", order.round, context.client)
        watched = freeze_awaken.watch(pools.unlabeled, state.turn == 0, size, settings.first_watch, draw)
    return replace(state, pools=pools, watched=watched)


def prepare_teachers(context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs) -> Alignment | None:
    """Both teachers' outputs on the watched samples, once per turn; None when alignment is skipped."""
    settings = context.settings
    enough = state.watched.size >= settings.batch_size
    if not settings.aligns or state.turn == 0 or order.fresh or state.local_weights is None or not enough:
        return None
    with costs.stopwatch.phase("teachers"):
        rows = context.samples.rows(state.watched)
        set_weights(context.net, state.local_weights)
        local_outputs = compared_outputs(context, rows)
        set_weights(context.net, order.weights)
        global_outputs = compared_outputs(context, rows)
        costs.inferences += 2 * state.watched.size
        costs.inferred.append(state.watched)
        easy = easy_samples(state.ev_of(state.watched))
        costs.split, costs.easy = int(easy.size), int(easy.sum())
        return prepare_alignment(
            local_outputs, global_outputs, easy, str(settings.align), settings.tau, settings.align_on
        )


def compared_outputs(context: ClientContext, rows: Tensor) -> Tensor:
    """What alignment compares, by the weights that the network holds (watched, outputs)."""
    if context.settings.align_on == "logits":
        return logits(context.net, context.samples, rows)
    return features(with_embedding(context.net), context.samples, rows)


def train(
    context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs
) -> tuple[ClientState, ClientUpdate]:
    """Freeze, awaken, watch and train; a client without labels does not train and has weight 0."""
    settings = context.settings
    state = rest_and_watch(context, state, order)
    if settings.learner == "closed-form":
        return send_sums(context, state, order, costs)
    labeled = state.pools.labeled
    metrics: dict[str, float] = {}
    local, extras = order.origin, loss_extras(order.extras, "start.") or loss_extras(order.extras)
    sums = measure_features(context, state, order, costs)
    if labeled.size:
        alignment = prepare_teachers(context, state, order, costs)
        set_weights(context.net, order.origin)
        job = training.TrainingTask(
            samples=context.samples,
            labeled_rows=context.samples.rows(labeled),
            labels=torch.from_numpy(state.labels_of(labeled)),
            watched_rows=context.samples.rows(state.watched),
            alignment=alignment,
            track=settings.tracks_ev and order.track and state.watched.size > 0,
            seed=order.seed,
            coordinates=(order.round, context.client),
            observed_rows=context.samples.rows(observed_samples(context, state)),
        )
        with labelled_loss(context, state, order, costs) as own:
            outcome = training.train(context.net, job, training_plan(settings), own.labeled)
        local, extras = get_weights(context.net), own.extras
        metrics["train_loss"] = outcome.loss
        for phase, seconds in outcome.stopwatch.seconds.items():
            costs.stopwatch.seconds[phase] += seconds
        if job.track:
            state = take_tracking(context, state, outcome, costs, metrics)
        if outcome.observed.size:
            ev = epistemic_variation(outcome.observed)
            metrics |= {"observed_ev_sum": float(ev.sum()), "observed_ev_count": float(ev.size)}
            metrics["observed_inferences"] = metrics.get("observed_inferences", 0.0) + outcome.observed.size
    metrics |= turn_metrics(state, costs)
    after = replace(remember(context, state, order, local, extras), turn=state.turn + 1)
    return after, ClientUpdate(context.client, order.round, local, int(labeled.size), metrics, {**extras, **sums})


def send_sums(
    context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs
) -> tuple[ClientState, ClientUpdate]:
    """The closed-form learner's part: sums of what is newly labelled, instead of training."""
    metrics: dict[str, float] = {}
    with costs.stopwatch.phase("sums"):
        state, sums, local = contribute(context, state, order)
    if context.settings.tracks_ev and state.watched.size:
        ev = state.ev_of(state.watched)
        metrics |= {"ev_sum": float(ev.sum()), "ev_count": float(ev.size)}
    if context.settings.observe_ev and HISTORY in state.extras:
        ev = state.ev_of(observed_samples(context, state))
        metrics |= {"observed_ev_sum": float(ev.sum()), "observed_ev_count": float(ev.size)}
    if context.settings.keeps_local_model and state.pools.labeled.size:
        state = replace(state, local_weights=local)
    metrics |= turn_metrics(state, costs)
    weights = local if context.settings.form == "isolated" else {}
    count = int(state.pools.labeled.size)
    return replace(state, turn=state.turn + 1), ClientUpdate(context.client, order.round, weights, count, metrics, sums)


def observed_samples(context: ClientContext, state: ClientState) -> SampleIds:
    """The samples on which EV is observed: drawn once of all that the client holds, whatever their pool."""
    size = min(context.settings.observe_ev, state.ids.size)
    if not size:
        return state.ids[:0]
    draw = rng(context.settings.seed, "observe", context.client)
    return np.sort(draw.choice(state.ids, size=size, replace=False))


def take_tracking(
    context: ClientContext,
    state: ClientState,
    outcome: training.TrainingResult,
    costs: Costs,
    metrics: dict[str, float],
) -> ClientState:
    """With the EVs that training measured. Where they are only observed, their cost is reported apart."""
    ev = epistemic_variation(outcome.history)
    metrics |= {"ev_sum": float(ev.sum()), "ev_count": float(ev.size)}
    if context.settings.needs_ev:
        costs.inferences += outcome.inferences
        costs.inferred.append(state.watched)
    else:
        metrics["observed_inferences"] = float(outcome.inferences)
        costs.stopwatch.seconds["observe"] += costs.stopwatch.seconds.pop("track")
    return state.with_tracking(state.watched, ev, classes_seen(outcome.history))


def remember(
    context: ClientContext, state: ClientState, order: RoundOrder, local: Weights, extras: dict[str, Array]
) -> ClientState:
    """With the models that the method needs in the next turn; a turn without labels changes none of them."""
    settings = context.settings
    if not settings.keeps_local_model or state.pools.labeled.size == 0:
        return state
    kept = dict(extras)
    if settings.keeps_model_before:
        before = order.origin if state.local_weights is None else state.local_weights
        kept |= prefixed(BEFORE, before)
    return replace(state, local_weights=local, extras=kept)
