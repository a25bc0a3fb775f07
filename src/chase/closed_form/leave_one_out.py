"""Scores of labelled samples by a head that has not seen them, without solving again.

With H = C + lambda I and n samples, the head solved without sample i scores it y - (y - s) / (1 - h), where s is its
score by the head of all samples and h its leverage (Cook and Weisberg 1982):

    h = 1 / n + (x - mean)' H^-1 (x - mean).

The server sends H^-1 to the clients; each sends its summed log losses at fixed temperatures (``calibration``).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from chase.closed_form.calibration import SHARPNESS, TEMPERATURES, by_leave_one_out
from chase.closed_form.feature_map import Reals
from chase.closed_form.ridge import Centred, factor
from chase.closed_form.sums import Sums, pack, unpack
from chase.core.weights import Array, Arrays

LOO = "loo."
"""Prefix of what goes down and comes up for it."""
LOSSES = f"{LOO}losses"


def system(sums: Sums, ridge: float, temperature: float) -> dict[str, Array]:
    """What a client needs to leave samples out: half of H^-1 in float32, the mean, and (n, temperature)."""
    centred = Centred.of(sums)
    inverse = cho_solve(factor(centred.scatter, ridge), np.eye(centred.mean.size))
    return {
        f"{LOO}inverse": pack(inverse).astype(np.float32),
        f"{LOO}mean": centred.mean,
        f"{LOO}about": np.array([centred.samples, temperature]),
    }


def leverage(features: Reals, arrays: Arrays) -> Reals:
    """How much each of these samples (samples, width) decides its own score."""
    inverse = unpack(arrays[f"{LOO}inverse"].astype(np.float64), features.shape[1])
    apart = features - arrays[f"{LOO}mean"]
    return np.asarray(1.0 / arrays[f"{LOO}about"][0] + ((apart @ inverse) * apart).sum(axis=1))


def leverage_from(features: Reals, sums: Sums, ridge: float) -> Reals:
    """The same where the sums are at hand: without the inverse, which takes longer than a few hundred samples."""
    centred = Centred.of(sums)
    apart = features - centred.mean
    return np.asarray(
        1.0 / centred.samples + (apart * cho_solve(factor(centred.scatter, ridge), apart.T).T).sum(axis=1)
    )


def sharpness(losses: Reals, noise: float) -> float:
    """The temperature of least loss as a share of the root of the expected squared error; the usual one without it."""
    if noise <= 0 or not np.isfinite(losses).all() or losses.shape != TEMPERATURES.shape:
        return SHARPNESS
    return by_leave_one_out(losses) / float(np.sqrt(noise))
