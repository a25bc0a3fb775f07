"""The inbox of one client: what is asked, what was answered.

One SQLite file that the training side and the page share. A question goes

    waiting -> shown -> answered | skipped          (expired, when it waited too many turns)

and answers are a log: a correction is a new line, and each person's newest line that was not retracted is in force.
Every answer, typed on the page or imported from a file, enters through ``Inbox.answer`` with the same checks: a known
sample, a known class, not answered already. ``verdicts`` makes one label of them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chase.annotation.annotator import Answer, Question
from chase.annotation.opinions import COLLEAGUE, votes_of
from chase.core.errors import LabelError
from chase.core.randomness import fold
from chase.home.claims import OPEN, Claims, question
from chase.home.live import LiveOrder
from chase.home.policy import Policies
from chase.home.schema import Database
from chase.home.verdicts import Verdicts

SKIPS = ("cannot tell", "bad sample")
"""Why a person may skip a sample; either sets it aside."""
REASONS = (*SKIPS, COLLEAGUE)
"""Why an answer may name no class."""


class AnswerRefused(LabelError):
    """An answer that was refused; ``kind`` says which check."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Given:
    """An answer before the inbox has checked it."""

    sample: int
    label: int | None
    """None for a skip, with one of ``REASONS`` as the reason."""
    annotator: int
    reason: str = ""
    seconds: float | None = None
    """How long the person took."""
    source: str = "page"
    key: str | None = None
    """A mark of the sender's own: the same key is stored once however often it is sent."""
    batch: str | None = None
    """Answers that were given together are undone together."""
    revise: bool = False
    saw_model: bool = False
    answered_at: float | None = None
    question: int | None = None
    """The question that it answers, where the sender knows it."""
    unsure: bool = False
    """The class is provisional: the person is not sure."""
    comment: str = ""
    decides: bool = False
    """An adjudicator's decision: it is the label, whatever others say."""
    another: bool = False
    """One opinion more, although there are enough."""
    seen: str = ""
    """A hash of what was on the screen."""


