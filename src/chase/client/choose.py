"""The first step of a turn: which samples the client asks about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from chase.acquisition.pool_view import Models, PoolView, Which
from chase.acquisition.strategy import picks_by_chance
from chase.annotation.annotator import Panel, Question
from chase.client.context import ClientContext, Costs
from chase.client.contribute import own_solution
from chase.client.second_opinions import Proposal, most_opinions, share_request
from chase.client.solved_head import received_model
from chase.client.state import ClientState
from chase.closed_form.model import build_model
from chase.core.errors import SettingsError
from chase.core.messages import RoundOrder
from chase.core.pools import SampleIds, is_in
from chase.core.randomness import rng
from chase.core.weights import Arrays, Weights, part_of
from chase.learning import training
from chase.learning.distillation import Distillation
from chase.learning.inference import logits
from chase.learning.loss_prediction import loss_extras
from chase.models.net import get_weights, set_weights
from chase.settings import Settings

BEFORE = "before."
"""Prefix of the weights of the local model before the last, among a state's extras."""
THOUGHTS = 3
"""How many classes of the model's prediction a person is shown."""
DISTILLED, TEMPERATURE = 0.9, 4.0
"""Weight of the teacher and temperature of a distilled model."""
ALONE_UNTIL = 0.99
"""A local-only model is trained until it classifies this share of its labelled samples rightly."""


def candidates(state: ClientState, settings: Settings) -> SampleIds:
    """What may be asked for: the watched samples that are still unlabelled, or the whole unlabelled pool.

    Only watched samples have a fresh EV, so EV strategies and subset sampling choose among those. A client
    that has watched nothing yet (it had no labels to train with) chooses among all.
    """
    among_watched = "label_changes" in settings.needs or settings.subset
    if among_watched and state.watched.size:
        return state.watched[is_in(state.watched, state.pools.unlabeled)]
    return state.pools.unlabeled


def choose(
    context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs, panel: Panel | None = None
) -> tuple[ClientState, list[Question]]:
    """Select what to ask for; nothing in a client's first turn or off its calendar.

    With a ``panel`` of people, labels that are probably wrong compete with new samples for the places.
    """
    due = order.phase == "select" or (order.phase == "turn" and context.behaviour.asks(state.turn))
    waiting = state.pools.asked.size + state.opinions_waiting
    room = order.allowance(context.client, context.behaviour.budget - waiting)
    pool_ids = candidates(state, context.settings)
    opinions = most_opinions(context, panel) > 0
    if not due or state.turn == 0 or room <= 0 or (pool_ids.size == 0 and not opinions):
        return state, []
    again: list[Question] = []
    with costs.stopwatch.phase("select"):
        view = pool_view(context, state, order, pool_ids)
        chosen = proposals(context, order, view, room) if pool_ids.size else pool_ids
        costs.inferences += view.inferences
        costs.inferred.append(view.ids[view.inferred])
        if opinions and panel is not None:
            share = share_request(Proposal(context, state, order, panel, chosen), room, costs)
            chosen, again = share.new, share.questions
        count_picks(view, chosen, costs)
    scores = dict(zip(view.ids.tolist(), view.scores.tolist(), strict=True)) if view.scores is not None else {}
    questions = again + [
        Question(int(s), order.round, state.turn, context.settings.strategy, int(ev), scores.get(int(s)))
        for s, ev in zip(chosen, state.ev_of(chosen), strict=True)
    ]
    return state.ask(chosen), with_thoughts(context, order, questions, costs) if context.for_people else questions


def proposals(context: ClientContext, order: RoundOrder, view: PoolView, room: int) -> SampleIds:
    """The samples that the strategy would ask for."""
    settings, draw = context.settings, rng(order.seed, "select", order.round, context.client)
    return checked(settings.acquisition.select(view, room, draw), view, room, settings.strategy)


def with_thoughts(context: ClientContext, order: RoundOrder, questions: list[Question], costs: Costs) -> list[Question]:
    """The questions with the global model's likeliest classes."""
    if not questions:
        return questions
    ids = np.array([q.sample for q in questions])
    set_weights(context.net, received_model(order))
    probs = logits(context.net, context.samples, context.samples.rows(ids)).softmax(dim=1)
    chances, classes = probs.topk(min(THOUGHTS, context.num_classes), dim=1)
    costs.inferences += ids.size
    costs.inferred.append(ids)
    return [
        replace(q, thoughts=tuple((int(c), float(p)) for c, p in zip(row, share, strict=True)))
        for q, row, share in zip(questions, classes.tolist(), chances.tolist(), strict=True)
    ]


def count_picks(view: PoolView, chosen: SampleIds, costs: Costs) -> None:
    """Count what was picked and, where a score ranked the candidates, what the tie-break decided; and who judged."""
    costs.picks += chosen.size
    if view.judge is not None:
        costs.judges[view.judge] = costs.judges.get(view.judge, 0) + 1
    if view.scores is not None:
        costs.ranked_picks += chosen.size
        rows = np.searchsorted(view.ids, chosen)
        groups = np.zeros(len(view), dtype=np.int64) if view.groups is None else view.groups
        costs.chance_picks += sum(
            picks_by_chance(view.scores[groups == group], view.scores[rows[groups[rows] == group]])
            for group in np.unique(groups[rows])
        )


