"""One client's turn.

Two pure steps, ``choose`` and ``train``, around an annotator who never blocks:

    answers in -> select -> ask -> at-once answers in -> freeze -> awaken -> watch -> train, tracking EV

``Client`` is the thin shell that every engine and every deployment calls. It commits the new state,
the questions and the update together, keyed by (run, round): a repeated order is answered from
what was committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from chase.acquisition import freeze_awaken
from chase.annotation.annotator import Annotator, Question
from chase.core.errors import ChaseError, ClientError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.randomness import rng
from chase.core.weights import Array, Weights
from chase.learning import training
from chase.learning.inference import logits
from chase.learning.loss_prediction import loss_extras
from chase.learning.losses import Alignment, easy_samples, prepare_alignment
from chase.learning.tracking import classes_seen, epistemic_variation
from chase.method_loss import method_loss
from chase.models.net import get_weights, set_weights
from chase.selection import BEFORE, candidates, choose, training_plan
from chase.state import ClientState
from chase.workshop import Costs, Workshop


@dataclass(frozen=True)
class Turn:
    """What a turn leaves behind; only ``update`` ever leaves the client."""

    update: ClientUpdate
    state: ClientState
    questions: tuple[Question, ...]
    journal: tuple[dict[str, Any], ...] = ()
    """Lines for selections.jsonl: gathered in simulation only."""


class StateStore(Protocol):
    """Where a client keeps its state; ``commit`` is atomic."""

    def committed(self, run: str, round: int) -> Turn | None:
        """The turn that was committed for this order, if it was."""
        ...

    def load(self) -> ClientState:
        """The last committed state, or the starting one."""
        ...

    def commit(self, run: str, round: int, turn: Turn) -> None:
        """Keep the turn."""
        ...


def rest_and_watch(shop: Workshop, state: ClientState, order: RoundOrder) -> ClientState:
    """Freeze, awaken, and draw the samples to watch (Alg. 2)."""
    settings, pools = shop.settings, state.pools
    draw = rng(order.seed, "watch", order.round, shop.client)
    if settings.freeze:
        pools = freeze_awaken.freeze(pools, state.watched, state.ev_of(state.watched))
    if settings.awaken:
        pools = freeze_awaken.awaken(pools, settings.awaken_below * shop.behaviour.budget, settings.beta, draw)
    watched = state.watched[:0]
    if settings.watches and order.track and pools.labeled.size:
        size = settings.subset_size if settings.subset else None
        watched = freeze_awaken.watch(pools.unlabeled, state.turn == 0, size, settings.first_watch, draw)
    return replace(state, pools=pools, watched=watched)


def prepare_teachers(shop: Workshop, state: ClientState, order: RoundOrder, costs: Costs) -> Alignment | None:
    """Both teachers' outputs on the watched samples, once a turn; None when alignment is skipped."""
    settings = shop.settings
    enough = state.watched.size >= settings.batch_size
    if not settings.aligns or state.turn == 0 or order.fresh or state.local_weights is None or not enough:
        return None
    with costs.stopwatch.phase("teachers"):
        rows = shop.samples.rows(state.watched)
        set_weights(shop.net, state.local_weights)
        local_outputs = logits(shop.net, shop.samples, rows)
        set_weights(shop.net, order.weights)
        global_outputs = logits(shop.net, shop.samples, rows)
        costs.inferences += 2 * state.watched.size
        costs.inferred.append(state.watched)
        easy = easy_samples(state.ev_of(state.watched))
        return prepare_alignment(local_outputs, global_outputs, easy, str(settings.align), settings.tau)


def train(shop: Workshop, state: ClientState, order: RoundOrder, costs: Costs) -> tuple[ClientState, ClientUpdate]:
    """Freeze, awaken, watch and train; a client without labels does not train and has weight 0."""
    settings = shop.settings
    state = rest_and_watch(shop, state, order)
    labeled = state.pools.labeled
    metrics: dict[str, float] = {}
    local, extras = order.origin, loss_extras(order.extras, "start.") or loss_extras(order.extras)
    if labeled.size:
        alignment = prepare_teachers(shop, state, order, costs)
        set_weights(shop.net, order.origin)
        job = training.Job(
            samples=shop.samples,
            labeled_rows=shop.samples.rows(labeled),
            labels=torch.from_numpy(state.labels_of(labeled)),
            watched_rows=shop.samples.rows(state.watched),
            alignment=alignment,
            track=settings.tracks_ev and order.track and state.watched.size > 0,
            seed=order.seed,
            coordinates=(order.round, shop.client),
        )
        with method_loss(shop, state, order, costs) as own:
            outcome = training.train(shop.net, job, training_plan(settings), own.labeled)
        local, extras = get_weights(shop.net), own.extras
        metrics["train_loss"] = outcome.loss
        for phase, seconds in outcome.stopwatch.seconds.items():
            costs.stopwatch.seconds[phase] += seconds
        if job.track:
            state = take_tracking(shop, state, outcome, costs, metrics)
    metrics |= {
        "labels": float(state.labels_spent),
        "inferences": float(costs.inferences),
        "inferred_samples": float(costs.distinct),
    }
    metrics |= {f"pool_{name}": float(size) for name, size in state.pools.sizes().items()}
    metrics |= {f"seconds_{phase}": seconds for phase, seconds in costs.stopwatch.seconds.items()}
    after = replace(remember(shop, state, order, local, extras), turn=state.turn + 1)
    return after, ClientUpdate(shop.client, order.round, local, int(labeled.size), metrics, extras)


