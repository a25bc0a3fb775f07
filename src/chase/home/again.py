"""Second opinions at a home: which labels are trusted less than a new sample would be.

The model's part is what it thought when the sample was asked for, people's part their quality by Dawid-Skene over all
answers of the home; ``chase.annotation.second_opinion`` puts them together. The policy's ``second_opinions`` lets this
happen at the end of every turn, before the turn's own questions; ``chase label again`` does it once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Question
from chase.annotation.opinions import dawid_skene, numbered
from chase.annotation.second_opinion import labelled_score, new_score
from chase.home.home import INITIAL, Home

STRATEGY = "second opinion"
IMPORT = "import"
"""Who is named as the annotator of imported labels where the file names nobody."""


@dataclass(frozen=True)
class Doubt:
    """A label that may be wrong."""

    sample: int
    name: str
    label: int
    score: float
    """How far it is trusted, from 0 to 1."""
    round: int


def _probabilities(top: Sequence[tuple[int, float]], classes: int) -> NDArray[np.float64] | None:
    """What the model thought, the rest spread over the classes that it was not asked for."""
    if not top:
        return None
    left = max(0.0, 1 - sum(chance for _, chance in top))
    found = np.full(classes, left / max(1, classes - len(top)))
    for label, chance in top:
        found[label] = chance
    return found


def doubtful(home: Home, coming: Sequence[Question] = ()) -> list[Doubt]:
    """Labels that people gave and that are trusted less than the least certain new sample, least trusted first.

    New samples are the open questions and those ``coming``; without any, labels that are trusted less than half count.
    Decisions of adjudicators are final, and a label is doubted only where somebody else is there to ask.
    """
    classes = len(home.card.classes)
    rows = [(s, home.people.named(who).id, c) for s, who, c in home.ledger.votes()]
    lines = [line for line in home.ledger.labels() if line["label"] is not None and line["rule"] != "decision"]
    if not rows or classes < 2:
        return []
    votes, samples, people = numbered(rows)
    quality = dawid_skene(votes, len(samples), len(people), classes).quality()
    by_sample: dict[int, list[tuple[int, float]]] = {}
    for sample, who, label in rows:
        by_sample.setdefault(sample, []).append((label, float(quality[people[who]])))
    thought = {line["sample"]: _probabilities(json.loads(line["thoughts"] or "[]"), classes) for line in lines}
    commonest = max(Counter(label for _, _, label in rows).values()) / len(rows)
    known = [(line, p) for line in lines if (p := thought[line["sample"]]) is not None and line["sample"] in by_sample]
    if not known:
        return []
    model = float(np.mean([p.argmax() == line["label"] for line, p in known]))
    waiting = home.ledger.open_questions()
    tops = [json.loads(question["thoughts"]) for question in waiting] + [question.thoughts for question in coming]
    limit = _least_certain(tops, classes, float(quality.mean()), model, commonest)
    asked = {question["sample"] for question in waiting}
    team = _team(home)
    spoke: dict[int, set[int]] = {}
    for sample, who, _ in rows:
        spoke.setdefault(sample, set()).add(who)
    found = [
        Doubt(
            line["sample"],
            line["name"],
            line["label"],
            labelled_score(p, by_sample[line["sample"]], line["label"], model, commonest),
            line["round"] or 0,
        )
        for line, p in known
        if line["sample"] not in asked and team - spoke[line["sample"]]
    ]
    return sorted((one for one in found if one.score < limit), key=lambda one: (one.score, one.sample))


def _team(home: Home) -> set[int]:
    """Everybody who can be asked."""
    return {one.id for one in home.people.everybody() if one.name not in (INITIAL, IMPORT)}


def _least_certain(
    tops: Sequence[Sequence[tuple[int, float]]], classes: int, quality: float, model: float, commonest: float
) -> float:
    probs = [p for top in tops if (p := _probabilities(top, classes)) is not None]
    return float(new_score(np.stack(probs), quality, model, commonest).min()) if probs else 0.5


def ask_again(home: Home, doubts: Sequence[Doubt]) -> int:
    """File second opinions; whoever answered a sample is not asked for it again."""
    return home.inbox.file(
        [Question(one.sample, one.round, 0, STRATEGY, 0, round(1 - one.score, 4), again=True) for one in doubts]
    )
