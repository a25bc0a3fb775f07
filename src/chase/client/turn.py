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
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from chase.annotation.annotator import Annotator, Panel, Question, has_panel, remembers
from chase.client.choose import choose
from chase.client.context import ClientContext, Costs
from chase.client.contribute import PREPARE, fit_step, observe
from chase.client.live import live_base
from chase.client.second_opinions import counted, overdue_opinions
from chase.client.state import ClientState
from chase.client.train import train
from chase.core.errors import ChaseError, ClientError, TrainingError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Arrays, not_finite, part_of, prefixed
from chase.learning.loss_prediction import loss_extras

MEMORY = "annotator."
"""Prefix of an annotator's memory among a state's extras."""


@dataclass(frozen=True)
class Turn:
    """What a turn leaves behind; only ``update`` ever leaves the client."""

    update: ClientUpdate
    state: ClientState
    questions: tuple[Question, ...]
    journal: tuple[dict[str, Any], ...] = ()
    """Lines for selections.jsonl: gathered in simulation only."""
    live: Arrays = field(default_factory=dict)
    """What the labelling page re-ranks open questions with; empty unless ``live``."""


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


def own_model(context: ClientContext, state: ClientState, order: RoundOrder) -> RoundOrder:
    """The order as the client takes it: in isolation its own last model stands for the global one."""
    if context.settings.form != "isolated" or state.local_weights is None:
        return order
    extras = order.extras if context.settings.learner == "closed-form" else loss_extras(state.extras)
    return replace(order, weights=state.local_weights, extras=extras)


class Client:
    """The shell around the two steps: takes answers in, and commits."""

    def __init__(self, context: ClientContext, annotator: Annotator, store: StateStore) -> None:
        self.context, self._annotator, self._store = context, annotator, store
        self._state: ClientState | None = None

    @property
    def id(self) -> ClientId:
        """The client's number."""
        return self.context.client

    @property
    def state(self) -> ClientState:
        """The last committed state; questions that were open are filed again when it is first read."""
        if self._state is None:
            self._state = self._store.load()
            self._annotator.ask(open_questions(self._state, self.context.settings.strategy))
        return self._state

    def take_turn(self, order: RoundOrder) -> Turn:
        """Answer an order; a repeated one from what was committed."""
        done = self._store.committed(order.run, order.round)
        if done is not None:
            return done
        if order.phase == PREPARE:
            return self._prepare(order)
        costs, state, classes = Costs(), self.state, self.context.num_classes
        with self._stage(order, "reading answers"):
            self._recall(state)
            state, panel = self._withdraw(state.with_answers(self._annotator.answers(state.turn), classes))
            order = own_model(self.context, state, order)
        with self._stage(order, "selection"):
            if self.context.settings.learner == "closed-form":
                state = observe(self.context, state, order, costs)
            state, questions = choose(self.context, state, order, costs, panel)
        with self._stage(order, "asking"):
            self._annotator.ask(questions)
            state = counted(state.with_answers(self._annotator.answers(state.turn), classes), self._panel())
        with self._stage(order, "training"):
            state, update = train(self.context, state, order, costs)
            state = self._remembered(state)
            refuse_divergence(update)
            live = live_base(self.context, state, order)
        turn = Turn(update, state, tuple(questions), self._journal(questions, state), live)
        with self._stage(order, "saving"):
            self._store.commit(order.run, order.round, turn)
        self._state = state
        return turn

    def _prepare(self, order: RoundOrder) -> Turn:
        """A preparatory step: sums over the samples, no question and no change of state."""
        with self._stage(order, "fitting features"):
            turn = Turn(fit_step(self.context, self.state, order), self.state, ())
        with self._stage(order, "saving"):
            self._store.commit(order.run, order.round, turn)
        return turn

    def _withdraw(self, state: ClientState) -> tuple[ClientState, Panel | None]:
        """The state without what has waited too long, and what several people said so far."""
        patience = self.context.settings.patience
        overdue = state.overdue(patience)
        self._annotator.withdraw([*overdue.tolist(), *overdue_opinions(state, self._panel(), patience)])
        panel = self._panel()
        return counted(replace(state, pools=state.pools.give_back(overdue)), panel), panel

    def _panel(self) -> Panel | None:
        return self._annotator.panel() if has_panel(self._annotator) else None

    def _recall(self, state: ClientState) -> None:
        if remembers(self._annotator):
            self._annotator.recall(part_of(state.extras, MEMORY))

    def _remembered(self, state: ClientState) -> ClientState:
        """With the annotator's memory, for a run that is resumed."""
        if not remembers(self._annotator):
            return state
        return replace(state, extras={**state.extras, **prefixed(MEMORY, self._annotator.memory())})

    def _journal(self, questions: list[Question], state: ClientState) -> tuple[dict[str, Any], ...]:
        lines = []
        for q in questions:
            label = int(state.labels_of(np.array([q.sample]))[0])
            line: dict[str, Any] = {"round": q.round, "client": self.id, "turn": q.turn, "sample": q.sample, "ev": q.ev}
            line |= {"strategy": q.strategy, "label": label if label >= 0 else None}
            lines.append(line | {"again": True} if q.again else line)
        return tuple(lines)

    @contextmanager
    def _stage(self, order: RoundOrder, stage: str) -> Iterator[None]:
        try:
            yield
        except ClientError:
            raise
        except (ChaseError, OSError) as error:
            raise ClientError(str(self.id), order.round, stage, error) from error
        except Exception as error:  # of a class of the user's own: its traceback stays, with where it happened
            error.add_note(f"in client {self.id}, round {order.round}, {stage}")
            raise


def refuse_divergence(update: ClientUpdate) -> None:
    """Refuse weights that are not finite before they are kept: the client trains again from the next global model."""
    name = not_finite(update.weights)
    if name is not None:
        raise TrainingError(f"training diverged: '{name}' holds NaN or infinity; a smaller lr may help")


def open_questions(state: ClientState, strategy: str) -> list[Question]:
    """The questions that were asked and not answered; their turn is remembered, their round is not."""
    asked = state.pools.asked
    rows = state.at(asked)
    return [
        Question(int(s), 0, int(turn), strategy, int(ev))
        for s, turn, ev in zip(asked, state.asked_turn[rows], state.ev[rows], strict=True)
    ]