def checked(choice: ArrayLike, view: PoolView, budget: int, strategy: str) -> SampleIds:
    """The choice, if it is one: at most ``budget`` candidates, each once, as an array or a list of ids."""
    found = np.asarray(choice)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise SettingsError(f"strategy '{strategy}' must return ids of samples as an array or list, not {choice!r:.70}")
    chosen = found.astype(np.int64)
    if np.unique(chosen).size < chosen.size:
        raise SettingsError(f"strategy '{strategy}' chose a sample twice")
    if chosen.size > budget:
        raise SettingsError(f"strategy '{strategy}' chose {chosen.size} samples, but {budget} may be asked for")
    stray = chosen[~is_in(chosen, view.ids)]
    if stray.size:
        raise SettingsError(f"strategy '{strategy}' chose sample {stray[0]}, which is not a candidate")
    return chosen


def pool_view(context: ClientContext, state: ClientState, order: RoundOrder, ids: SampleIds) -> PoolView:
    """The candidates as a strategy may see them."""
    settings, rows = context.settings, state.at(ids)
    return PoolView(
        ids,
        context.samples,
        models(context, state, order),
        label_changes=state.ev[rows],
        classes_seen=state.seen[rows],
        labeled_ids=state.pools.labeled,
        labeled_classes=state.labels_of(state.pools.labeled),
        num_classes=context.num_classes,
        model=settings.model,
    )


def models(context: ClientContext, state: ClientState, order: RoundOrder) -> Models:
    """The weights that the strategy's needs entitle it to; a client that never trained has the global model."""
    settings, received = context.settings, received_model(order)
    local = received if state.local_weights is None else state.local_weights
    weights: dict[Which, Weights] = {"global": received}
    losses: dict[Which, Arrays] = {}
    if settings.keeps_local_model:
        weights["local"] = local
    if settings.keeps_model_before:
        weights["before"] = model_before(state) or local
    elif "before" in settings.needs:
        weights["before"] = local
    if "loss_module" in settings.needs:
        losses = {"global": loss_extras(order.extras), "local": loss_extras(state.extras) or loss_extras(order.extras)}
    return Models(
        context.net,
        weights,
        losses,
        trained={
            "alone": lambda: train_alone(context, state, order),
            "distilled": lambda: train_distilled(context, state, order, local),
        },
        seed=(order.seed, order.round, context.client),
    )


def model_before(state: ClientState) -> Weights:
    """The weights of the local model before the last; empty if there is none."""
    return part_of(state.extras, BEFORE)


def train_alone(context: ClientContext, state: ClientState, order: RoundOrder) -> tuple[Weights, int]:
    """A model trained from the run's first weights on this client's labels alone, and its passes outside training."""
    settings, labeled = context.settings, state.pools.labeled
    if settings.learner == "closed-form":
        return own_solution(context, state, order), 0
    set_weights(context.net, get_weights(build_model(context.spec, order.seed)))
    if labeled.size == 0:
        return get_weights(context.net), 0
    job = training.TrainingTask(
        samples=context.samples,
        labeled_rows=context.samples.rows(labeled),
        labels=torch.from_numpy(state.labels_of(labeled)),
        watched_rows=context.samples.rows(labeled),
        alignment=None,
        track=True,
        seed=order.seed,
        coordinates=("alone", order.round, context.client),
    )
    plan = replace(training_plan(settings), epochs=settings.alone_epochs, mu=0.0, prox=0.0, stop_at=ALONE_UNTIL)
    outcome = training.train(context.net, job, plan)
    return get_weights(context.net), outcome.inferences


def train_distilled(
    context: ClientContext, state: ClientState, order: RoundOrder, local: Weights
) -> tuple[Weights, int]:
    """The local model trained on with the one received as its teacher, and the passes outside training."""
    labeled = state.pools.labeled
    if labeled.size == 0:
        return local, 0
    rows = context.samples.rows(labeled)
    set_weights(context.net, received_model(order))
    teacher = logits(context.net, context.samples, rows)
    set_weights(context.net, local)
    job = training.TrainingTask(
        samples=context.samples,
        labeled_rows=rows,
        labels=torch.from_numpy(state.labels_of(labeled)),
        watched_rows=rows[:0],
        alignment=None,
        track=False,
        seed=order.seed,
        coordinates=("distilled", order.round, context.client),
    )
    plan = replace(training_plan(context.settings), mu=0.0, prox=0.0)
    training.train(context.net, job, plan, Distillation(teacher, DISTILLED, TEMPERATURE))
    return get_weights(context.net), int(labeled.size)


def training_plan(settings: Settings) -> training.TrainingOptions:
    """How the settings say to train."""
    return training.TrainingOptions(
        epochs=settings.local_epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        mu=settings.mu if settings.aligns else 0.0,
        prox=settings.prox,
        device=settings.device,
        augment=settings.augment,
        optimizer=settings.optimizer,
        balanced=settings.class_weights == "balanced",
    )
