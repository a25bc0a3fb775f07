"""Annotators, their links and their sessions.

A link carries a token that is good once and for a day; it is exchanged for a session, which
lives in the same SQLite file and so survives a restart of the page. Only hashes are stored: who reads the
file cannot enter with what it says.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, replace

from chase.core.errors import LabelError
from chase.home.schema import Database

TOKEN_SECONDS = 24 * 3600.0
SESSION_SECONDS = 30 * 24 * 3600.0
"""A session ends when it has not been used for so long."""
SEEN_STEP = 60.0
REVEAL = ("after", "before", "never")
"""When an annotator sees the model's prediction."""
ROLES = ("annotator", "adjudicator", "lead")
"""Annotators answer; adjudicators also decide conflicts; leads also see everybody and set the policy."""
LONGEST_NAME = 80
PRESENT = """
SELECT p.id FROM annotators p WHERE NOT p.away AND (
  NOT EXISTS (SELECT 1 FROM tokens t WHERE t.annotator = p.id AND t.used_at IS NULL AND t.expires_at < :now)
  OR EXISTS (SELECT 1 FROM tokens t WHERE t.annotator = p.id AND t.used_at IS NULL AND t.expires_at >= :now)
  OR EXISTS (SELECT 1 FROM sessions s WHERE s.annotator = p.id)
  OR EXISTS (SELECT 1 FROM answers a WHERE a.annotator = p.id))
"""


@dataclass(frozen=True)
class Person:
    """An annotator."""

    id: int
    name: str
    reveal: str
    role: str = "annotator"

    @property
    def decides(self) -> bool:
        """Whether this person may settle conflicts and so see what others answered."""
        return self.role != "annotator"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class People:
    """Who may label."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def named(self, name: str, comes: bool = True) -> Person:
        """The annotator of a name, new if need be; a new one who does not come is known from a file only."""
        name = " ".join(name.split())
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise LabelError(f"an annotator's name is 1 to {LONGEST_NAME} printable characters, not {name[:99]!r}")
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO annotators (name, created_at, away) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (name, time.time(), int(not comes)),
            )
            row = db.execute("SELECT id, name, reveal, role FROM annotators WHERE name = ?", (name,)).fetchone()
        return Person(**dict(row))

    def everybody(self) -> list[Person]:
        """All annotators, by name."""
        with self._database.reading() as db:
            rows = db.execute("SELECT id, name, reveal, role FROM annotators ORDER BY name").fetchall()
        return [Person(**dict(row)) for row in rows]

    def present(self) -> set[int]:
        """Who can come: not those whose access was ended, whose only link has expired, or whom only a file names."""
        with self._database.reading() as db:
            return {row["id"] for row in db.execute(PRESENT, {"now": time.time()})}

    def comes(self, person: int) -> None:
        """This person can come from here on."""
        with self._database.transaction() as db:
            db.execute("UPDATE annotators SET away = 0 WHERE id = ?", (person,))

    def set_role(self, name: str, role: str) -> Person:
        """Make somebody an annotator, an adjudicator or a lead; who is new can come once there is a link for them."""
        if role not in ROLES:
            raise LabelError(f"a role is one of {', '.join(ROLES)}; not '{role}'")
        person = self.named(name, comes=False)
        with self._database.transaction() as db:
            db.execute("UPDATE annotators SET role = ? WHERE id = ?", (role, person.id))
        return replace(person, role=role)

    def set_reveal(self, person: int, reveal: str) -> None:
        """When this annotator sees the model's prediction."""
        if reveal not in REVEAL:
            raise LabelError(f"the model's prediction is shown {', '.join(REVEAL)}; not '{reveal}'")
        with self._database.transaction() as db:
            db.execute("UPDATE annotators SET reveal = ? WHERE id = ?", (reveal, person))

    def invite(self, name: str) -> str:
        """A token for one entry, to be put in a link."""
        person, token = self.named(name), secrets.token_urlsafe(24)
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM tokens WHERE expires_at < ? AND (used_at IS NOT NULL OR annotator = ?)",
                (time.time(), person.id),
            )
            self.comes(person.id)
            db.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, NULL)", (_hash(token), person.id, time.time() + TOKEN_SECONDS)
            )
        return token

    def enter(self, token: str) -> str:
        """Exchange a token for a session; a token is good once."""
        now, session = time.time(), secrets.token_urlsafe(32)
        with self._database.transaction() as db:
            row = db.execute("SELECT * FROM tokens WHERE hash = ?", (_hash(token),)).fetchone()
            if row is None or row["expires_at"] < now:
                raise LabelError("this link is unknown or has expired: ask for a new one")
            if row["used_at"] is not None:
                raise LabelError("this link has been used already: ask for a new one")
            db.execute("UPDATE tokens SET used_at = ? WHERE hash = ?", (now, row["hash"]))
            db.execute("DELETE FROM sessions WHERE seen_at < ?", (now - SESSION_SECONDS,))
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (_hash(session), row["annotator"], now, now))
        return session

    def whose(self, session: str, active: bool = True, idle: float = 0.0, longest: float = 0.0) -> Person | None:
        """Whose session this is, None if it is none or has ended.

        It ends when unused for ``idle`` seconds or ``longest`` after it began, where these are given; a page that only
        looks for new questions (not ``active``) does not use it.
        """
        now = time.time()
        with self._database.reading() as db:
            row = db.execute(
                "SELECT p.id, p.name, p.reveal, p.role, s.seen_at, s.began_at FROM sessions s"
                " JOIN annotators p ON p.id = s.annotator WHERE s.hash = ? AND s.seen_at >= ? AND s.began_at >= ?",
                (_hash(session), now - min(idle or SESSION_SECONDS, SESSION_SECONDS), now - longest if longest else 0),
            ).fetchone()
        if row is None:
            return None
        if active and now - row["seen_at"] > min(SEEN_STEP, idle / 4 or SEEN_STEP):
            with self._database.transaction() as db:
                db.execute("UPDATE sessions SET seen_at = ? WHERE hash = ?", (now, _hash(session)))
        return Person(row["id"], row["name"], row["reveal"], row["role"])

    def leave(self, session: str) -> None:
        """End a session."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM sessions WHERE hash = ?", (_hash(session),))

    def revoke(self, name: str) -> int:
        """End an annotator's sessions and unused links; returns how many. The answers stay, open questions go free."""
        called = " ".join(name.split())
        with self._database.transaction() as db:
            row = db.execute("SELECT id FROM annotators WHERE name = ?", (called,)).fetchone()
            if row is None:
                known = ", ".join(r["name"] for r in db.execute("SELECT name FROM annotators ORDER BY name"))
                raise LabelError(f"there is no annotator '{called}'; annotators: {known or 'none'}")
            sessions = db.execute("DELETE FROM sessions WHERE annotator = ?", (row["id"],)).rowcount
            links = "DELETE FROM tokens WHERE annotator = ? AND used_at IS NULL"
            unused = db.execute(links, (row["id"],)).rowcount
            db.execute(
                "UPDATE questions SET state = 'waiting' WHERE state = 'shown'"
                " AND id IN (SELECT question FROM claims WHERE annotator = ? AND shown)",
                (row["id"],),
            )
            db.execute("UPDATE claims SET until = 0, shown = 0 WHERE annotator = ?", (row["id"],))
            db.execute("UPDATE annotators SET away = 1 WHERE id = ?", (row["id"],))
        return int(sessions + unused)