class Inbox:
    """Questions out, answers in."""

    def __init__(self, database: Database, num_classes: int) -> None:
        self.database, self.num_classes = database, num_classes
        self.policies = Policies(database)
        self.claims = Claims(database)
        self.live = LiveOrder(database)
        self.verdicts = Verdicts(database, num_classes, self.policies)

    # samples

    def add_samples(self, names: Mapping[int, str]) -> None:
        """Make samples known; a name is what a person would call it, such as a file name."""
        with self.database.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?)", names.items())

    def describe(self, about: Mapping[int, Mapping[str, str]]) -> None:
        """What people should see beside samples: columns of a table, by name."""
        with self.database.transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?)",
                [(sample, json.dumps(dict(columns), ensure_ascii=False)) for sample, columns in about.items()],
            )

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
        """File questions. One that is open, or answered but not yet read by the client, is left as it is."""
        filed, now, policy = 0, time.time(), self.policies.read()
        with self.database.transaction() as db:
            for q in questions:
                if not q.again and self.verdicts.is_fresh(q.sample):
                    continue
                often = fold(0, "overlap", q.sample) % 10_000 < 10_000 * policy.overlap
                made = db.execute(
                    "INSERT INTO questions (sample, round, turn, strategy, ev, score, thoughts, asked_at, wanted)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (
                        *(q.sample, q.round, q.turn, q.strategy, q.ev, q.score, json.dumps(q.thoughts), now),
                        policy.answers_per_sample if often else 1,
                    ),
                ).rowcount
                filed += made
                if made and self.verdicts.opinions(q.sample):
                    self._count_earlier(db, q)
        return filed

    def _count_earlier(self, db: sqlite3.Connection, asked: Question) -> None:
        """A sample asked again keeps the answers it has; a second opinion is one more than those."""
        if asked.again:
            votes = len(votes_of(self.verdicts.opinions(asked.sample)))
            db.execute(
                f"UPDATE questions SET wanted = MAX(wanted, ?), votes = ? WHERE sample = ? AND {OPEN}",
                (votes + 1, votes, asked.sample),
            )
        else:
            self.verdicts.settle(asked.sample)

    def expire(self, samples: Sequence[int]) -> None:
        """Close questions that nobody answered in time; a late answer is still welcome."""
        with self.database.transaction() as db:
            db.executemany(
                f"UPDATE questions SET state = 'expired' WHERE sample = ? AND {OPEN} AND gold_for IS NULL",
                [(sample,) for sample in samples],
            )

    def hand_out(self, after: int) -> tuple[list[Answer], int]:
        """The labels later than number ``after``, and the number of the last."""
        return self.verdicts.hand_out(after)

    def mark(self, key: str) -> int:
        """How far labels are "taken" or "handed"."""
        return self.verdicts.mark(key)

    def set_taken(self, upto: int) -> None:
        """Labels up to this number are part of the committed state."""
        self.verdicts.set_taken(upto)

    # the people's side

    def next_for(
        self, annotator: int, count: int, shown: int = 1, alive: bool = True, predicted: bool = False
    ) -> list[dict[str, Any]]:
        """The annotator's next questions; the first ``shown`` of them are on the screen.

        ``predicted``: the annotator sees the model's prediction before answering.
        """
        places = self.live.places()
        if places is not None:  # what is fetched ahead would not know the answers until then
            count = max(1, min(count, shown))
        share = self.policies.read().gold_share
        return self.claims.next_for(annotator, count, shown, share, alive, places, predicted)

    def question_of(self, sample: int, annotator: int | None = None) -> dict[str, Any] | None:
        """The latest question for a sample; with an annotator, one that is for them alone comes first."""
        with self.database.reading() as db:
            row = db.execute(
                "SELECT id FROM questions WHERE sample = ? AND (gold_for IS NULL OR gold_for = ?)"
                " ORDER BY gold_for IS NULL, id DESC LIMIT 1",
                (sample, annotator),
            ).fetchone()
            return None if row is None else question(db, int(row["id"]))

    def current(self, sample: int) -> dict[str, Any] | None:
        """The label in force for a sample."""
        return self.verdicts.current(sample)

    def answer(self, given: Given) -> int:
        """Check an answer and store it; returns its number."""
        with self.database.transaction() as db:
            if given.key is not None:
                known = db.execute("SELECT id FROM answers WHERE key = ?", (given.key,)).fetchone()
                if known is not None:
                    return int(known["id"])
            row = self._question_for(db, given)
            is_gold = row is not None and row["gold_for"] is not None
            self._check(given, is_gold, row)
            number = self._insert(db, given, row)
            if row is not None:
                self.claims.end(row["id"], given.annotator)
            if is_gold:
                done = "skipped" if given.label is None else "answered"
                db.execute("UPDATE questions SET state = ? WHERE id = ?", (done, row["id"] if row is not None else 0))
            else:
                self.verdicts.settle(given.sample)
            return number

    def _question_for(self, db: sqlite3.Connection, given: Given) -> sqlite3.Row | None:
        """The question that an answer is for: the one it names, else the sample's latest."""
        row: sqlite3.Row | None = None
        if given.question is not None:
            row = db.execute(
                "SELECT * FROM questions WHERE id = ? AND sample = ? AND (gold_for IS NULL OR gold_for = ?)",
                (given.question, given.sample, given.annotator),
            ).fetchone()
        if row is None:
            row = db.execute(
                "SELECT * FROM questions WHERE sample = ? AND gold_for IS NULL ORDER BY id DESC LIMIT 1",
                (given.sample,),
            ).fetchone()
        return row

    def answer_all(self, given: Sequence[Given]) -> list[int]:
        """Several answers, all or none."""
        with self.database.transaction():
            return [self.answer(one) for one in given]

    def _check(self, given: Given, is_gold: bool, asked: sqlite3.Row | None) -> None:
        if self.sample_name(given.sample) is None:
            raise AnswerRefused("unknown sample", f"sample {given.sample} is not one of this client's")
        if given.label is None and given.reason not in REASONS:
            raise AnswerRefused(
                "unknown reason", f"a skip needs a reason, one of {' or '.join(REASONS)}, not '{given.reason}'"
            )
        if given.label is not None and not 0 <= given.label < self.num_classes:
            raise AnswerRefused(
                "unknown class",
                f"class {given.label} for sample {given.sample}: classes are 0 to {self.num_classes - 1}",
            )
        if is_gold and asked is not None:
            if asked["state"] in ("answered", "skipped") and not given.revise:
                raise AnswerRefused("already answered", f"sample {given.sample} was answered already, by you")
        elif not given.decides and not given.another:
            self._check_room(given, asked)

    def _check_room(self, given: Given, asked: sqlite3.Row | None) -> None:
        """Whether one more answer is wanted, or this corrects the person's own."""
        opinions = self.verdicts.opinions(given.sample)
        mine = any(one.annotator == given.annotator for one in opinions)
        if mine and given.revise:
            return
        if mine:
            raise AnswerRefused("already answered", f"sample {given.sample} was answered already, by you")
        current = self.current(given.sample)
        if current is None or (given.source != "page" and given.revise):
            return
        if asked is not None and asked["state"] in ("waiting", "shown"):
            return
        if given.revise:
            raise AnswerRefused(
                "already answered",
                f"sample {given.sample} was answered by {current['by']}, and only that person may correct it",
            )
        raise AnswerRefused("already answered", f"sample {given.sample} was answered already, by {current['by']}")

    def _insert(self, db: sqlite3.Connection, given: Given, asked: sqlite3.Row | None) -> int:
        at = time.time() if given.answered_at is None else given.answered_at
        mine = any(one.annotator == given.annotator for one in self.verdicts.opinions(given.sample))
        corrects = given.source == "import" and given.revise and not mine and self.current(given.sample) is not None
        values = {
            "sample": given.sample,
            "question": None if asked is None else asked["id"],
            "was": None if asked is None else asked["state"],
            "label": given.label,
            "reason": "" if given.label is not None else given.reason,
            "annotator": given.annotator,
            "answered_at": at,
            "seconds": given.seconds,
            "saw_model": int(given.saw_model),
            "source": given.source,
            "key": given.key,
            "batch": given.batch,
            "unsure": int(given.unsure and given.label is not None),
            "comment": given.comment,
            "decides": int(given.decides or corrects),
            "seen": given.seen,
        }
        marks = ", ".join("?" * len(values))
        made = db.execute(f"INSERT INTO answers ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
        return int(made.lastrowid or 0)

    def undo(self, annotator: int, before: int | None = None) -> list[dict[str, Any]]:
        """Take back the annotator's last stroke on the page, or the last one before answer ``before``.

        An answer whose label training may be using already stands until another replaces it ("stands"); any other
        is retracted, and its question is on the annotator's screen again.
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
        asked = db.execute("SELECT id, gold_for FROM questions WHERE id = ?", (row["question"],)).fetchone()
        is_gold = asked is not None and asked["gold_for"] is not None
        current = self.current(row["sample"])
        in_use = not is_gold and current is not None and current["id"] <= self.mark("handed")
        if not in_use:
            self._retract(db, row, is_gold)
        mine = any(one.annotator == row["annotator"] for one in self.verdicts.opinions(row["sample"]))
        return {
            "answer": row["id"],
            "sample": row["sample"],
            "label": row["label"],
            "reason": row["reason"],
            "stands": not is_gold and (in_use or mine),
            "question": self.question_of(row["sample"], row["annotator"] if is_gold else None),
        }

    def _retract(self, db: sqlite3.Connection, row: sqlite3.Row, is_gold: bool) -> None:
        db.execute("UPDATE answers SET retracted_at = ? WHERE id = ?", (time.time(), row["id"]))
        if row["question"] is None:
            self.verdicts.settle(row["sample"])
            return
        if row["was"] in ("waiting", "shown"):
            self.claims.give(row["question"], row["annotator"])
        if is_gold:
            db.execute("UPDATE questions SET state = 'shown' WHERE id = ?", (row["question"],))
            return
        self.verdicts.settle(row["sample"])
        if row["was"] == "expired" and self.current(row["sample"]) is None:
            db.execute("UPDATE questions SET state = 'expired' WHERE id = ?", (row["question"],))
