"""What the inbox says when it is asked: progress, history, and all labels and answers with their annotators."""

from __future__ import annotations

import time
from typing import Any

from chase.annotation.opinions import COLLEAGUE
from chase.home.claims import disguised
from chase.home.schema import Database
from chase.home.verdicts import IN_FORCE

COLUMNS = """
a.id AS answer, a.question AS question_id, a.seconds, a.source, a.saw_model, a.unsure, a.comment,
q.round, q.turn, q.strategy, q.ev, q.score, q.thoughts
"""
LABELS = f"""
SELECT v.sample, s.name, v.label, v.reason, v.by AS annotator, v.rule, a.answered_at, {COLUMNS}
FROM verdicts v
JOIN (SELECT sample, MAX(id) AS id FROM verdicts WHERE retracted_at IS NULL GROUP BY sample) last ON last.id = v.id
JOIN samples s ON s.id = v.sample
LEFT JOIN answers a ON a.id = v.answer
LEFT JOIN questions q ON q.id = a.question
"""
ANSWERS = f"""
SELECT a.sample, s.name, a.label, a.reason, p.name AS annotator, a.answered_at, a.decides, q.gold_for, {COLUMNS}
FROM answers a
JOIN annotators p ON p.id = a.annotator
JOIN samples s ON s.id = a.sample
LEFT JOIN questions q ON q.id = a.question
WHERE a.retracted_at IS NULL
"""
NEWEST = """
 AND NOT EXISTS (SELECT 1 FROM answers b WHERE b.sample = a.sample AND b.annotator = a.annotator
                 AND b.question IS a.question AND b.id > a.id AND b.retracted_at IS NULL)
"""


class Ledger:
    """Reads an inbox."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_count(self) -> int:
        """Questions that wait for a person."""
        counts = self.counts()
        return counts["waiting"] + counts["shown"]

    def counts(self) -> dict[str, int]:
        """Questions by state."""
        names = ("waiting", "shown", "answered", "skipped", "expired")
        with self._database.reading() as db:
            rows = db.execute("SELECT state, SUM(n) AS n FROM tallies GROUP BY state").fetchall()
        return dict.fromkeys(names, 0) | {row["state"]: row["n"] for row in rows}

    def progress(self, annotator: int) -> dict[str, Any]:
        """This round and in all: how many are done of how many, and how many this annotator did.

        Gold questions count for the one who got them, so that the figures do not tell them from others.
        """
        total = self.counts()
        day = time.time() - time.time() % 86400
        with self._database.reading() as db:
            newest = db.execute("SELECT COALESCE(MAX(round), 0) FROM tallies").fetchone()[0]
            rows = db.execute("SELECT state, n FROM tallies WHERE round = ?", (newest,)).fetchall()
            golds = db.execute("SELECT round, state FROM questions WHERE gold_for = ?", (annotator,)).fetchall()
            mine, today = db.execute(
                "SELECT COUNT(DISTINCT sample), COUNT(DISTINCT CASE WHEN answered_at >= ? THEN sample END)"
                " FROM answers WHERE annotator = ? AND retracted_at IS NULL AND reason <> ?",
                (day, annotator, COLLEAGUE),
            ).fetchone()
        now = {row["state"]: row["n"] for row in rows}
        for row in golds:
            total[row["state"]] += 1
            if row["round"] == newest:
                now[row["state"]] = now.get(row["state"], 0) + 1
        return {
            "round": newest,
            "round_done": now.get("answered", 0) + now.get("skipped", 0),
            "round_asked": sum(now.values()) - now.get("expired", 0),
            "open": total["waiting"] + total["shown"],
            "answered": total["answered"],
            "skipped": total["skipped"],
            "expired": total["expired"],
            "mine": mine,
            "today": today,
        }

    def history(
        self, annotator: int, before: int, limit: int, words: str = "", labels: str = ""
    ) -> list[dict[str, Any]]:
        """The annotator's answers in force, newest first, from before answer number ``before``.

        With ``words``, those whose file name, comment, reason or number holds them all, or whose class number is in
        the comma-separated ``labels``.
        """
        query = ANSWERS + NEWEST + " AND a.annotator = ? AND a.id < ? AND a.source = 'page'"
        values: list[Any] = [annotator, before]
        if words:
            text = "lower(s.name || ' ' || a.comment || ' ' || a.reason || ' sample ' || a.sample)"
            parts = words.lower().split()
            every = " AND ".join([f"instr({text}, ?) > 0"] * len(parts))
            query += f" AND ({every} OR instr(',' || ? || ',', ',' || a.label || ',') > 0)"
            values += [*parts, labels]
        with self._database.reading() as db:
            rows = db.execute(query + " ORDER BY a.id DESC LIMIT ?", (*values, limit)).fetchall()
            shown = [disguised(db, dict(row)) for row in rows]
        return [{key: value for key, value in row.items() if key != "gold_for"} for row in shown]

    def labels(self) -> list[dict[str, Any]]:
        """Every label in force, by sample."""
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(LABELS + "ORDER BY v.sample")]

    def answers(self) -> list[dict[str, Any]]:
        """Every person's answer in force to every sample, by sample; gold questions apart."""
        with self._database.reading() as db:
            return [
                dict(row) for row in db.execute(ANSWERS + NEWEST + " AND q.gold_for IS NULL ORDER BY a.sample, a.id")
            ]

    def answered_at(self, answer: int) -> float:
        """When an answer was given."""
        with self._database.reading() as db:
            return float(db.execute("SELECT answered_at FROM answers WHERE id = ?", (answer,)).fetchone()[0])

    def votes(self) -> list[tuple[int, str, int]]:
        """(sample, annotator, class) of every opinion in force; decisions, skips and labels from the start apart."""
        query = (
            IN_FORCE + " AND a.label IS NOT NULL AND NOT a.decides AND a.source <> 'initial' ORDER BY a.sample, a.id"
        )
        with self._database.reading() as db:
            return [(row["sample"], row["name"], row["label"]) for row in db.execute(query)]

    def open_questions(self) -> list[dict[str, Any]]:
        """Every question that waits for a person, oldest first."""
        query = (
            "SELECT q.id, q.sample, s.name, q.round, q.turn, q.strategy, q.ev, q.score, q.thoughts FROM questions q"
            " JOIN samples s ON s.id = q.sample WHERE q.state IN ('waiting', 'shown')"
            " AND q.gold_for IS NULL ORDER BY q.id"
        )
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(query)]
