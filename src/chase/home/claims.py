"""Who works on which question: what is handed to whom, for how long, and what is mixed in.

A question wants a number of answers, each by another person. It is offered while the votes it has and the people who
hold it are fewer. A claim lasts ``LEASE_SECONDS`` from the last sign of life; what a person has been given they may
answer, also later, and nothing else.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from chase.annotation.annotator import SECOND_OPINION
from chase.core.randomness import fold
from chase.home.schema import Database

LEASE_SECONDS = 300.0
"""How long a question stays with the annotator it was given to, from the last sign of life."""
QUIET_SECONDS = 60.0
"""Who was silent for so long loses the questions that they hold without having looked at them."""
OPEN = "state IN ('waiting', 'shown')"
KEEP = ("id", "sample", "round", "turn", "strategy", "ev", "score", "state")
FREE = f"""
SELECT q.id, q.sample, q.gold_for FROM questions q INDEXED BY questions_next WHERE q.{OPEN} AND q.gold_for IS NULL
 AND NOT EXISTS (SELECT 1 FROM claims m WHERE m.question = q.id AND m.annotator = :me AND m.until >= :now)
 AND NOT EXISTS (SELECT 1 FROM answers a WHERE a.sample = q.sample AND a.annotator = :me AND a.retracted_at IS NULL)
 AND NOT EXISTS (SELECT 1 FROM looked l WHERE l.sample = q.sample AND l.annotator = :me)
 AND q.votes + (SELECT COUNT(*) FROM claims c WHERE c.question = q.id AND c.annotator <> :me AND c.until >= :now
                AND (c.shown OR c.until >= :quiet OR NOT :steal)) < q.wanted
 ORDER BY q.id LIMIT :count
"""


PREDICTED = """
EXISTS (SELECT 1 FROM questions p WHERE p.sample = g.sample AND p.gold_for IS NULL AND p.thoughts <> '[]')
"""
"""Whether the model's prediction for a gold sample is known, as it was asked for once."""


def question(db: sqlite3.Connection, number: int) -> dict[str, Any]:
    """A question as a page needs it."""
    row = db.execute(
        "SELECT q.*, s.name, b.columns FROM questions q JOIN samples s ON s.id = q.sample"
        " LEFT JOIN about b ON b.sample = q.sample WHERE q.id = ?",
        (number,),
    ).fetchone()
    found = disguised(db, {name: row[name] for name in (*KEEP, "name", "thoughts")})
    found["thoughts"] = json.loads(found["thoughts"])
    return found | {"about": json.loads(row["columns"]) if row["columns"] else {}}


def disguised(db: sqlite3.Connection, asked: dict[str, Any]) -> dict[str, Any]:
    """A second opinion as an ordinary question: nobody shall know that the sample has an answer, and a doubted one.

    It looks like the question that the sample was first asked by or, if there is none, like the newest ordinary one.
    """
    if asked["strategy"] != SECOND_OPINION:
        return asked
    plain = (
        "SELECT strategy, ev, score, thoughts, sample = :sample AS own FROM questions"
        " WHERE strategy <> :again AND gold_for IS NULL"
    )
    values = {"sample": asked["sample"], "again": SECOND_OPINION}
    row = db.execute(f"{plain} AND sample = :sample ORDER BY id DESC LIMIT 1", values).fetchone()
    row = row or db.execute(f"{plain} ORDER BY id DESC LIMIT 1", values).fetchone()
    if row is None:
        return asked | {"strategy": "", "ev": 0, "score": None}
    seen = {name: row[name] for name in ("strategy", "ev", "score")}
    own = asked["thoughts"] if asked["thoughts"] not in (None, "[]") or not row["own"] else row["thoughts"]
    return asked | seen | {"thoughts": own}


class GoldRule(NamedTuple):
    """How gold questions are mixed in."""

    share: float
    predicted: bool
    """Whether the person sees the model's prediction before answering."""


