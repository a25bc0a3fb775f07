"""The label in force for each sample, made from the answers of one or several people.

Answers are opinions; a verdict is what training gets. After every change of a sample's answers ``settle`` works out
what they come to: a verdict that training has not been handed is retracted when it no longer holds, one that
training may be using stands until another replaces it. What needs an adjudicator stands in ``reviews``.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Answer
from chase.annotation.opinions import COLLEAGUE, Opinion, OpinionOutcome, dawid_skene, numbered, outcome, votes_of
from chase.home.claims import OPEN
from chase.home.policy import Policies
from chase.home.schema import Database

IN_FORCE = """
SELECT a.id, a.sample, a.annotator, p.name, a.label, a.reason, a.unsure, a.decides, a.comment, a.answered_at, a.source
FROM answers a JOIN annotators p ON p.id = a.annotator LEFT JOIN questions q ON q.id = a.question
WHERE a.retracted_at IS NULL AND q.gold_for IS NULL AND NOT EXISTS (
  SELECT 1 FROM answers b LEFT JOIN questions r ON r.id = b.question
  WHERE b.sample = a.sample AND b.annotator = a.annotator AND b.id > a.id AND b.retracted_at IS NULL
    AND r.gold_for IS NULL)
"""
"""Each person's last answer to each sample, gold questions apart."""


