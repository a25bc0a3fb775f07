"""A client that lives in a home: its state, its questions and its answers move together.

``ClientStore`` is both where the client keeps its state and its annotator. What the client asks and
withdraws during a turn is held back until ``commit``, which in one SQLite transaction keyed by (run,
round) files the questions, closes those withdrawn, marks the answers that the new state contains and names the file
with the state and the update. Killed at any moment, a client finds the turn done or not begun.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from chase.annotation.annotator import Answer, Panel, Question
from chase.client.state import ClientState
from chase.client.turn import Turn, open_questions
from chase.core.errors import AheadError, CheckpointError, LabelError
from chase.core.messages import ClientUpdate
from chase.core.weights import Array, part_of, prefixed, read, to_bytes, without
from chase.data.resident import Column, Kind, Samples
from chase.home.again import note_again, panel_of
from chase.home.home import Home, write_durably
from chase.home.live import LIVE

KEPT = 3
"""Turns that a repeated order is answered from."""


def resident(home: Home) -> Samples:
    """The samples of a home as training takes them."""
    ids, inputs = home.samples()
    card = home.card
    kind: Kind = card.kind  # type: ignore[assignment]  # checked when the card was read
    columns = tuple(Column.from_json(column) for column in card.columns)
    return Samples(torch.from_numpy(inputs), kind, card.mean, card.std, ids, card.vocabulary, columns, card.scale)


class ClientStore:
    """The state store and the annotator of a client in a home."""

    def __init__(self, home: Home, start: ClientState, order: str = "") -> None:
        """``order``: the fingerprint of the order to be answered, where one with another content must be refused."""
        self.home, self._start, self._order = home, start, order
        self._version = -1
        self._handed = 0
        self._asked: list[Question] = []
        self._withdrawn: list[int] = []

    # annotator

    def ask(self, questions: Sequence[Question]) -> None:
        """Questions to file when the turn is committed."""
        self._asked += questions

    def withdraw(self, samples: Sequence[int]) -> None:
        """Questions to close when the turn is committed."""
        self._withdrawn += samples

    def answers(self, turn: int) -> Sequence[Answer]:
        """What people answered since the last committed turn, or since this was last called within the turn."""
        found, self._handed = self.home.inbox.hand_out(self._handed)
        return found

    def panel(self) -> Panel:
        """What people said so far, as it will be when the turn is committed."""
        found = panel_of(self.home)
        waiting = {sample: turn for sample, turn in found.waiting.items() if sample not in self._withdrawn}
        return replace(found, waiting=waiting | {q.sample: q.turn for q in self._asked if q.again})

    # state store

    def _begin_turn(self) -> None:
        self._asked, self._withdrawn = [], []
        self._handed = self.home.inbox.mark("taken")

    def committed(self, run: str, round: int) -> Turn | None:
        """The turn that was committed for this order, if it was; what an interrupted turn held back is dropped.

        A turn of an earlier version of chase has no fingerprint and answers any order of its run and round.
        """
        self._begin_turn()
        with self.home.database.reading() as db:
            row = db.execute("SELECT * FROM turns WHERE run = ? AND round = ?", (run, round)).fetchone()
            last = db.execute("SELECT MAX(round) FROM turns WHERE run = ?", (run,)).fetchone()[0]
        if row is not None:
            body = json.loads(row["body"])
            if self._order and body.get("order", self._order) != self._order:
                raise AheadError(round, round)
            return _turn_from(self._arrays(row), body)
        if last is not None and last > round:
            raise AheadError(int(last), round)
        return None

    def load(self) -> ClientState:
        """The last committed state, or the starting one."""
        with self.home.database.reading() as db:
            row = db.execute("SELECT * FROM turns ORDER BY version DESC LIMIT 1").fetchone()
        self._version = 0 if row is None else int(row["version"])
        if row is None:
            return self._start
        return ClientState.from_arrays(part_of(self._arrays(row), "state."))

    def commit(self, run: str, round: int, turn: Turn) -> None:
        """Keep the turn: state, update, questions and the marks of the answers, all together."""
        version = self._version + 1
        arrays = prefixed("state.", turn.state.to_arrays())
        arrays |= prefixed("weights.", turn.update.weights) | prefixed("extras.", turn.update.extras)
        arrays |= prefixed(LIVE, turn.live)
        name, sha = self._write(version, arrays)
        body = _body(turn) | ({"order": self._order} if self._order else {})
        with self.home.database.transaction() as db:
            newest = db.execute("SELECT COALESCE(MAX(version), 0) FROM turns").fetchone()[0]
            if newest != self._version:
                raise LabelError(f"another process trains with {self.home.path} too: let only one run at a time")
            db.execute(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?)",
                (version, run, round, name, sha, json.dumps(body)),
            )
            self.home.inbox.set_taken(self._handed)
            self.home.inbox.expire(self._withdrawn)
            self._file(turn.state)
            db.execute("DELETE FROM turns WHERE version <= ?", (version - KEPT,))
        self._version = version
        self.sweep()

    def amend(self, change: Callable[[ClientState], ClientState], erased: frozenset[int] = frozenset()) -> bool:
        """Change the committed state between two turns, in the caller's transaction; False before the first turn.

        With ``erased``, samples that must leave no trace, every kept turn is rewritten without them.
        """
        with self.home.database.transaction() as db:
            rows = db.execute("SELECT * FROM turns ORDER BY version DESC").fetchall()
            for row in rows if erased else rows[:1]:
                arrays = self._arrays(row)
                state = change(ClientState.from_arrays(part_of(arrays, "state.")))
                gone = ("state.", LIVE) if erased else ("state.",)
                kept = without(arrays, *gone)
                name, sha = self._write(row["version"], kept | prefixed("state.", state.to_arrays()))
                body = json.loads(row["body"])
                for part in ("questions", "journal"):
                    body[part] = [line for line in body[part] if line["sample"] not in erased]
                db.execute(
                    "UPDATE turns SET file = ?, sha256 = ?, body = ? WHERE version = ?",
                    (name, sha, json.dumps(body), row["version"]),
                )
        return bool(rows)

    def damaged(self) -> list[int]:
        """The versions of kept turns whose files are damaged or gone."""
        found = []
        with self.home.database.reading() as db:
            rows = db.execute("SELECT * FROM turns ORDER BY version").fetchall()
        for row in rows:
            try:
                self._arrays(row)
            except CheckpointError:
                found.append(int(row["version"]))
        return found

    def drop_damaged(self) -> int:
        """Remove damaged turns: the site continues from the one before, and reads every answer of its inbox once more.

        Returns how many were removed.
        """
        versions = self.damaged()
        with self.home.database.transaction() as db:
            db.executemany("DELETE FROM turns WHERE version = ?", [(version,) for version in versions])
            if versions:
                self.home.inbox.set_taken(0)
        self.sweep()
        return len(versions)

    def sweep(self) -> None:
        """Remove the files that no kept turn names; to be called after the transaction of ``amend``."""
        with self.home.database.reading() as db:
            names = {row["file"] for row in db.execute("SELECT file FROM turns")}
        if (self.home.path / "state").is_dir():
            _sweep(self.home.path / "state", names)

    def _write(self, version: int, arrays: dict[str, Array]) -> tuple[str, str]:
        blob = to_bytes(arrays)
        sha = hashlib.sha256(blob).hexdigest()
        name = f"turn-{version:06d}-{sha[:12]}.safetensors"
        directory = self.home.path / "state"
        directory.mkdir(exist_ok=True)
        write_durably(directory / name, blob)
        return name, sha

    def _file(self, state: ClientState) -> None:
        """File what was asked, so that exactly the asked samples have an open question or an answer on its way.

        An answer that came late and was undone may have left it otherwise.
        """
        asked, inbox = set(state.pools.asked.tolist()), self.home.inbox
        inbox.file([q for q in self._asked if q.again or q.sample in asked])
        note_again(self.home, self._asked)
        inbox.file(open_questions(state, "asked before"))
        over = [q["sample"] for q in self.home.ledger.open_questions() if q["sample"] not in asked]
        inbox.expire([sample for sample in over if inbox.current(sample) is None])  # a second opinion stays open

    def _arrays(self, row: Any) -> dict[str, Array]:
        path: Path = self.home.path / "state" / row["file"]
        try:
            whole = hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
        if not whole:
            raise CheckpointError(f"{path} is damaged (its checksum differs)")
        return read(path)


def _body(turn: Turn) -> dict[str, Any]:
    update = turn.update
    return {
        "client": update.client,
        "round": update.round,
        "num_labeled": update.num_labeled,
        "metrics": dict(update.metrics),
        "questions": [asdict(q) for q in turn.questions],
        "journal": list(turn.journal),
    }


def _turn_from(arrays: dict[str, Array], body: dict[str, Any]) -> Turn:
    questions = tuple(
        replace(Question(**q), thoughts=tuple((int(c), float(p)) for c, p in q["thoughts"])) for q in body["questions"]
    )
    update = ClientUpdate(
        client=body["client"],
        round=body["round"],
        weights=part_of(arrays, "weights."),
        num_labeled=body["num_labeled"],
        metrics=body["metrics"],
        extras=part_of(arrays, "extras."),
    )
    return Turn(update, ClientState.from_arrays(part_of(arrays, "state.")), questions, tuple(body["journal"]))


def _sweep(directory: Path, keep: set[str]) -> None:
    """Remove the files that no kept turn names: those of old turns, and of commits that a kill cut short."""
    for file in directory.iterdir():
        if file.name not in keep:
            file.unlink(missing_ok=True)
