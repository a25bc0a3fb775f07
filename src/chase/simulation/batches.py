"""Which clients are run together, and in which order batches are handed out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chase.core.messages import ClientId

WINDOW = 64
"""Clients among which the dearest goes first: an update waits for the others of its block, so about this many
updates are held at a time however many clients take part."""
LARGEST = 16
PER_WORKER = 8
"""Batches that each worker gets in a round, at least, before batches grow."""


def plan_batches(clients: Sequence[ClientId], costs: NDArray[np.float64], workers: int) -> list[list[ClientId]]:
    """Batches in the order in which they are handed out; ``clients`` in id order, ``costs`` by client id.

    Few clients go one at a time, the dearest first. Of many, neighbours go together.
    """
    size = max(1, min(LARGEST, len(clients) // (workers * PER_WORKER)))
    window = max(WINDOW, 2 * size * workers)
    planned: list[list[ClientId]] = []
    for first in range(0, len(clients), window):
        some = clients[first : first + window]
        batches = [list(some[at : at + size]) for at in range(0, len(some), size)]
        planned += sorted(batches, key=lambda batch: -float(costs[batch].sum()))
    return planned
