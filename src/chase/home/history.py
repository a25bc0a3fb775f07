"""What the inbox says when it is asked: progress, history, and all labels with their annotators."""

from __future__ import annotations

from typing import Any

from chase.home.schema import Database

FULL = """
SELECT a.id AS answer, a.sample, s.name, a.label, a.reason, p.name AS annotator, a.answered_at, a.seconds,
       a.source, a.saw_model, q.round, q.turn, q.strategy, q.ev, q.score, q.thoughts
FROM answers a
JOIN (SELECT sample, MAX(id) AS id FROM answers WHERE retracted_at IS NULL GROUP BY sample) last ON last.id = a.id
JOIN annotators p ON p.id = a.annotator
JOIN samples s ON s.id = a.sample
LEFT JOIN questions q ON q.id = a.question
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
        """This round and in all: how many are done of how many, and how many this annotator did."""
        total = self.counts()
        with self._database.reading() as db:
            newest = db.execute("SELECT COALESCE(MAX(round), 0) FROM tallies").fetchone()[0]
            rows = db.execute("SELECT state, n FROM tallies WHERE round = ?", (newest,)).fetchall()
            mine = db.execute(
                "SELECT COUNT(DISTINCT sample) FROM answers WHERE annotator = ? AND retracted_at IS NULL", (annotator,)
            ).fetchone()[0]
        now = {row["state"]: row["n"] for row in rows}
        return {
            "round": newest,
            "round_done": now.get("answered", 0) + now.get("skipped", 0),
            "round_asked": sum(now.values()) - now.get("expired", 0),
            "open": total["waiting"] + total["shown"],
            "answered": total["answered"],
            "skipped": total["skipped"],
            "expired": total["expired"],
            "mine": mine,
        }

    def history(self, annotator: int, before: int, limit: int) -> list[dict[str, Any]]:
        """The annotator's answers in force, newest first, from before answer number ``before``."""
        query = FULL + "WHERE a.annotator = ? AND a.id < ? AND a.source = 'page' ORDER BY a.id DESC LIMIT ?"
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(query, (annotator, before, limit))]

    def labels(self) -> list[dict[str, Any]]:
        """Every answer in force, by sample."""
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(FULL + "ORDER BY a.sample")]

    def open_questions(self) -> list[dict[str, Any]]:
        """Every question that waits for a person, oldest first."""
        query = (
            "SELECT q.id, q.sample, s.name, q.round, q.turn, q.strategy, q.ev, q.score, q.thoughts FROM questions q"
            " JOIN samples s ON s.id = q.sample WHERE q.state IN ('waiting', 'shown') ORDER BY q.id"
        )
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(query)]
