"""The SQLite file of an inbox: its tables, and how it is opened.

Write-ahead logging lets the page and the training side work at once; ``synchronous = FULL`` makes a
committed answer survive a power cut. Every change is one ``BEGIN IMMEDIATE`` transaction, so a
kill leaves all of it or nothing, and answers are numbered in the order in which they were committed.
"""

from __future__ import annotations

import secrets
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chase.core.errors import LabelError

FORMAT = 4
"""Version of the tables."""
BUSY_SECONDS = 30.0
LEAST_SPACE = 1 << 20
"""Bytes that SQLite needs for the files beside an inbox, with room to spare."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE INDEX samples_by_name ON samples (name);
CREATE TABLE annotators (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, reveal TEXT NOT NULL DEFAULT 'after', created_at REAL NOT NULL
);
CREATE TABLE tokens (
  hash TEXT PRIMARY KEY, annotator INTEGER NOT NULL REFERENCES annotators, expires_at REAL NOT NULL, used_at REAL
) WITHOUT ROWID;
CREATE TABLE sessions (
  hash TEXT PRIMARY KEY, annotator INTEGER NOT NULL REFERENCES annotators, seen_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE questions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sample INTEGER NOT NULL REFERENCES samples,
  round INTEGER NOT NULL, turn INTEGER NOT NULL, strategy TEXT NOT NULL,
  ev INTEGER NOT NULL, score REAL, thoughts TEXT NOT NULL DEFAULT '[]',
  state TEXT NOT NULL DEFAULT 'waiting'
    CHECK (state IN ('waiting', 'shown', 'answered', 'skipped', 'expired')),
  asked_at REAL NOT NULL,
  held_by INTEGER REFERENCES annotators, held_until REAL NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX questions_open ON questions (sample) WHERE state IN ('waiting', 'shown');
CREATE INDEX questions_next ON questions (id) WHERE state IN ('waiting', 'shown');
CREATE INDEX questions_held ON questions (held_by, id) WHERE state IN ('waiting', 'shown') AND held_by IS NOT NULL;
CREATE TABLE tallies (
  round INTEGER NOT NULL, state TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (round, state)
) WITHOUT ROWID;
CREATE TRIGGER tally_new AFTER INSERT ON questions BEGIN
  INSERT INTO tallies VALUES (new.round, new.state, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;
CREATE TRIGGER tally_move AFTER UPDATE OF state ON questions WHEN old.state <> new.state BEGIN
  UPDATE tallies SET n = n - 1 WHERE round = old.round AND state = old.state;
  INSERT INTO tallies VALUES (new.round, new.state, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;
CREATE INDEX questions_sample ON questions (sample);
CREATE TABLE answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sample INTEGER NOT NULL REFERENCES samples,
  question INTEGER REFERENCES questions,
  was TEXT,
  label INTEGER, reason TEXT NOT NULL DEFAULT '',
  annotator INTEGER NOT NULL REFERENCES annotators,
  answered_at REAL NOT NULL, seconds REAL,
  saw_model INTEGER NOT NULL DEFAULT 0,
  source TEXT NOT NULL, key TEXT UNIQUE, batch TEXT,
  retracted_at REAL
);
CREATE INDEX answers_sample ON answers (sample, id);
CREATE INDEX answers_annotator ON answers (annotator, id);
CREATE TABLE turns (
  version INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL,
  file TEXT NOT NULL, sha256 TEXT NOT NULL, body TEXT NOT NULL
);
CREATE UNIQUE INDEX turns_order ON turns (run, round);
"""
"""The tables of format 1."""

