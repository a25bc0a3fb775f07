"""What each client holds and how well a model does there; no drawing."""

from __future__ import annotations

import numpy as np

from chase.report.runs import Numbers, RunData


def held_counts(run: RunData) -> Numbers | None:
    """Samples of each class that each client holds (clients, classes); None where the run does not say."""
    held = run.coverage.get("held")
    return np.array(held, dtype=np.float64) if held else None


def client_accuracies(run: RunData) -> Numbers | None:
    """Accuracy by client, on the client's own mix of classes: of its own model where it is isolated, else the global.

    None where the run does not say what clients hold or how classes fare.
    """
    held = held_counts(run)
    if held is None:
        return None
    alone = run.metrics[-1].get("client_scores")
    if alone:
        by_client = [alone[client].get("per_class") for client in sorted(alone, key=int)]
    else:
        known = [line["per_class"] for line in run.metrics if line.get("per_class")]
        by_client = [known[-1]] * len(held) if known else []
    if len(by_client) != len(held) or not all(by_client):
        return None
    by_class = np.array([[np.nan if v is None else v for v in row] for row in by_client], dtype=np.float64)
    share = np.where(np.isfinite(by_class), held, 0.0)
    mixed: Numbers = (share * np.nan_to_num(by_class)).sum(axis=1) / np.maximum(share.sum(axis=1), 1.0)
    return mixed
