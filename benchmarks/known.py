"""What a round costs by who exists: as many clients take part of 10,000 as of 100,000, round by round in turns.

Every client has its first or second turn, so that no population has bought more labels than the other.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import generated
from benchmarks.nodes import Side
from chase.run.checkpoint import Checkpoint
from chase.settings import Settings
from chase.simulation.workers import Workers
from chase.simulation.world import World


def compare_known(chosen: list[Settings], samples: int, rounds: int = 23) -> dict[str, Any]:
    """Processor milliseconds per client of each population (medians), and of the largest against the first."""
    torch.set_num_threads(1)
    sides: dict[int, Side] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="chase-bench-") as place:
            for settings in chosen:
                data = generated("digits", samples * settings.clients, (1, 8, 8))
                world, checkpoint = World.of(settings, data), Checkpoint(Path(place) / str(settings.clients))
                sides[settings.clients] = Side(Workers(world, checkpoint, 2), world, checkpoint)
            for number in range(1, rounds + 1):
                for known in sorted(sides, reverse=number % 2 == 0):
                    sides[known].round(number)
    finally:
        for side in sides.values():
            side.engine.close()
    spent = {known: 1000 * statistics.median(s.processor) / s.took_part for known, s in sides.items()}
    return {
        "took_part": {known: side.took_part for known, side in sides.items()},
        "processor_ms_per_client": spent,
        "many_against_few": spent[max(spent)] / spent[min(spent)],
    }