def take_tracking(
    shop: Workshop, state: ClientState, outcome: training.Outcome, costs: Costs, metrics: dict[str, float]
) -> ClientState:
    """With the EVs that training measured. Where they are only observed, their cost is reported apart."""
    ev = epistemic_variation(outcome.history)
    metrics |= {"ev_sum": float(ev.sum()), "ev_count": float(ev.size)}
    if shop.settings.needs_ev:
        costs.inferences += outcome.inferences
        costs.inferred.append(state.watched)
    else:
        metrics["observed_inferences"] = float(outcome.inferences)
        costs.stopwatch.seconds["observe"] = costs.stopwatch.seconds.pop("track")
    return state.with_tracking(state.watched, ev, classes_seen(outcome.history))


def remember(
    shop: Workshop, state: ClientState, order: RoundOrder, local: Weights, extras: dict[str, Array]
) -> ClientState:
    """With the models that the method needs in the next turn; a turn without labels changes none of them."""
    settings = shop.settings
    if not settings.keeps_local_model or state.pools.labeled.size == 0:
        return state
    kept = dict(extras)
    if settings.keeps_model_before:
        before = order.origin if state.local_weights is None else state.local_weights
        kept |= {f"{BEFORE}{name}": array for name, array in before.items()}
    return replace(state, local_weights=local, extras=kept)


def own_model(shop: Workshop, state: ClientState, order: RoundOrder) -> RoundOrder:
    """The order as the client takes it: in isolation its own last model stands for the global one."""
    if shop.settings.form != "isolated" or state.local_weights is None:
        return order
    return replace(order, weights=state.local_weights, extras=loss_extras(state.extras))


class Client:
    """The shell around the two steps: takes answers in, and commits."""

    def __init__(self, shop: Workshop, annotator: Annotator, store: StateStore) -> None:
        self.shop, self._annotator, self._store = shop, annotator, store
        self._state: ClientState | None = None

    @property
    def id(self) -> ClientId:
        """The client's number."""
        return self.shop.client

    @property
    def state(self) -> ClientState:
        """The last committed state; questions that were open are filed again when it is first read."""
        if self._state is None:
            self._state = self._store.load()
            self._annotator.ask(open_questions(self._state, self.shop.settings.strategy))
        return self._state

    def take_turn(self, order: RoundOrder) -> Turn:
        """Answer an order; a repeated one from what was committed."""
        done = self._store.committed(order.run, order.round)
        if done is not None:
            return done
        costs, state, classes = Costs(), self.state, self.shop.num_classes
        with self._stage(order, "taking in answers"):
            state = state.take_in(self._annotator.answers(state.turn), classes)
            overdue = state.overdue(self.shop.settings.patience)
            self._annotator.withdraw(overdue.tolist())
            state = replace(state, pools=state.pools.give_back(overdue))
            order = own_model(self.shop, state, order)
        with self._stage(order, "selection"):
            state, questions = choose(self.shop, state, order, costs)
        with self._stage(order, "asking"):
            self._annotator.ask(questions)
            state = state.take_in(self._annotator.answers(state.turn), classes)
        with self._stage(order, "training"):
            state, update = train(self.shop, state, order, costs)
        turn = Turn(update, state, tuple(questions), self._journal(questions, state))
        with self._stage(order, "saving"):
            self._store.commit(order.run, order.round, turn)
        self._state = state
        return turn

    def _journal(self, questions: list[Question], state: ClientState) -> tuple[dict[str, Any], ...]:
        lines = []
        for q in questions:
            label = int(state.labels_of(np.array([q.sample]))[0])
            line: dict[str, Any] = {"round": q.round, "client": self.id, "turn": q.turn, "sample": q.sample, "ev": q.ev}
            lines.append(line | {"strategy": q.strategy, "label": label if label >= 0 else None})
        return tuple(lines)

    @contextmanager
    def _stage(self, order: RoundOrder, stage: str) -> Iterator[None]:
        try:
            yield
        except ClientError:
            raise
        except (ChaseError, OSError) as error:
            raise ClientError(str(self.id), order.round, stage, error) from error


def open_questions(state: ClientState, strategy: str) -> list[Question]:
    """The questions that were asked and not answered; their turn is remembered, their round is not."""
    asked = state.pools.asked
    rows = state.at(asked)
    return [
        Question(int(s), 0, int(turn), strategy, int(ev))
        for s, turn, ev in zip(asked, state.asked_turn[rows], state.ev[rows], strict=True)
    ]


__all__ = ["Client", "Costs", "StateStore", "Turn", "Workshop", "candidates", "choose", "train"]
