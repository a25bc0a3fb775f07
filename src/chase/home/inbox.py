"""The inbox of one client: what is asked, what was answered.

One SQLite file that the training side and the page share. A question goes

    waiting -> shown -> answered | skipped          (expired, when it waited too many turns)

and answers are a log: a correction is a new line, and the newest line of a sample that was not
retracted is in force. Every answer, typed on the page or imported from a file, enters
through ``Inbox.answer`` with the same checks: a known sample, a known class, not answered already.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chase.annotation.annotator import Answer, Question
from chase.core.errors import LabelError
from chase.home.schema import Database

SKIPS = ("cannot tell", "bad sample")
"""Why a person may skip a sample; either sets it aside."""
LEASE_SECONDS = 300.0
"""How long a question stays with the annotator it was given to, from the last sign of life."""
OPEN = "state IN ('waiting', 'shown')"


class AnswerRefused(LabelError):
    """An answer that the door turned away; ``kind`` says which check."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Given:
    """An answer at the door."""

    sample: int
    label: int | None
    """None for a skip, with one of ``SKIPS`` as the reason."""
    annotator: int
    reason: str = ""
    seconds: float | None = None
    """How long the person took."""
    source: str = "page"
    key: str | None = None
    """A mark of the sender's own: the same key is taken in once however often it is sent."""
    batch: str | None = None
    """Answers of one stroke are undone together."""
    revise: bool = False
    saw_model: bool = False
    answered_at: float | None = None


