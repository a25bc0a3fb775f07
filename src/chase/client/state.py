"""What a client remembers between turns: small, its own, and never sent.

One row a sample (label, last EV, classes seen, the turn it was asked in), the pools, the samples
being watched, the turn counter and, where the method needs them, the last local weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Answer
from chase.core.errors import CheckpointError, DataError
from chase.core.pools import NAMES, Pools, SampleIds, is_in
from chase.core.weights import Array, Arrays, Weights, part_of, prefixed

Column = NDArray[np.int64]
COLUMNS = ("label", "ev", "seen", "asked_turn")


@dataclass(frozen=True)
class ClientState:
    """A client between two turns; every change returns a new one."""

    pools: Pools
    ids: SampleIds
    """All samples of the client, sorted; the columns stand beside them."""
    label: Column
    """Class number, -1 while nobody has said."""
    ev: Column
    """Last measured epistemic variation; 0 while never measured."""
    seen: Column
    """Distinct classes predicted when EV was last measured."""
    asked_turn: Column
    """The turn in which a sample was asked for, -1 if never."""
    watched: SampleIds
    turn: int = 0
    labels_spent: int = 0
    """Answers that gave a label, initial labels apart."""
    opinions: int = 0
    """Second opinions that were given, which cost as much as a label."""
    opinions_waiting: int = 0
    """Second opinions that were asked for and not given yet."""
    local_weights: Weights | None = None
    extras: Arrays = field(default_factory=dict)
    """Whatever else a method keeps between turns."""

    @classmethod
    def start(cls, ids: SampleIds, labeled_ids: SampleIds, labels: NDArray[np.int64]) -> ClientState:
        """A client that has the given initial labels and has not had a turn."""
        label = np.full(ids.size, -1, dtype=np.int64)
        at = np.searchsorted(ids, labeled_ids)
        label[at] = labels
        zero = np.zeros(ids.size, dtype=np.int64)
        pools = Pools.start(labeled=labeled_ids, unlabeled=ids[~is_in(ids, labeled_ids)])
        none = np.empty(0, dtype=np.int64)
        return cls(pools, ids, label, zero, zero, np.full(ids.size, -1, dtype=np.int64), none)

    def at(self, ids: SampleIds) -> NDArray[np.int64]:
        """Row numbers of ids."""
        return np.searchsorted(self.ids, ids)

    def labels_of(self, ids: SampleIds) -> Column:
        """Labels of ids."""
        return self.label[self.at(ids)]

    def ev_of(self, ids: SampleIds) -> Column:
        """Last measured EV of ids."""
        return self.ev[self.at(ids)]

    def with_tracking(self, watched: SampleIds, ev: Column, seen: Column) -> ClientState:
        """With newly measured EVs of the watched samples."""
        new_ev, new_seen, rows = self.ev.copy(), self.seen.copy(), self.at(watched)
        new_ev[rows], new_seen[rows] = ev, seen
        return replace(self, ev=new_ev, seen=new_seen)

    def ask(self, ids: SampleIds) -> ClientState:
        """With these samples asked for in this turn."""
        asked_turn = self.asked_turn.copy()
        asked_turn[self.at(ids)] = self.turn
        return replace(self, pools=self.pools.ask(ids), asked_turn=asked_turn)

    def overdue(self, patience: int) -> SampleIds:
        """Samples asked for at least ``patience`` turns ago and still unanswered (0 = never overdue)."""
        asked = self.pools.asked
        if patience == 0:
            return asked[:0]
        return asked[self.turn - self.asked_turn[self.at(asked)] >= patience]

    def add(self, ids: SampleIds) -> ClientState:
        """With new, unlabelled samples; their ids are higher than any there is."""
        zero, none = np.zeros(ids.size, dtype=np.int64), np.full(ids.size, -1, dtype=np.int64)
        return replace(
            self,
            pools=self.pools.add(ids),
            ids=np.concatenate([self.ids, ids]),
            label=np.concatenate([self.label, none]),
            ev=np.concatenate([self.ev, zero]),
            seen=np.concatenate([self.seen, zero]),
            asked_turn=np.concatenate([self.asked_turn, none]),
        )

    def forget(self, ids: SampleIds) -> ClientState:
        """Without these samples and all that is known of them."""
        stay = ~is_in(self.ids, ids)
        columns = {name: getattr(self, name)[stay] for name in COLUMNS}
        watched = self.watched[~is_in(self.watched, ids)]
        return replace(self, pools=self.pools.forget(ids), ids=self.ids[stay], watched=watched, **columns)

    def with_answers(self, answers: Sequence[Answer], num_classes: int) -> ClientState:
        """With answers: a label, a revision of one, a late label, or "cannot tell"."""
        if not answers:
            return self
        pools, label, spent = self.pools, self.label.copy(), self.labels_spent
        for answer in answers:
            ids = np.array([answer.sample], dtype=np.int64)
            if not is_in(ids, self.ids)[0]:
                raise DataError(f"an answer names sample {answer.sample}, which is not this client's")
            row = int(self.at(ids)[0])
            if answer.label is None:
                if not is_in(ids, pools.set_aside)[0]:
                    pools = pools.put_aside(ids)
                label[row] = -1
                continue
            if not 0 <= answer.label < num_classes:
                raise DataError(f"an answer gives class {answer.label}; classes are 0 to {num_classes - 1}")
            if is_in(ids, pools.asked)[0]:
                pools, spent = pools.label(ids), spent + 1
            elif not is_in(ids, pools.labeled)[0]:
                pools, spent = pools.volunteer(ids), spent + 1
            label[row] = answer.label
        return replace(self, pools=pools, label=label, labels_spent=spent)

    def to_arrays(self) -> dict[str, Array]:
        """Everything as named arrays, for a file."""
        arrays: dict[str, Array] = {"ids": self.ids, "watched": self.watched}
        arrays |= {name: getattr(self, name) for name in COLUMNS}
        arrays |= {f"pool.{name}": ids for name, ids in self.pools}
        arrays["counters"] = np.array([self.turn, self.labels_spent], dtype=np.int64)
        if self.opinions or self.opinions_waiting:
            arrays["opinions"] = np.array([self.opinions, self.opinions_waiting], dtype=np.int64)
        if self.local_weights is not None:
            arrays |= prefixed("local.", self.local_weights)
        return arrays | prefixed("extra.", self.extras)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> ClientState:
        """The state that ``to_arrays`` gave; refused if it is not whole."""
        try:
            pools = Pools(**{name: arrays[f"pool.{name}"] for name in NAMES})
            pools.check()
            turn, spent = (int(n) for n in arrays["counters"])
            opinions, waiting = (int(n) for n in arrays.get("opinions", (0, 0)))
            local = part_of(arrays, "local.")
            extras = part_of(arrays, "extra.")
            columns = {name: arrays[name] for name in COLUMNS}
            return cls(
                pools=pools,
                ids=arrays["ids"],
                watched=arrays["watched"],
                turn=turn,
                labels_spent=spent,
                opinions=opinions,
                opinions_waiting=waiting,
                local_weights=local or None,
                extras=extras,
                **columns,
            )
        except KeyError as error:
            raise CheckpointError(f"a client's saved state lacks {error}") from None
