"""What EV can see, to whose classes the global model is pulled, and what happens when frozen samples awaken.

How often EV had nothing to tell candidates apart by, where the global model errs, how often it takes samples for
classes of the clients that label most, and how its accuracy changes when clients awaken what they had frozen.
"""

from __future__ import annotations

import numpy as np

from chase.report.runs import RunData, accuracy
from chase.studies.findings import settled_share


def most_willing(run: RunData) -> set[int]:
    """The clients that asked for most samples; all of them where all asked for as many."""
    counts: dict[int, int] = {}
    for line in run.selections:
        counts[line["client"]] = counts.get(line["client"], 0) + 1
    return {client for client, count in counts.items() if count == max(counts.values())}


def zero_share(run: RunData, willing: bool) -> float:
    """The share in percent of questions of EV 0, of the clients that asked most or of the others; NaN without any."""
    most = most_willing(run)
    share = settled_share(run, lambda client: (client in most) == willing)
    return float("nan") if share is None else 100 * share


def never_together(run: RunData) -> tuple[float, float]:
    """(share of the last errors between two classes that no client holds both of, share of such pairs), in percent.

    NaN where the run has no confusion matrix of its end or no account of who holds what.
    """
    matrix = np.array(run.confusion.get("matrix", []), dtype=np.float64)
    holds = np.array(run.coverage.get("held", []), dtype=np.int64) > 0
    if matrix.ndim != 2 or holds.ndim != 2 or holds.shape[1] != matrix.shape[0]:
        return float("nan"), float("nan")
    pairs = ~np.eye(matrix.shape[0], dtype=bool)
    apart = pairs & ((holds.T.astype(np.int64) @ holds.astype(np.int64)) == 0)
    errors = matrix[pairs].sum()
    share = 100 * float(matrix[apart].sum() / errors) if errors else float("nan")
    return share, 100 * float(apart.sum() / pairs.sum())


def pulled(run: RunData, willing: set[int]) -> tuple[float, float, float, float]:
    """Of the classes that these clients hold, in percent of the test samples at the end: taken for one of them, being
    one of them, recall of theirs, recall of the others.

    NaN where the run has no confusion matrix of its end, or where these clients hold all classes or none.
    """
    matrix = np.array(run.confusion.get("matrix", []), dtype=np.float64)
    holds = np.array(run.coverage.get("held", []), dtype=np.int64) > 0
    nothing = (float("nan"),) * 4
    if matrix.ndim != 2 or holds.ndim != 2 or holds.shape[1] != matrix.shape[0]:
        return nothing
    theirs = holds[[client for client in sorted(willing) if client < len(holds)]].any(axis=0)
    if theirs.all() or not theirs.any():
        return nothing
    recall = 100 * np.diag(matrix) / np.maximum(matrix.sum(axis=1), 1)
    taken, being = (100 * float(matrix.sum(axis=axis)[theirs].sum() / matrix.sum()) for axis in (0, 1))
    return taken, being, float(recall[theirs].mean()), float(recall[~theirs].mean())


def pull(run: RunData) -> float:
    """Points by which more samples are taken for classes of the clients that asked most than belong to them."""
    taken, being, _, _ = pulled(run, most_willing(run))
    return taken - being


def above_half(run: RunData) -> float:
    """Points by which the share of questions of EV 0, of the clients that asked most, lies above one half."""
    return zero_share(run, willing=True) - 50.0


def above_even(run: RunData) -> float:
    """Points by which errors between classes that no client holds together lie above their share of all pairs."""
    errors, pairs = never_together(run)
    return errors - pairs


SPAN = 3
"""Rounds before and from an awakening over which the accuracy is taken."""


def fewer_dormant(run: RunData) -> list[int]:
    """The places of the rounds in which the dormant samples became fewer."""
    dormant = np.array([line.get("pools", {}).get("dormant", 0) for line in run.metrics])
    return [int(at) + 1 for at in np.flatnonzero(np.diff(dormant) < 0)]


def awakenings(run: RunData) -> list[int]:
    """Those of these places that have no other shortly before them: no round is after one and before the next."""
    fewer = fewer_dormant(run)
    return [at for at in fewer if not any(at - 2 * SPAN < other < at for other in fewer)]


def woken_changes(run: RunData) -> list[float]:
    """At each awakening, points by which the accuracy of ``SPAN`` rounds from it on differs from as many before.

    Those without as many rounds on both sides are left out.
    """
    values = accuracy(run)
    whole = [at for at in awakenings(run) if SPAN <= at <= values.size - SPAN]
    return [float(values[at : at + SPAN].mean() - values[at - SPAN : at].mean()) for at in whole]


def woken_change(run: RunData) -> float:
    """Points by which the accuracy changes when clients awaken frozen samples, on average; NaN where none counts."""
    changes = woken_changes(run)
    return float(np.mean(changes)) if changes else float("nan")
