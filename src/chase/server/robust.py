"""What one bad update can do to the average, and how to bound it.

    sort_norms      An update whose change is far larger than the median change of the round is clipped to a multiple of
                    it, and refused when it is larger still (Sun et al. 2019, "Can You Really Backdoor FL?").
    median          Coordinate-wise median of the updates, without weights (Yin et al. 2018).
    trimmed_mean    Coordinate-wise mean without the largest and smallest share of values (Yin et al. 2018).
    capped_shares   No client's weight in the average is more than a share of it.

All are pure functions of named arrays. They hold while fewer than half of the updates are bad; of two updates nobody
can say which is the bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from chase.core.errors import UpdateError
from chase.core.messages import ClientId
from chase.core.weights import Array, Weights


def change_norm(start: Weights, weights: Weights) -> float:
    """Length of the change from one set of weights to another, over all arrays of real numbers."""
    total = 0.0
    for name, array in weights.items():
        if np.issubdtype(array.dtype, np.floating):
            total += float(np.square(array.astype(np.float64) - start[name].astype(np.float64)).sum())
    return float(np.sqrt(total))


def scaled_change(start: Weights, weights: Weights, factor: float) -> dict[str, Array]:
    """start + factor * (weights - start) for real numbers; counters as they are."""
    out: dict[str, Array] = {}
    for name, array in weights.items():
        if not np.issubdtype(array.dtype, np.floating):
            out[name] = array
            continue
        origin = start[name].astype(np.float64)
        out[name] = (origin + factor * (array.astype(np.float64) - origin)).astype(array.dtype)
    return out


def sort_norms(
    norms: Mapping[ClientId, float], clip: float, refuse: float, reference: float = 0.0
) -> tuple[dict[ClientId, float], dict[ClientId, float], float]:
    """Who is clipped and who refused, by how many times the median their change is; and that median.

    Of fewer than three updates the median says nothing: an earlier ``reference`` is used, or none.
    """
    middle = float(np.median(list(norms.values()))) if len(norms) >= 3 else reference
    times = {client: norm / middle if middle > 0 else 0.0 for client, norm in norms.items()}
    refused = {client: much for client, much in times.items() if refuse and much > refuse}
    clipped = {client: much for client, much in times.items() if client not in refused and clip and much > clip}
    return clipped, refused, middle


def median(parts: Sequence[Weights]) -> dict[str, Array]:
    """Coordinate-wise median; counters take the largest value, as in the mean."""
    return _by_coordinate(parts, lambda stack: np.asarray(np.median(stack, axis=0)))


def trimmed_mean(parts: Sequence[Weights], trim: float) -> dict[str, Array]:
    """Coordinate-wise mean without the ``trim`` share of values at either end, at least one of three or more."""
    cut = int(trim * len(parts))
    if trim > 0 and cut == 0 and len(parts) >= 3:
        cut = 1
    return _by_coordinate(parts, lambda stack: np.sort(stack, axis=0)[cut : len(parts) - cut].mean(axis=0))


def _by_coordinate(parts: Sequence[Weights], rule: Callable[[Array], Array]) -> dict[str, Array]:
    if not parts:
        raise UpdateError("a combination of no updates was asked for")
    out: dict[str, Array] = {}
    for name, like in parts[0].items():
        stack = np.stack([part[name] for part in parts])
        if np.issubdtype(like.dtype, np.floating):
            out[name] = rule(stack.astype(np.float64)).astype(like.dtype)
        else:
            out[name] = stack.max(axis=0)
    return out


def capped_shares(weights: Mapping[ClientId, float], most: float) -> dict[ClientId, float]:
    """Weights of which none is more than the share ``most`` of their sum; equal ones where that cannot be.

    The clients over the cap are set to it together, and the others keep their proportions.
    """
    total = sum(weights.values())
    if most <= 0 or most >= 1 or total <= 0:
        return dict(weights)
    if most * len(weights) <= 1:
        return dict.fromkeys(weights, total / len(weights))
    held: set[ClientId] = set()
    while True:
        free = sum(w for c, w in weights.items() if c not in held)
        left = total * (1 - most * len(held))
        found = {c: total * most if c in held else (w * left / free if free else 0.0) for c, w in weights.items()}
        over = {c for c, w in found.items() if w > total * most * (1 + 1e-12)}
        if not over - held:
            return found
        held |= over