UPGRADES = {
    1: """
CREATE TRIGGER tally_gone AFTER DELETE ON questions BEGIN
  UPDATE tallies SET n = n - 1 WHERE round = old.round AND state = old.state; END;
DELETE FROM tallies;
INSERT INTO tallies SELECT round, state, COUNT(*) FROM questions GROUP BY round, state;
CREATE TABLE contents (sample INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE unfinished (sample INTEGER PRIMARY KEY, name TEXT NOT NULL, added INTEGER NOT NULL);
""",
    2: """
CREATE TABLE claims (
  question INTEGER NOT NULL REFERENCES questions ON DELETE CASCADE,
  annotator INTEGER NOT NULL REFERENCES annotators,
  given_at REAL NOT NULL, until REAL NOT NULL, shown INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (question, annotator)
) WITHOUT ROWID;
CREATE INDEX claims_annotator ON claims (annotator, until);
INSERT INTO claims SELECT id, held_by, asked_at, held_until, state = 'shown' FROM questions WHERE held_by IS NOT NULL;
CREATE TABLE questions_3 (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sample INTEGER NOT NULL REFERENCES samples,
  round INTEGER NOT NULL, turn INTEGER NOT NULL, strategy TEXT NOT NULL,
  ev INTEGER NOT NULL, score REAL, thoughts TEXT NOT NULL DEFAULT '[]',
  state TEXT NOT NULL DEFAULT 'waiting'
    CHECK (state IN ('waiting', 'shown', 'answered', 'skipped', 'expired')),
  asked_at REAL NOT NULL,
  wanted INTEGER NOT NULL DEFAULT 1, votes INTEGER NOT NULL DEFAULT 0,
  gold_for INTEGER REFERENCES annotators
);
INSERT INTO questions_3 (id, sample, round, turn, strategy, ev, score, thoughts, state, asked_at)
  SELECT id, sample, round, turn, strategy, ev, score, thoughts, state, asked_at FROM questions;
DROP TABLE questions;
ALTER TABLE questions_3 RENAME TO questions;
CREATE UNIQUE INDEX questions_open ON questions (sample) WHERE state IN ('waiting', 'shown') AND gold_for IS NULL;
CREATE INDEX questions_next ON questions (id) WHERE state IN ('waiting', 'shown');
CREATE INDEX questions_sample ON questions (sample);
CREATE INDEX questions_gold ON questions (gold_for, sample) WHERE gold_for IS NOT NULL;
CREATE TRIGGER tally_new AFTER INSERT ON questions WHEN new.gold_for IS NULL BEGIN
  INSERT INTO tallies VALUES (new.round, new.state, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;
CREATE TRIGGER tally_move AFTER UPDATE OF state ON questions WHEN old.state <> new.state AND new.gold_for IS NULL BEGIN
  UPDATE tallies SET n = n - 1 WHERE round = old.round AND state = old.state;
  INSERT INTO tallies VALUES (new.round, new.state, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;
CREATE TRIGGER tally_gone AFTER DELETE ON questions WHEN old.gold_for IS NULL BEGIN
  UPDATE tallies SET n = n - 1 WHERE round = old.round AND state = old.state; END;
ALTER TABLE answers ADD COLUMN unsure INTEGER NOT NULL DEFAULT 0;
ALTER TABLE answers ADD COLUMN comment TEXT NOT NULL DEFAULT '';
ALTER TABLE answers ADD COLUMN decides INTEGER NOT NULL DEFAULT 0;
ALTER TABLE answers ADD COLUMN seen TEXT NOT NULL DEFAULT '';
CREATE TABLE verdicts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sample INTEGER NOT NULL REFERENCES samples,
  label INTEGER, reason TEXT NOT NULL DEFAULT '',
  rule TEXT NOT NULL, by TEXT NOT NULL, answer INTEGER NOT NULL,
  decided_at REAL NOT NULL, retracted_at REAL
);
CREATE INDEX verdicts_sample ON verdicts (sample, id);
INSERT INTO verdicts SELECT a.id, a.sample, a.label, a.reason, 'single', p.name, a.id, a.answered_at, a.retracted_at
  FROM answers a JOIN annotators p ON p.id = a.annotator ORDER BY a.id;
CREATE TABLE reviews (sample INTEGER PRIMARY KEY, why TEXT NOT NULL, since REAL NOT NULL);
ALTER TABLE annotators ADD COLUMN role TEXT NOT NULL DEFAULT 'annotator';
ALTER TABLE sessions ADD COLUMN began_at REAL NOT NULL DEFAULT 0;
UPDATE sessions SET began_at = seen_at;
CREATE TABLE policy (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE gold (sample INTEGER PRIMARY KEY, label INTEGER NOT NULL);
CREATE TABLE about (sample INTEGER PRIMARY KEY, columns TEXT NOT NULL);
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, sample INTEGER, detail TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
""",
    3: """
ALTER TABLE annotators ADD COLUMN away INTEGER NOT NULL DEFAULT 0;
UPDATE annotators SET away = 1 WHERE 'revoke' = (
  SELECT what FROM audit WHERE what IN ('link', 'revoke') AND json_extract(detail, '$.person') = annotators.name
  ORDER BY id DESC LIMIT 1);
UPDATE annotators SET away = 1 WHERE EXISTS (SELECT 1 FROM answers a WHERE a.annotator = annotators.id)
  AND NOT EXISTS (SELECT 1 FROM answers a WHERE a.annotator = annotators.id AND a.source = 'page')
  AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.annotator = annotators.id)
  AND NOT EXISTS (SELECT 1 FROM tokens t WHERE t.annotator = annotators.id);
CREATE TABLE looked (
  sample INTEGER NOT NULL, annotator INTEGER NOT NULL REFERENCES annotators, at REAL NOT NULL,
  PRIMARY KEY (sample, annotator)
) WITHOUT ROWID;
""",
}
"""What makes the next format of each: 2 counts deleted questions out, knows samples by a hash of what they hold, and
notes additions and removals that are committed here but not yet in the other files of a home; 3 has several answers
per sample (claims, verdicts, reviews), roles, a policy, gold questions, columns about a sample, and the audit log; 4
knows who cannot come (``away``) and who has seen what others answered to a sample (``looked``)."""