class Inbox:
    """Questions out, answers in."""

    def __init__(self, database: Database, num_classes: int) -> None:
        self.database, self.num_classes = database, num_classes

    # samples

    def add_samples(self, names: Mapping[int, str]) -> None:
        """Make samples known; a name is what a person would call it, such as a file name."""
        with self.database.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?)", names.items())

    def sample_name(self, sample: int) -> str | None:
        """The name of a sample, None if it is not this client's."""
        with self.database.reading() as db:
            row = db.execute("SELECT name FROM samples WHERE id = ?", (sample,)).fetchone()
        return None if row is None else str(row["name"])

    def sample_named(self, name: str) -> int | None:
        """The sample of a name, None if there is none or more than one."""
        with self.database.reading() as db:
            rows = db.execute("SELECT id FROM samples WHERE name = ? LIMIT 2", (name,)).fetchall()
        return int(rows[0]["id"]) if len(rows) == 1 else None

    def was_asked(self, sample: int) -> bool:
        """Whether people were ever asked for this sample: only those are shown."""
        with self.database.reading() as db:
            return db.execute("SELECT 1 FROM questions WHERE sample = ? LIMIT 1", (sample,)).fetchone() is not None

    def was_answered(self, sample: int, annotator: int) -> bool:
        """Whether this annotator ever answered the sample, even if the answer was taken back."""
        query = "SELECT 1 FROM answers WHERE sample = ? AND annotator = ? LIMIT 1"
        with self.database.reading() as db:
            return db.execute(query, (sample, annotator)).fetchone() is not None

    # the training side

    def file(self, questions: Iterable[Question]) -> int:
        """File questions. One that is open, or answered but not taken in yet, is left as it is."""
        filed, now = 0, time.time()
        with self.database.transaction() as db:
            taken = self.mark("taken")
            for q in questions:
                fresh = db.execute(
                    "SELECT 1 FROM answers WHERE sample = ? AND id > ? AND retracted_at IS NULL", (q.sample, taken)
                ).fetchone()
                if fresh is not None:
                    continue
                filed += db.execute(
                    "INSERT INTO questions (sample, round, turn, strategy, ev, score, thoughts, asked_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (q.sample, q.round, q.turn, q.strategy, q.ev, q.score, json.dumps(q.thoughts), now),
                ).rowcount
        return filed

    def expire(self, samples: Sequence[int]) -> None:
        """Close questions that nobody answered in time; a late answer is still welcome."""
        with self.database.transaction() as db:
            db.executemany(
                f"UPDATE questions SET state = 'expired', held_by = NULL WHERE sample = ? AND {OPEN}",
                [(sample,) for sample in samples],
            )

    def hand_out(self, after: int) -> tuple[list[Answer], int]:
        """The answers in force later than number ``after``, oldest first, and the number of the last.

        What was handed out may be in use, so from here on an undo leaves it standing until it is replaced.
        """
        with self.database.transaction() as db:
            rows = db.execute(
                "SELECT a.sample, a.label, a.reason, p.name FROM answers a JOIN annotators p ON p.id = a.annotator"
                " WHERE a.id > ? AND a.retracted_at IS NULL ORDER BY a.id",
                (after,),
            ).fetchall()
            last = int(db.execute("SELECT COALESCE(MAX(id), 0) FROM answers").fetchone()[0])
            db.execute("UPDATE meta SET value = MAX(value, ?) WHERE key = 'handed'", (last,))
        return [Answer(r["sample"], r["label"], r["name"], r["reason"]) for r in rows], max(after, last)

    def mark(self, key: str) -> int:
        """How far answers are "taken" or "handed"."""
        with self.database.reading() as db:
            return int(db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def set_taken(self, upto: int) -> None:
        """Answers up to this number are part of the committed state."""
        with self.database.transaction() as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'taken'", (upto,))

    # the people's side

    def next_for(self, annotator: int, count: int, shown: int = 1) -> list[dict[str, Any]]:
        """The annotator's next questions, oldest first; the first ``shown`` of them are on the screen.

        Two annotators never get the same one. Who has none left takes one that another holds without seeing it.
        """
        now = time.time()
        with self.database.transaction() as db:
            mine = [
                r["id"]
                for r in db.execute(
                    f"SELECT id FROM questions INDEXED BY questions_held WHERE {OPEN} AND held_by = ?"
                    " ORDER BY id LIMIT ?",
                    (annotator, count),
                )
            ]
            if len(mine) < count:
                mine += self._free(db, annotator, count - len(mine), now, steal=not mine)
            db.execute(
                f"UPDATE questions SET state = 'waiting', held_until = ? WHERE {OPEN} AND held_by = ?"
                " AND state = 'shown'",
                (now + LEASE_SECONDS, annotator),
            )
            for place, question in enumerate(mine):
                db.execute(
                    "UPDATE questions SET state = ?, held_by = ?, held_until = ? WHERE id = ?",
                    ("shown" if place < shown else "waiting", annotator, now + LEASE_SECONDS, question),
                )
            return [self._question(db, question) for question in sorted(mine)]

    def _free(self, db: sqlite3.Connection, annotator: int, count: int, now: float, steal: bool) -> list[int]:
        # Oldest first along this index: sorting all that wait would take longer than all the rest.
        waiting = f"SELECT id FROM questions INDEXED BY questions_next WHERE {OPEN} AND held_by IS NOT ?"
        free = waiting + " AND (held_by IS NULL OR held_until < ?)"
        found = [r["id"] for r in db.execute(free + " ORDER BY id LIMIT ?", (annotator, now, count))]
        if not found and steal:
            unseen = waiting + " AND state = 'waiting' ORDER BY id DESC LIMIT 1"
            found = [r["id"] for r in db.execute(unseen, (annotator,))]
        return found

    def _question(self, db: sqlite3.Connection, question: int) -> dict[str, Any]:
        row = dict(db.execute("SELECT * FROM questions WHERE id = ?", (question,)).fetchone())
        keep = ("id", "sample", "round", "turn", "strategy", "ev", "score", "state")
        return {name: row[name] for name in keep} | {"thoughts": json.loads(row["thoughts"])}

    def question_of(self, sample: int) -> dict[str, Any] | None:
        """The latest question for a sample."""
        with self.database.reading() as db:
            row = db.execute("SELECT MAX(id) FROM questions WHERE sample = ?", (sample,)).fetchone()
            return None if row[0] is None else self._question(db, int(row[0]))

    def current(self, sample: int) -> dict[str, Any] | None:
        """The answer in force for a sample."""
        with self.database.reading() as db:
            row = db.execute(
                "SELECT a.*, p.name AS by FROM answers a JOIN annotators p ON p.id = a.annotator"
                " WHERE a.sample = ? AND a.retracted_at IS NULL ORDER BY a.id DESC LIMIT 1",
                (sample,),
            ).fetchone()
        return None if row is None else dict(row)

    def answer(self, given: Given) -> int:
        """The door: check an answer and keep it; returns its number."""
        with self.database.transaction() as db:
            if given.key is not None:
                known = db.execute("SELECT id FROM answers WHERE key = ?", (given.key,)).fetchone()
                if known is not None:
                    return int(known["id"])
            self._check(given)
            row = db.execute(
                "SELECT id, state FROM questions WHERE sample = ? ORDER BY id DESC LIMIT 1", (given.sample,)
            ).fetchone()
            number = self._insert(db, given, row)
            if row is not None:
                done = "skipped" if given.label is None else "answered"
                db.execute("UPDATE questions SET state = ?, held_by = NULL WHERE id = ?", (done, row["id"]))
            return number

    def answer_each(self, given: Sequence[Given]) -> list[int | AnswerRefused]:
        """Several answers in one transaction; one that is refused does not hold up the others."""
        with self.database.transaction():
            return [self._answer_or_refusal(one) for one in given]

    def _answer_or_refusal(self, given: Given) -> int | AnswerRefused:
        try:
            return self.answer(given)
        except AnswerRefused as refused:
            return refused

    def answer_all(self, given: Sequence[Given]) -> list[int]:
        """Several answers, all or none."""
        with self.database.transaction():
            return [self.answer(one) for one in given]

    def _check(self, given: Given) -> None:
        if self.sample_name(given.sample) is None:
            raise AnswerRefused("unknown sample", f"sample {given.sample} is not one of this client's")
        if given.label is None and given.reason not in SKIPS:
            raise AnswerRefused(
                "unknown reason", f"a skip needs a reason, one of {' or '.join(SKIPS)}, not '{given.reason}'"
            )
        if given.label is not None and not 0 <= given.label < self.num_classes:
            raise AnswerRefused(
                "unknown class",
                f"class {given.label} for sample {given.sample}: classes are 0 to {self.num_classes - 1}",
            )
        current = self.current(given.sample)
        if current is None:
            return
        if not given.revise:
            raise AnswerRefused("already answered", f"sample {given.sample} was answered already, by {current['by']}")
        if given.source == "page" and current["annotator"] != given.annotator:
            raise AnswerRefused(
                "already answered",
                f"sample {given.sample} was answered by {current['by']}, who alone may correct it here",
            )

    def _insert(self, db: sqlite3.Connection, given: Given, question: sqlite3.Row | None) -> int:
        at = time.time() if given.answered_at is None else given.answered_at
        return int(
            db.execute(
                "INSERT INTO answers (sample, question, was, label, reason, annotator, answered_at, seconds,"
                " saw_model, source, key, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    given.sample,
                    None if question is None else question["id"],
                    None if question is None else question["state"],
                    given.label,
                    "" if given.label is not None else given.reason,
                    given.annotator,
                    at,
                    given.seconds,
                    int(given.saw_model),
                    given.source,
                    given.key,
                    given.batch,
                ),
            ).lastrowid
            or 0
        )

    def undo(self, annotator: int, before: int | None = None) -> list[dict[str, Any]]:
        """Take back the annotator's last stroke on the page, or the last one before answer ``before``.

        An answer that training may be using already stands until another replaces it ("stands"); a
        younger one is retracted, and its question is on the annotator's screen again.
        """
        with self.database.transaction() as db:
            last = db.execute(
                "SELECT * FROM answers WHERE annotator = ? AND source = 'page' AND retracted_at IS NULL AND id < ?"
                " ORDER BY id DESC LIMIT 1",
                (annotator, 2**62 if before is None else before),
            ).fetchone()
            if last is None:
                return []
            stroke = [last]
            if last["batch"] is not None:
                stroke = db.execute(
                    "SELECT * FROM answers WHERE batch = ? AND annotator = ? AND retracted_at IS NULL ORDER BY id",
                    (last["batch"], annotator),
                ).fetchall()
            return [self._take_back(db, row) for row in stroke]

    def _take_back(self, db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
        stands = row["id"] <= self.mark("handed")
        if not stands:
            now = time.time()
            db.execute("UPDATE answers SET retracted_at = ? WHERE id = ?", (now, row["id"]))
            if row["question"] is not None:
                back = "shown" if row["was"] == "waiting" else row["was"]
                held = (row["annotator"], now + LEASE_SECONDS) if back == "shown" else (None, 0)
                db.execute(
                    "UPDATE questions SET state = ?, held_by = ?, held_until = ? WHERE id = ?",
                    (back, *held, row["question"]),
                )
        return {
            "answer": row["id"],
            "sample": row["sample"],
            "label": row["label"],
            "reason": row["reason"],
            "stands": stands or self.current(row["sample"]) is not None,
            "question": self.question_of(row["sample"]),
        }