class Verdicts:
    """Keeps the verdicts of an inbox."""

    def __init__(self, database: Database, num_classes: int, policies: Policies) -> None:
        self._database, self._classes, self._policies = database, num_classes, policies

    # training's side

    def hand_out(self, after: int) -> tuple[list[Answer], int]:
        """The verdicts in force later than number ``after``, oldest first, and the number of the last.

        What was handed out may be in use, so from here on an undo leaves it standing until it is replaced.
        """
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT sample, label, reason, by FROM verdicts WHERE id > ? AND retracted_at IS NULL ORDER BY id",
                (after,),
            ).fetchall()
            last = int(db.execute("SELECT COALESCE(MAX(id), 0) FROM verdicts").fetchone()[0])
            db.execute("UPDATE meta SET value = MAX(value, ?) WHERE key = 'handed'", (last,))
        return [Answer(r["sample"], r["label"], r["by"], r["reason"]) for r in rows], max(after, last)

    def mark(self, key: str) -> int:
        """How far verdicts are "taken" or "handed"."""
        with self._database.reading() as db:
            return int(db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def set_taken(self, upto: int) -> None:
        """Verdicts up to this number are part of the committed state."""
        with self._database.transaction() as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'taken'", (upto,))

    def is_fresh(self, sample: int) -> bool:
        """Whether a verdict is on its way to training."""
        with self._database.reading() as db:
            found = db.execute(
                "SELECT 1 FROM verdicts WHERE sample = ? AND id > ? AND retracted_at IS NULL",
                (sample, self.mark("taken")),
            ).fetchone()
        return found is not None

    # the people's side

    def current(self, sample: int) -> dict[str, Any] | None:
        """The verdict in force for a sample, with the annotator of the answer that decided."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT v.*, a.annotator, a.answered_at, a.seconds FROM verdicts v"
                " LEFT JOIN answers a ON a.id = v.answer"
                " WHERE v.sample = ? AND v.retracted_at IS NULL ORDER BY v.id DESC LIMIT 1",
                (sample,),
            ).fetchone()
        return None if row is None else dict(row)

    def opinions(self, sample: int) -> list[Opinion]:
        """What each person says of a sample, oldest first."""
        with self._database.reading() as db:
            rows = db.execute(IN_FORCE + " AND a.sample = ? ORDER BY a.id", (sample,)).fetchall()
        return [
            Opinion(r["id"], r["annotator"], r["name"], r["label"], r["reason"], bool(r["unsure"]), bool(r["decides"]))
            for r in rows
        ]

    def settle(self, sample: int) -> None:
        """Make the verdict, the question and the review of a sample what its answers come to."""
        with self._database.transaction() as db:
            opinions = self.opinions(sample)
            question = db.execute(
                "SELECT id, wanted, state FROM questions WHERE sample = ? AND gold_for IS NULL"
                " ORDER BY id DESC LIMIT 1",
                (sample,),
            ).fetchone()
            found = outcome(opinions, 1 if question is None else question["wanted"], self._posterior(sample, opinions))
            stands = self._update(db, sample, found)
            if question is not None:
                self._close_or_open(db, question, len(votes_of(opinions)), stands, found)
            self._review(db, sample, opinions, found)

    def _posterior(self, sample: int, opinions: list[Opinion]) -> NDArray[np.float64] | None:
        """The chance of each class, where the policy asks for Dawid-Skene and the people differ."""
        said = {one.label for one in votes_of(opinions)}
        if len(said) < 2 or self._policies.read().rule != "dawid-skene":
            return None
        with self._database.reading() as db:
            rows = db.execute(IN_FORCE + " AND a.label IS NOT NULL AND NOT a.decides").fetchall()
        votes, samples, people = numbered([(r["sample"], r["annotator"], r["label"]) for r in rows])
        if sample not in samples:
            return None
        crowd = dawid_skene(votes, len(samples), len(people), self._classes)
        return np.asarray(crowd.posterior[samples[sample]])

    def _update(self, db: sqlite3.Connection, sample: int, found: OpinionOutcome) -> dict[str, Any] | None:
        handed, now = self.mark("handed"), time.time()
        current = self.current(sample)

        def holds() -> bool:
            same = current is not None and (current["label"], current["reason"]) == (found.label, found.reason)
            return found.state == "decided" and same and current is not None and current["by"] == found.by

        while current is not None and current["id"] > handed and not holds():
            db.execute("UPDATE verdicts SET retracted_at = ? WHERE id = ?", (now, current["id"]))
            current = self.current(sample)
        if found.state == "decided" and not holds():
            db.execute(
                "INSERT INTO verdicts (sample, label, reason, rule, by, answer, decided_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (sample, found.label, found.reason, found.rule, found.by, found.answer, now),
            )
            current = self.current(sample)
        return current

    def _close_or_open(
        self, db: sqlite3.Connection, question: Any, votes: int, stands: dict[str, Any] | None, found: OpinionOutcome
    ) -> None:
        state = question["state"]
        if stands is not None and (found.state == "decided" or state not in ("waiting", "shown")):
            state = "skipped" if stands["label"] is None else "answered"
        elif state in ("answered", "skipped"):
            state = "waiting"
        db.execute("UPDATE questions SET state = ?, votes = ? WHERE id = ?", (state, votes, question["id"]))
        if state == "waiting":
            db.execute(
                f"UPDATE questions SET state = 'shown' WHERE id = ? AND {OPEN}"
                " AND EXISTS (SELECT 1 FROM claims c WHERE c.question = questions.id AND c.shown)",
                (question["id"],),
            )

    def _review(self, db: sqlite3.Connection, sample: int, opinions: list[Opinion], found: OpinionOutcome) -> None:
        why = ""
        if found.state == "conflict":
            why = "conflict"
        elif found.state == "open" and any(one.reason == COLLEAGUE for one in opinions):
            why = "colleague"
        elif found.state == "decided" and found.rule != "decision" and any(one.unsure for one in opinions):
            why = "not sure"
        if why:
            db.execute(
                "INSERT INTO reviews VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET why = excluded.why",
                (sample, why, time.time()),
            )
        else:
            db.execute("DELETE FROM reviews WHERE sample = ?", (sample,))

    def needs_review(self, sample: int) -> bool:
        """Whether a sample waits for an adjudicator."""
        with self._database.reading() as db:
            return db.execute("SELECT 1 FROM reviews WHERE sample = ?", (sample,)).fetchone() is not None

    def reviews(self, limit: int = 1_000_000) -> list[dict[str, Any]]:
        """What waits for an adjudicator, conflicts first, each with everything that was answered."""
        order = "ORDER BY r.why <> 'conflict', r.since LIMIT ?"
        with self._database.reading() as db:
            rows = db.execute(f"SELECT r.sample, r.why FROM reviews r {order}", (limit,)).fetchall()
            found = []
            for row in rows:
                said = db.execute(IN_FORCE + " AND a.sample = ? ORDER BY a.id", (row["sample"],)).fetchall()
                answers = [
                    {
                        "by": one["name"],
                        "label": one["label"],
                        "reason": one["reason"],
                        "unsure": bool(one["unsure"]),
                        "comment": one["comment"],
                        "answered_at": one["answered_at"],
                    }
                    for one in said
                ]
                found.append({"sample": row["sample"], "why": row["why"], "answers": answers})
        return found
