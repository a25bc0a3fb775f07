"""The order of open questions, computed again after each answer (``live = true``).

A committed turn holds what is needed (``chase.client.live``). The order follows from that and the labels in force in
the inbox alone: a page that was killed, or that a second process serves, gives the same. A new label is one rank-one
update; an undone or corrected one starts again from the turn. Works without torch.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import numpy as np

from chase.acquisition.uncertainty import ranking
from chase.closed_form.updates import LiveScores, softmax
from chase.core.errors import CheckpointError
from chase.core.weights import Array, read_part
from chase.home.schema import Database

LIVE = "live."
"""Prefix of these arrays in the file of a turn."""


class Base:
    """What a turn left, and the head with the answers since."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.ids: list[int] = arrays["ids"].tolist()
        self._ranked = self.ids[: arrays["scores"].shape[0]]
        self._rows = {sample: row for row, sample in enumerate(self._ranked)}
        self._strategy = arrays["strategy"].tobytes().decode()
        self._start()

    def _start(self) -> None:
        self._live = LiveScores(self._arrays["kernel"], self._arrays["scores"])
        self._learnt: dict[int, int] = {}

    def learn(self, labels: dict[int, int]) -> None:
        """Know exactly these labels of open questions, by sample."""
        known = {sample: label for sample, label in labels.items() if sample in self._rows}
        if any(known.get(sample) != label for sample, label in self._learnt.items()):
            self._start()
        for sample, label in known.items():
            if sample not in self._learnt:
                self._live.learn(self._rows[sample], label)
                self._learnt[sample] = label

    def places(self) -> dict[int, int]:
        """The place of each sample that has no label: what to ask first has the lowest."""
        rows = np.array([row for sample, row in self._rows.items() if sample not in self._learnt], dtype=np.int64)
        probs = softmax(self._live.scores[rows] / float(self._arrays["temperature"][0]))
        counts = self._arrays["counts"].copy()
        np.add.at(counts, list(self._learnt.values()), 1)
        order = rows[ranking(self._strategy, probs, np.diagonal(self._live.kernel)[rows], counts)]
        first = [self._ranked[row] for row in order]
        return {sample: place for place, sample in enumerate([*first, *self.ids[len(self._ranked) :]])}


class LiveOrder:
    """The order of an inbox's open questions; none unless the last turn left what it needs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file = ""
        self._base: Base | None = None

    def places(self) -> dict[int, int] | None:
        """The place of each sample among the open questions; None where questions go out as they were filed."""
        with self._database.reading() as db:
            row = db.execute("SELECT file FROM turns ORDER BY version DESC LIMIT 1").fetchone()
            if row is None:
                return None
            if row["file"] != self._file:
                self._base = read_base(self._database.path.parent / "state" / row["file"])
                self._file = row["file"]
            if self._base is None:
                return None
            self._base.learn(_labels(db))
            return self._base.places()


def read_base(path: Path) -> Base | None:
    """What a turn left for re-ranking, if anything. A damaged file stops training, not the people who label."""
    try:
        arrays = read_part(path, LIVE)
    except CheckpointError as error:
        logging.getLogger(__name__).warning("questions are not re-ranked: %s", error)
        return None
    return Base(arrays) if arrays else None


def _labels(db: sqlite3.Connection) -> dict[int, int]:
    """The labels in force that the committed state does not contain, oldest first."""
    rows = db.execute(
        "SELECT sample, label FROM verdicts WHERE retracted_at IS NULL"
        " AND id > (SELECT value FROM meta WHERE key = 'taken') ORDER BY id"
    )
    latest = {int(row["sample"]): row["label"] for row in rows}
    return {sample: int(label) for sample, label in latest.items() if label is not None}
