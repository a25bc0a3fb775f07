"""Whether a run's accuracy was measured, and what is said where it was not: never a number that looks like one."""

from __future__ import annotations

import numpy as np

from chase.report.runs import RunData
from chase.run.metrics import ESTIMATE, NOT_MEASURED, estimate_in_words


def is_measured(run: RunData) -> bool:
    """Whether any round of a run was evaluated on a test set."""
    return bool(np.isfinite(run.series("test_accuracy")).any())


def has_estimate(run: RunData) -> bool:
    """Whether a run has an estimate in the place of a measurement."""
    return not is_measured(run) and bool(np.isfinite(run.series(ESTIMATE)).any())


def last_in_words(run: RunData) -> str:
    """The end of a run that was not measured, in a sentence."""
    estimate = estimate_in_words(run.metrics[-1]) if run.metrics else ""
    said = f"accuracy {NOT_MEASURED}: there is no test set"
    return said + (f"; estimate {estimate}" if estimate else "")
