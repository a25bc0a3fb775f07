"""Differential privacy of whole sites: clip each site's change, add noise, and count what has been spent.

Every site clips its change of the model to the length ``dp_clip`` and adds its part of Gaussian noise, so that the sum
over the ``quorum`` sites that a round needs carries noise of ``multiplier * dp_clip`` (a distributed Gaussian
mechanism: McMahan et al. 2018 with the noise added before the sum). All sites weigh the same. Who sees the models
learns about a site's taking part at most what (epsilon, delta) allows; the server itself only where it sees no more
than the sum (``secure = true``).

Epsilon is counted by Rényi differential privacy (Mironov 2017), with Opacus' accountant, for a site that takes part in
every round: no amplification by sampling is claimed. The sensitivity is ``dp_clip``: adding or removing one site.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from chase.core.errors import FederationError
from chase.core.weights import Array, Weights
from chase.server.robust import change_norm, scaled_change

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 128, 256, 512)
LARGEST_MULTIPLIER = 1e6


@cache
def epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """What so many rounds have spent."""
    if rounds == 0:
        return 0.0
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise FederationError(
            "differential privacy needs Opacus' accountant: install it with `pip install 'chase-fal[privacy]'`"
        ) from None
    spent = rdp.compute_rdp(q=1.0, noise_multiplier=multiplier, steps=rounds, orders=list(ORDERS))
    return float(rdp.get_privacy_spent(orders=list(ORDERS), rdp=spent, delta=delta)[0])


@cache
def noise_multiplier(target: float, rounds: int, delta: float) -> float:
    """The least noise, to three digits, with which so many rounds spend at most ``target``."""
    low, high = 1e-2, 1.0
    while epsilon(high, rounds, delta) > target:
        low, high = high, 2 * high
        if high > LARGEST_MULTIPLIER:
            raise FederationError(f"dp_epsilon = {target} over {rounds} rounds cannot be kept: allow more or run fewer")
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle, rounds, delta) > target else (low, middle)
    return high


def private_weights(
    start: Weights, weights: Weights, clip: float, sigma: float, rng: np.random.Generator
) -> dict[str, Array]:
    """Weights whose change from ``start`` is clipped to a length and has noise of ``sigma`` on every number.

    Counters keep the value that they started with.
    """
    norm = change_norm(start, weights)
    clipped = scaled_change(start, weights, min(1.0, clip / norm) if norm else 1.0)
    out: dict[str, Array] = {}
    for name, array in clipped.items():
        if np.issubdtype(array.dtype, np.floating):
            out[name] = (array + rng.normal(scale=sigma, size=array.shape)).astype(array.dtype)
        else:
            out[name] = start[name]
    return out


def site_sigma(multiplier: float, clip: float, sites: int) -> float:
    """The noise of one site, of at least so many that are summed."""
    return multiplier * clip / math.sqrt(sites)
