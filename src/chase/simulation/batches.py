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

CALL = 0.05
"""Seconds that a call to another node should take at least: the call itself costs one or two milliseconds."""

SHORT = 1.0
"""Seconds of a block that another actor may wait for at the end of a round."""


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


def plan_pieces(
    blocks: Sequence[Sequence[ClientId]], costs: NDArray[np.float64], actors: int, seconds: float
) -> list[list[ClientId]]:
    """Clients that go together in one call on a cluster, in the order of the calls; ``blocks`` as they are summed.

    A whole block comes back as one sum, so blocks go whole as long as there is more to do for every actor. The rest
    goes in pieces that become smaller, so that all actors end together, and where turns are short (``seconds`` each)
    not so small that a call takes less than ``CALL`` seconds; the dearest piece first.
    """
    left, planned, at = sum(map(len, blocks)), list[list[ClientId]](), 0
    while at < len(blocks) and _goes_whole(len(blocks[at]), left, actors, seconds):
        planned.append(list(blocks[at]))
        left, at = left - len(blocks[at]), at + 1
    of_a_call = CALL / max(seconds, 1e-6)
    least = max(1, min(left // (2 * actors), int(of_a_call)))
    most = max(least, left // (actors * PER_WORKER), int(5 * of_a_call))
    pieces: list[list[ClientId]] = []
    for block in blocks[at:]:
        first = 0
        while first < len(block):
            pieces.append(list(block[first : first + min(max(left // (2 * actors), least), most)]))
            first, left = first + len(pieces[-1]), left - len(pieces[-1])
    return planned + sorted(pieces, key=lambda piece: -float(costs[piece].sum()))


def _goes_whole(block: int, left: int, actors: int, seconds: float) -> bool:
    """Whether there is enough to do beside a block of so many clients; dear blocks may differ, so they need more."""
    return 1 < block < left and left >= actors * block * (1 if seconds * block < SHORT else 2)