def _asked(annotator: int, now: float, count: int) -> dict[str, float]:
    """What ``FREE`` asks for; a count of -1 is all."""
    return {"me": annotator, "now": now, "quiet": now + LEASE_SECONDS - QUIET_SECONDS, "steal": 0, "count": count}


class Claims:
    """Hands out questions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next_for(
        self,
        annotator: int,
        count: int,
        shown: int = 1,
        gold_share: float = 0.0,
        alive: bool = True,
        places: Mapping[int, int] | None = None,
        predicted: bool = False,
    ) -> list[dict[str, Any]]:
        """The annotator's next questions, oldest first; the first ``shown`` of them are on the screen.

        No two annotators get a question that wants one answer. Who has none left takes one that another, silent for
        a while, holds without having looked at it. A page that is not ``alive`` keeps what it has no longer.
        With ``places`` of samples, what is not on the screen comes by place instead, samples without one first. Where
        the annotator sees predictions before answering (``predicted``), gold questions have one if the others do.
        """
        now, gold = time.time(), GoldRule(gold_share, predicted)
        with self._database.transaction() as db:
            if places is None:
                mine = [row["id"] for row in self._held(db, annotator, count, now)]
            else:
                mine = self._by_place(db, annotator, count, now, gold, places)
            if len(mine) < count and (places is None or not mine):
                mine += self._new(db, annotator, count - len(mine), now, gold, steal=not mine)
            if alive or not mine:
                self._hold(db, annotator, mine, shown, now)
            return [question(db, number) for number in mine]

    def _held(self, db: sqlite3.Connection, annotator: int, count: int, now: float) -> list[sqlite3.Row]:
        return db.execute(
            "SELECT q.id, q.sample, q.gold_for, c.shown FROM claims c JOIN questions q ON q.id = c.question"
            f" WHERE c.annotator = ? AND c.until >= ? AND q.{OPEN}"
            " AND (q.votes < q.wanted OR q.gold_for IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM looked l WHERE l.sample = q.sample AND l.annotator = c.annotator)"
            " ORDER BY c.given_at, q.id LIMIT ?",
            (annotator, now, count),
        ).fetchall()

    def _by_place(
        self,
        db: sqlite3.Connection,
        annotator: int,
        count: int,
        now: float,
        gold: GoldRule,
        places: Mapping[int, int],
    ) -> list[int]:
        """What is on the screen, then the first by place of what the annotator holds or may be given."""
        held = self._held(db, annotator, -1, now)
        mine = [row["id"] for row in held if row["shown"]][:count]
        rest = [row for row in held if not row["shown"]]
        free = db.execute(FREE, _asked(annotator, now, -1)).fetchall()
        waiting = {row["id"]: -1 if row["gold_for"] else places.get(row["sample"], -1) for row in [*rest, *free]}
        first = sorted(waiting, key=lambda number: (waiting[number], number))[: count - len(mine)]
        new = {row["id"] for row in free}
        for number in first:
            mine += self._with_gold(db, annotator, [number], gold, now) if number in new else [number]
        return mine

    def _new(
        self, db: sqlite3.Connection, annotator: int, count: int, now: float, gold: GoldRule, steal: bool
    ) -> list[int]:
        asked = _asked(annotator, now, count)
        found = [row["id"] for row in db.execute(FREE, asked)]
        if not found and steal:
            found = [row["id"] for row in db.execute(FREE, asked | {"steal": 1, "count": 1})]
            db.executemany(
                "UPDATE claims SET until = 0 WHERE question = ? AND NOT shown AND annotator <> ?",
                [(number, annotator) for number in found],
            )
        return self._with_gold(db, annotator, found, gold, now)

    def _with_gold(
        self, db: sqlite3.Connection, annotator: int, found: list[int], gold: GoldRule, now: float
    ) -> list[int]:
        """Before each question perhaps one whose answer is known; which, depends on person and question alone."""
        share = gold.share
        if not share:
            return found
        mixed: list[int] = []
        for number in found:
            if fold(0, "gold", annotator, number) % 10_000 < 10_000 * share / (1 - share):
                mixed += self._gold(db, annotator, number, gold.predicted, now)
            mixed.append(number)
        return mixed

    def _gold(self, db: sqlite3.Connection, annotator: int, like: int, predicted: bool, now: float) -> list[int]:
        """A gold question that looks like another one; none where its missing prediction would tell it from others."""
        shown = bool(question(db, like)["thoughts"])
        row = db.execute(
            "SELECT g.sample FROM gold g WHERE NOT EXISTS"
            " (SELECT 1 FROM questions q WHERE q.gold_for = ? AND q.sample = g.sample)"
            " AND NOT EXISTS (SELECT 1 FROM answers a WHERE a.sample = g.sample AND a.annotator = ?)"
            f" AND (NOT ? OR {PREDICTED}) ORDER BY (g.sample * 7919 + ?) % 10007 LIMIT 1",
            (annotator, annotator, predicted and shown, annotator),
        ).fetchone()
        if row is None:
            return []
        made = db.execute(
            "INSERT INTO questions (sample, round, turn, strategy, ev, score, thoughts, asked_at, gold_for)"
            " SELECT ?, round, turn, strategy, ev, score, COALESCE((SELECT thoughts FROM questions WHERE sample = ?"
            " AND gold_for IS NULL AND thoughts <> '[]' AND ? ORDER BY id DESC LIMIT 1), '[]'), ?, ?"
            " FROM questions WHERE id = ?",
            (row["sample"], row["sample"], shown, now, annotator, like),
        )
        return [int(made.lastrowid or 0)]

    def _hold(self, db: sqlite3.Connection, annotator: int, mine: list[int], shown: int, now: float) -> None:
        before = db.execute("SELECT question FROM claims WHERE annotator = ? AND shown", (annotator,)).fetchall()
        db.execute("UPDATE claims SET shown = 0 WHERE annotator = ? AND shown", (annotator,))
        for place, number in enumerate(mine):
            db.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET until = excluded.until, shown = excluded.shown",
                (number, annotator, now + place * 1e-5, now + LEASE_SECONDS, int(place < shown)),  # keeps their order
            )
        for number in {row["question"] for row in before} | set(mine):
            db.execute(
                f"UPDATE questions SET state = CASE WHEN EXISTS (SELECT 1 FROM claims c WHERE c.question = questions.id"
                f" AND c.shown) THEN 'shown' ELSE 'waiting' END WHERE id = ? AND {OPEN}",
                (number,),
            )

    def give(self, number: int, annotator: int) -> None:
        """Put a question on somebody's screen, as after an undo."""
        now = time.time()
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE"
                " SET given_at = MIN(given_at, excluded.given_at), until = excluded.until, shown = 1",
                (number, annotator, now, now + LEASE_SECONDS),
            )

    def end(self, number: int, annotator: int) -> None:
        """This person has answered: the question is theirs no longer, but they were given it."""
        with self._database.transaction() as db:
            db.execute(
                "UPDATE claims SET until = 0, shown = 0 WHERE question = ? AND annotator = ?", (number, annotator)
            )

    def look(self, sample: int, annotator: int) -> bool:
        """This person sees what others answered: from here on nothing they say of this sample is blind.

        Returns whether it is the first time.
        """
        with self._database.transaction() as db:
            made = db.execute(
                "INSERT INTO looked VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (sample, annotator, time.time())
            )
            return made.rowcount > 0

    def has_looked(self, sample: int, annotator: int) -> bool:
        """Whether this person has seen what others answered to a sample."""
        query = "SELECT 1 FROM looked WHERE sample = ? AND annotator = ?"
        with self._database.reading() as db:
            return db.execute(query, (sample, annotator)).fetchone() is not None

    def was_given(self, sample: int, annotator: int) -> bool:
        """Whether a question about this sample was ever given to the annotator."""
        with self._database.reading() as db:
            return (
                db.execute(
                    "SELECT 1 FROM claims c JOIN questions q ON q.id = c.question"
                    " WHERE q.sample = ? AND c.annotator = ? LIMIT 1",
                    (sample, annotator),
                ).fetchone()
                is not None
            )
