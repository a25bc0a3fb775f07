"""The audit log: who did what, when, having seen what. It is append-only, and a hash chain shows tampering.

Each line's hash covers the line and the hash before it, so a line that was changed, removed or slipped in breaks
the chain from there on. Whoever can write the file could write a whole new chain: an exported copy of the last hash,
kept elsewhere, shows that too (``verify`` takes it). Lines name samples by number and hold no content, so they stay
when a sample is removed for good.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

from chase.core.errors import LabelError
from chase.home.schema import Database

BEGIN = "0" * 64


def line_hash(before: str, at: float, who: str, what: str, sample: int | None, detail: str) -> str:
    """The hash of a line that follows one with hash ``before``."""
    text = json.dumps([before, f"{at:.6f}", who, what, sample, detail], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Audit:
    """Writes and reads the log of a home."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, who: str, what: str, sample: int | None = None, **detail: Any) -> None:
        """Append a line, in the caller's transaction if there is one."""
        at, text = round(time.time(), 6), json.dumps(detail, sort_keys=True, ensure_ascii=False)
        with self._database.transaction() as db:
            row = db.execute("SELECT hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
            chained = line_hash(BEGIN if row is None else row["hash"], at, who, what, sample, text)
            db.execute(
                "INSERT INTO audit (at, who, what, sample, detail, hash) VALUES (?, ?, ?, ?, ?, ?)",
                (at, who, what, sample, text, chained),
            )

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every line, oldest first."""
        with self._database.reading() as db:
            rows = db.execute("SELECT * FROM audit ORDER BY id").fetchall()
        for row in rows:
            yield dict(row) | {"detail": json.loads(row["detail"])}

    def verify(self, last: str = "") -> tuple[int, str]:
        """How many lines there are and the last hash; a broken chain, or one without hash ``last``, is refused."""
        before, count, seen = BEGIN, 0, not last or last == BEGIN
        with self._database.reading() as db:
            rows = db.execute("SELECT * FROM audit ORDER BY id").fetchall()
        for row in rows:
            count += 1
            hashed = line_hash(before, row["at"], row["who"], row["what"], row["sample"], row["detail"])
            if hashed != row["hash"] or row["id"] != count:
                raise LabelError(
                    f"the audit log was tampered with: line {count} does not follow from the line before it"
                )
            before, seen = hashed, seen or hashed == last
        if not seen:
            raise LabelError(
                f"the audit log was tampered with: none of its {count} lines has the hash {last} it once ended with"
            )
        return count, before
