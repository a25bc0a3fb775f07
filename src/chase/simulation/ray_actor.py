"""What runs on a core of a Ray cluster: the clients of today's worker, in batches, without files.

States come and go with the calls, so an actor can die at any moment and any other can run its clients.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Arrays, to_bytes
from chase.learning.inference import logits
from chase.models.net import set_weights
from chase.run.segments import SavedState, state_arrays
from chase.server.aggregation import BlockSum, block_sum
from chase.server.closed_form import check_answer_fits
from chase.server.intake import weighted, without_arrays
from chase.simulation import parcels
from chase.simulation.clients import SimulatedClients
from chase.simulation.cluster import versions
from chase.simulation.worker import unpack_world

TurnJob = tuple[ClientId, SavedState | None, bytes | None]
"""A client, its state's name and its state; neither before its first turn."""


class StatesInMemory:
    """The states of one call."""

    def __init__(self) -> None:
        self.path = Path()
        self.came: dict[str, bytes] = {}
        self.left: dict[ClientId, bytes] = {}

    def read_client(self, saved: SavedState) -> dict[str, Array]:
        """A state that came with the call."""
        return state_arrays(self.came[saved.sha256])

    def write_client(self, client: ClientId, round: int, state: Arrays | bytes) -> SavedState:
        """Keep a state to send it back."""
        blob = state if isinstance(state, bytes) else to_bytes(state)
        self.left[client] = blob
        return SavedState("", 0, len(blob), hashlib.sha256(blob).hexdigest(), round)


class TurnActor:
    """Holds the data, a network and the clients that it ran last."""

    def __init__(self, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        warnings.filterwarnings("ignore", message=".*NumPy array is not writable.*")  # shared memory, only read
        torch.set_num_threads(1)
        self._world, self._states = unpack_world(header, arrays), StatesInMemory()
        self._roster = SimulatedClients(self._world, self._states)
        self._order: tuple[int, RoundOrder] | None = None
        self._began = time.process_time()  # importing and building are start-up, no cost of a round

    def about(self) -> dict[str, Any]:
        """Versions of what decides results on this node."""
        import ray

        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return {"node": node, **versions()}

    def processor(self) -> float:
        """Processor seconds used so far, start-up aside."""
        return time.process_time() - self._began

    def turns(self, count: int, order: Any, *pieces: bytes) -> Any:
        """The turns of some clients, as ``count`` pieces (0: not cut).

        The order is in the object store, or packed with the clients, or came with an earlier call of the round.
        """
        number, packed, jobs, whole = parcels.unpack(parcels.joined(pieces))
        return parcels.answer(self._turns(self._own(number, packed or order), jobs, whole), count)

    def _turns(self, order: RoundOrder, jobs: Sequence[TurnJob], whole: int | None) -> dict[str, Any]:
        """What came of the turns; ``whole``: they are all clients of this block, which comes back added up."""
        self._states.came = {saved.sha256: blob for _, saved, blob in jobs if saved is not None and blob is not None}
        self._states.left = {}
        found: list[dict[str, Any]] = []
        updates: list[ClientUpdate] = []
        for client, saved, _ in jobs:
            turn, _ = self._roster.take_turn(client, order, saved)
            check_answer_fits(turn.update, order)
            updates.append(turn.update)
            found.append({"journal": list(turn.journal), "blob": self._states.left[client]})
        answer = {"turns": found, "updates": updates, "processor": self.processor()}
        return answer if whole is None else answer | self._added(updates, whole)

    def _added(self, updates: Sequence[ClientUpdate], block: int) -> dict[str, Any]:
        some = [weighted(u, self._world.settings) for u in updates if u.num_labeled > 0]
        part: BlockSum | None = block_sum(block, some) if some else None
        return {"updates": [without_arrays(u) for u in updates], "sum": part}

    def test(self, count: int, order: Any, *pieces: bytes) -> Any:
        """Outputs on a part of the test set; order and answer as in ``turns``."""
        number, packed, first, last = parcels.unpack(parcels.joined(pieces))
        set_weights(self._roster.net, self._own(number, packed or order).weights)
        found = logits(self._roster.net, self._world.test, torch.arange(first, last)).numpy()
        return parcels.answer({"logits": found, "processor": self.processor()}, count)

    def _own(self, number: int, order: RoundOrder | None) -> RoundOrder:
        """The order with arrays of this process's own, copied once per round."""
        if self._order is None or self._order[0] != number:
            if order is None:
                raise RuntimeError("an actor was not sent its order")
            start = None if order.start is None else _copied(order.start)
            own = replace(order, weights=_copied(order.weights), extras=_copied(order.extras), start=start)
            self._order = number, own
        return self._order[1]


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array) for name, array in arrays.items()}
