"""Second opinions within a request: labels that are probably wrong compete with new samples for its places.

The strategy proposes new samples; each is replaced by a labelled sample that is trusted less (ActiveLab score,
``chase.annotation.second_opinion``). The model's part is today's global model. Its probabilities of a labelled sample
are those of a model that has not seen the label, where the order brings what that takes (closed-form learner with
``temperature = "leave-one-out"``); otherwise the model may know the label by heart and doubts less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from chase.annotation.annotator import SECOND_OPINION, Panel, Question
from chase.annotation.second_opinion import Floats, Rivals, find_trust
from chase.client.context import ClientContext, Costs
from chase.client.contribute import left_out_scores, sent
from chase.client.solved_head import received_model
from chase.client.state import ClientState
from chase.closed_form.leave_one_out import LOO
from chase.closed_form.updates import softmax
from chase.core.messages import RoundOrder
from chase.core.pools import SampleIds, is_in
from chase.learning.inference import logits
from chase.models.net import set_weights


def most_opinions(context: ClientContext, panel: Panel | None) -> int:
    """Second opinions that a request may contain: as the people say, otherwise as the settings say."""
    if panel is None:
        return 0
    return context.settings.second_opinions if panel.most is None else panel.most


def counted(state: ClientState, panel: Panel | None) -> ClientState:
    """With the second opinions that were given and are waited for."""
    if panel is None:
        return state
    return replace(state, opinions=panel.given, opinions_waiting=len(panel.waiting))


def overdue_opinions(state: ClientState, panel: Panel | None, patience: int) -> list[int]:
    """Samples whose second opinion has been waited for too long."""
    if panel is None or not patience:
        return []
    return [sample for sample, turn in panel.waiting.items() if state.turn - turn >= patience]


def may_be_asked_again(state: ClientState, panel: Panel) -> SampleIds:
    """Labelled samples with votes that nobody is being asked about and somebody else can be."""
    stay = set(panel.votes[:, 0].tolist()) - panel.closed - panel.waiting.keys()
    ids = np.array(sorted(stay), dtype=np.int64)
    return ids[is_in(ids, state.pools.labeled)]


@dataclass(frozen=True)
class Share:
    """How a request is divided."""

    new: SampleIds
    questions: list[Question]
    """Those that ask for a second opinion, the least trusted first."""


@dataclass(frozen=True)
class Proposal:
    """What a strategy proposes in a turn, and what decides whether labelled samples take places of it."""

    context: ClientContext
    state: ClientState
    order: RoundOrder
    panel: Panel
    proposed: SampleIds


def share_request(proposal: Proposal, places: int, costs: Costs) -> Share:
    """Which of the proposed new samples are asked for, and which labels a second opinion instead."""
    state, order = proposal.state, proposal.order
    labelled = may_be_asked_again(state, proposal.panel)
    if labelled.size == 0 or proposal.context.num_classes < 2:
        return Share(proposal.proposed, [])
    rivals = competitors(proposal, labelled, costs)
    new, again = rivals.split(places, most_opinions(proposal.context, proposal.panel))
    doubt = dict(zip(labelled.tolist(), (1 - rivals.again_scores).tolist(), strict=True))
    questions = [
        Question(s, order.round, state.turn, SECOND_OPINION, ev, round(doubt[s], 4), again=True)
        for s, ev in zip(again.tolist(), state.ev_of(again).tolist(), strict=True)
    ]
    return Share(new, questions)


def competitors(proposal: Proposal, labelled: SampleIds, costs: Costs) -> Rivals:
    """Proposed and labelled samples with how far each can be trusted."""
    context, state, order = proposal.context, proposal.state, proposal.order
    panel, proposed = proposal.panel, proposal.proposed
    known = state.pools.labeled[is_in(state.pools.labeled, np.unique(panel.votes[:, 0]))]
    set_weights(context.net, received_model(order))
    of_new, of_known = plain(context, proposed), unbiased(context, state, order, known)
    costs.inferences += int(proposed.size + known.size)
    costs.inferred.append(proposed)
    labels = dict(zip(known.tolist(), state.labels_of(known).tolist(), strict=True))
    guesses = dict(zip(known.tolist(), of_known.argmax(axis=1).tolist(), strict=True))
    trust = find_trust(panel.votes[is_in(panel.votes[:, 0], known)], labels, guesses)
    said, probs = panel.by_sample(), dict(zip(known.tolist(), of_known, strict=True))
    scores = np.array([trust.of_labelled(probs[s], said[s], labels[s]) for s in labelled.tolist()])
    return Rivals(proposed, trust.of_new(of_new) if proposed.size else np.empty(0), labelled, scores)


def plain(context: ClientContext, ids: SampleIds) -> Floats:
    """Probabilities (samples, classes) by the model that the network holds."""
    if ids.size == 0:
        return np.empty((0, context.num_classes))
    found = logits(context.net, context.samples, context.samples.rows(ids)).double().softmax(dim=1)
    return np.asarray(found.numpy())


def unbiased(context: ClientContext, state: ClientState, order: RoundOrder, ids: SampleIds) -> Floats:
    """The same for labelled samples, as if each had been left out where that can be computed."""
    probs = plain(context, ids)
    if f"{LOO}about" not in order.extras or context.settings.form == "isolated":
        return probs
    server_ids, server_labels = sent(state)
    there = is_in(ids, server_ids)
    if not there.any():
        return probs
    labels = server_labels[np.searchsorted(server_ids, ids[there])]
    heat = float(order.extras[f"{LOO}about"][1])
    probs[there] = softmax(left_out_scores(context, order, ids[there], labels) / heat)
    return probs
