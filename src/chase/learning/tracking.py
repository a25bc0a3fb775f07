"""Epistemic variation (the paper's Alg. 1).

After each local epoch the partially trained model predicts every watched sample. EV(x) is how
often the prediction differs from the epoch before, so 0 <= EV <= epochs - 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

History = NDArray[np.int64]
"""Predicted class per epoch and sample: (epochs, samples)."""


def epistemic_variation(history: History) -> NDArray[np.int64]:
    """How often each sample's prediction changed from one epoch to the next -> (samples,)."""
    if history.shape[0] < 2:
        return np.zeros(history.shape[1], dtype=np.int64)
    changes: NDArray[np.int64] = (history[1:] != history[:-1]).sum(axis=0)
    return changes


def classes_seen(history: History) -> NDArray[np.int64]:
    """How many distinct classes were predicted for each sample -> (samples,)."""
    if history.shape[0] == 0:
        return np.zeros(history.shape[1], dtype=np.int64)
    ordered = np.sort(history, axis=0)
    seen: NDArray[np.int64] = 1 + (ordered[1:] != ordered[:-1]).sum(axis=0)
    return seen