MARKS = ("taken", "handed")
"""Answers up to ``taken`` are part of the committed state; up to ``handed``, training may be using them."""


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: ``executescript`` would end the transaction."""
    text = ""
    for line in script.splitlines():
        text += line + "\n"
        if sqlite3.complete_statement(text):
            yield text
            text = ""


def _execute(db: sqlite3.Connection, script: str) -> None:
    for statement in statements(script):
        db.execute(statement)


class Database:
    """One connection, shared by threads through a lock; ``identity`` tells this inbox from every other."""

    def __init__(self, path: Path, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise LabelError(f"there is no inbox at {path}: give the directory of a client's home")
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            # A table that others refer to can only be created again while references are not enforced.
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = OFF"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._prepare()
            self._connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError as error:
            if shutil.disk_usage(path.parent).free < LEAST_SPACE:
                raise LabelError(f"{path} cannot be opened: no space is left on the disk: free some") from None
            raise LabelError(f"{path} cannot be read as an inbox: {error}") from None

    def _prepare(self) -> None:
        with self.transaction() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= version <= FORMAT:
                raise LabelError(f"{self.path} has format {version}, this version of chase reads {FORMAT}")
            if version == 0:
                _execute(db, TABLES)
                db.executemany("INSERT INTO meta VALUES (?, 0)", [(mark,) for mark in MARKS])
            for before in range(max(1, version), FORMAT):
                _execute(db, UPGRADES[before])
            if version != FORMAT:
                db.execute(f"PRAGMA user_version = {FORMAT}")
            for key, bits in (("home", 52), ("receipts", 63)):
                db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", (key, secrets.randbits(bits)))
            self.identity = format(db.execute("SELECT value FROM meta WHERE key = 'home'").fetchone()[0], "013x")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside is kept together, or not at all."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self.commit()
            except BaseException:
                if self._connection.in_transaction:  # on a full disk SQLite has taken everything back itself
                    self._connection.execute("ROLLBACK")
                raise

    def commit(self) -> None:
        """End a transaction and keep what was written in it."""
        self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For reads only."""
        with self._lock:
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
