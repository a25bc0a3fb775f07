"""Counts of all clients, those that sat out included: what a line of metrics.jsonl says of them.

Up to ``LISTED`` clients a line lists each one. Of a larger population it gives quantiles over the clients that have
had a turn, so that a line does not grow with the population; the counts of each client are in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.messages import ClientId, ClientUpdate
from chase.core.pools import NAMES
from chase.run.segments import Counts

SECOND = ("second_opinions", "second_opinions_waiting")
"""Second opinions given, which are part of the labels, and asked for; in a line only where there are any."""
COUNTED = ("labels", *NAMES, *SECOND)
LISTED = 256
"""The largest population whose clients a line of metrics lists one by one."""
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def counts_of(metrics: Mapping[str, float]) -> Counts:
    """Labels and pool sizes of a client after a turn, in the order of ``COUNTED``; second opinions where it has any."""
    found = (int(metrics["labels"]), *(int(metrics[f"pool_{name}"]) for name in NAMES))
    return (*found, *(int(metrics[name]) for name in SECOND)) if SECOND[0] in metrics else found


def full(counts: Counts) -> Counts:
    """Counts with those that are left out as 0."""
    return (*counts, *(0 for _ in range(len(COUNTED) - len(counts))))


class ClientCounts:
    """The last counts of every client that has had a turn; of secure sums those of the last sum, under no client."""

    def __init__(self, clients: int, known: Mapping[ClientId, Counts], joint: bool = False) -> None:
        clients = max([clients, *(client + 1 for client in known)])
        self._counts: NDArray[np.int64] = np.zeros((clients, len(COUNTED)), dtype=np.int64)
        self._seen: NDArray[np.bool_] = np.zeros(clients, dtype=np.bool_)
        for client, counts in known.items():
            self._counts[client], self._seen[client] = full(counts), True
        self._total = self._counts.sum(axis=0)
        self._joint, self._spent_before = joint, 0

    @classmethod
    def resume(cls, clients: int, saved: Mapping[ClientId, Counts], last: Mapping[str, Any] | None) -> ClientCounts:
        """From the checkpoint, or from the last line where the checkpoint has no counts."""
        listed = (last or {}).get("clients") or {}
        known = {int(c): tuple(int(counts.get(name, 0)) for name in COUNTED) for c, counts in listed.items()}
        if last and not saved and last.get("clients") == {} and last["labels"]:  # of a secure sum
            total = last | last["pools"]
            return cls(clients, {0: tuple(int(total.get(name, 0)) for name in COUNTED)}, joint=True)
        return cls(clients, known | {client: counts for client, counts in saved.items() if counts})

    def take(self, updates: Sequence[ClientUpdate]) -> None:
        """With the counts of the clients that took part; a secure sum stands for all of them."""
        joint = any(update.joint for update in updates)
        if joint or (updates and self._joint):
            self._forget()
            self._joint = joint
        more = max((u.client + 1 for u in updates), default=0) - len(self._seen)
        if more > 0:  # sites may join a federation while it runs
            self._counts, self._seen = np.pad(self._counts, ((0, more), (0, 0))), np.pad(self._seen, (0, more))
        for update in updates:
            now = np.array(full(counts_of(update.metrics)), dtype=np.int64)
            self._total += now - self._counts[update.client]
            self._counts[update.client], self._seen[update.client] = now, True

    def _forget(self) -> None:
        """Begin anew, as who is in which sum is not known; what was spent stays spent."""
        self._spent_before = self.spent
        self._counts[:], self._seen[:], self._total[:] = 0, False, 0

    @property
    def spent(self) -> int:
        """Labels given and questions that are open, over all clients."""
        total = dict(zip(COUNTED, self._total.tolist(), strict=True))
        return max(int(total["labels"] + total["asked"] + total["second_opinions_waiting"]), self._spent_before)

    def metrics(self) -> dict[str, Any]:
        """The counts for a line: in all, and by client or as quantiles."""
        total = dict(zip(COUNTED, self._total.tolist(), strict=True))
        found = {"labels": total["labels"], "pools": {name: total[name] for name in NAMES}}
        second = SECOND if any(total[name] for name in SECOND) else ()
        found |= {name: total[name] for name in second}
        if self._joint:
            return found | {"clients": {}}
        if len(self._seen) > LISTED:
            return found | {"clients_seen": int(self._seen.sum()), "client_quantiles": self._quantiles()}
        seen = np.flatnonzero(self._seen)
        order = (*NAMES, "labels", *second)
        by_client = {str(c): dict(zip(COUNTED, map(float, self._counts[c]), strict=True)) for c in seen.tolist()}
        return found | {"clients": {c: {name: counts[name] for name in order} for c, counts in by_client.items()}}

    def _quantiles(self) -> dict[str, list[float]]:
        """``QUANTILES`` of each count over the clients that have had a turn."""
        seen = self._counts[self._seen]
        if not len(seen):
            return {}
        found = dict(zip(COUNTED, np.quantile(seen, QUANTILES, axis=0).T.tolist(), strict=True))
        return {name: values for name, values in found.items() if name not in SECOND}
