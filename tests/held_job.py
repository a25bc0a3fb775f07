"""A strategy that waits forever when it is first asked, so that a test can kill the node while the job is running."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from chase.simulation.rehearsal import FEW

MARKER = "CHASE_TEST_MARKER"


class WaitOnce:
    """Random selection; the first call of all processes that share the marker file does not return."""

    needs = frozenset()

    def select(self, pool: Any, budget: int, rng: np.random.Generator) -> np.ndarray:
        if len(pool.ids) <= FEW:  # the trial before round 1
            return rng.choice(pool.ids, size=budget, replace=False)
        marker = Path(os.environ[MARKER])
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return rng.choice(pool.ids, size=min(budget, len(pool.ids)), replace=False)
        time.sleep(3600)
        raise AssertionError("the node was not killed")
