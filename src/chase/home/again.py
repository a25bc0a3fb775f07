"""Second opinions at a home: what people said, for a turn that may ask again, and ``chase label again``.

A client's turn decides by today's model between new samples and second opinions (``chase.client.second_opinions``); the
home tells it who said what. ``chase label again`` asks once, without a model: its part is what the model thought when
the sample was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import SECOND_OPINION, Panel, Question
from chase.annotation.opinions import COLLEAGUE
from chase.annotation.second_opinion import HALF, Trust, find_trust
from chase.home.claims import OPEN
from chase.home.home import Home


def panel_of(home: Home, own: Collection[int] | None = None, anybody: bool = False) -> Panel:
    """What people said, of these samples only where ``own`` is given.

    A sample about which answers differ waits for an adjudicator: it is closed. So is one that nobody who can come has
    left to answer (unless ``anybody`` may come); if it was asked already, it stays open for whoever comes later and
    holds no place. Gold questions, which look like the question that they precede, are no second opinions, and to ask
    for a colleague gives none.
    """
    numbers = {one.name: one.id for one in home.people.everybody()}
    rows = [(s, numbers[who], c) for s, who, c in home.ledger.votes() if own is None or s in own]
    with home.database.reading() as db:
        asked = db.execute(
            f"SELECT sample, turn, votes < wanted AS open FROM questions"
            f" WHERE strategy = ? AND gold_for IS NULL AND {OPEN}",
            (SECOND_OPINION,),
        ).fetchall()
        given = db.execute(
            "SELECT DISTINCT a.sample, a.question, a.annotator FROM answers a JOIN questions q ON q.id = a.question"
            " WHERE q.strategy = ? AND q.gold_for IS NULL AND a.retracted_at IS NULL AND NOT a.decides"
            " AND a.reason <> ?",
            (SECOND_OPINION, COLLEAGUE),
        ).fetchall()
    mine = [row for row in asked if own is None or row["sample"] in own]
    differ = {row["sample"] for row in mine if not row["open"]}
    over = set() if anybody else nobody_left(home, {row[0] for row in rows} | {row["sample"] for row in mine})
    return Panel(
        votes=np.array(rows, dtype=np.int64).reshape(-1, 3),
        waiting={row["sample"]: row["turn"] for row in mine if row["open"] and row["sample"] not in over},
        closed=frozenset(_settled(home) | differ | over),
        given=sum(own is None or row["sample"] in own for row in given),
        most=home.policies.read().second_opinions or None,
    )


def _settled(home: Home) -> set[int]:
    """Samples that are decided for good or wait for an adjudicator."""
    decided = {line["sample"] for line in home.ledger.labels() if line["rule"] == "decision"}
    return decided | {review["sample"] for review in home.inbox.verdicts.reviews() if review["why"] == "conflict"}


def nobody_left(home: Home, samples: Iterable[int]) -> set[int]:
    """Those of the samples that everybody who can come has answered or skipped, or saw the answers of others to."""
    with home.database.reading() as db:
        rows = db.execute(
            "SELECT sample, annotator FROM answers WHERE retracted_at IS NULL"
            " UNION SELECT sample, annotator FROM looked"
        ).fetchall()
    done: dict[int, set[int]] = {}
    for row in rows:
        done.setdefault(row["sample"], set()).add(row["annotator"])
    can_come = home.people.present()
    return {sample for sample in samples if not can_come - done.get(sample, set())}


def note_again(home: Home, questions: Sequence[Question]) -> None:
    """A line of the audit log for the second opinions among the questions."""
    again = [q.sample for q in questions if q.again]
    if again:
        home.audit.note("training", "again", samples=again)


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
    """What the model predicted, the rest spread over the classes that it was not asked for."""
    if not top:
        return None
    left = max(0.0, 1 - sum(chance for _, chance in top))
    found = np.full(classes, left / max(1, classes - len(top)))
    for label, chance in top:
        found[label] = chance
    return found


def doubtful(home: Home, anybody: bool = False) -> list[Doubt]:
    """Labels that people gave and that are trusted less than the least certain new sample, least trusted first.

    New samples are the open questions; without any, labels that are trusted less than half count. Labels that nobody
    else can be asked about are left out, unless ``anybody`` may come.
    """
    panel, classes = panel_of(home, anybody=anybody), len(home.card.classes)
    lines = {line["sample"]: line for line in home.ledger.labels() if line["label"] is not None}
    thought = {s: _probabilities(json.loads(line["thoughts"] or "[]"), classes) for s, line in lines.items()}
    voted = set(panel.votes[:, 0].tolist())
    known = {s: p for s, p in thought.items() if p is not None and s in voted}
    if not known or classes < 2:
        return []
    labels = {sample: int(lines[sample]["label"]) for sample in known}
    guesses = {sample: int(probs.argmax()) for sample, probs in known.items()}
    trust = find_trust(panel.votes[np.isin(panel.votes[:, 0], list(known))], labels, guesses)
    said, waiting = panel.by_sample(), home.ledger.open_questions()
    limit = _least_certain([json.loads(question["thoughts"]) for question in waiting], classes, trust)
    away = panel.closed | {question["sample"] for question in waiting}
    found = [
        Doubt(s, lines[s]["name"], labels[s], trust.of_labelled(p, said[s], labels[s]), lines[s]["round"] or 0)
        for s, p in known.items()
        if s not in away
    ]
    return sorted((one for one in found if one.score < limit), key=lambda one: (one.score, one.sample))


def _least_certain(tops: Sequence[Sequence[tuple[int, float]]], classes: int, trust: Trust) -> float:
    probs = [p for top in tops if (p := _probabilities(top, classes)) is not None]
    return float(trust.of_new(np.stack(probs)).min()) if probs else HALF


def ask_again(home: Home, doubts: Sequence[Doubt]) -> int:
    """File second opinions; whoever answered a sample is not asked for it again."""
    with home.database.reading() as db:
        turn = int(db.execute("SELECT COALESCE(MAX(turn), 0) FROM questions").fetchone()[0])
    return home.inbox.file(
        [
            Question(one.sample, one.round, turn, SECOND_OPINION, 0, round(1 - one.score, 4), again=True)
            for one in doubts
        ]
    )
