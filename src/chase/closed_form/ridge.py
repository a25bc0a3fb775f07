"""The linear head: ridge regression on one-hot labels, solved from sums alone in float64.

With H = C + lambda I, C the features' scatter about their mean:  W = H^-1 B,  scores = (f - mean) W + class shares.
The intercept is not penalised.  The ridge weight minimises generalised cross-validation (Golub, Heath and Wahba 1979),

    GCV(lambda) = n RSS(lambda) / (n - df(lambda))^2,

which needs only C, B and the class counts: through eigenvalues while there are fewer samples than features, later
through Cholesky factors and a seeded estimate of the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log10

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lapack, solve_triangular

from chase.closed_form.feature_map import GRID, LEAST_RIDGE, Reals
from chase.closed_form.sums import Sums
from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.core.weights import Array

PROBES = 64
"""Random directions that estimate a trace where the scatter has full rank (Hutchinson 1990)."""
LARGEST = 1e3
"""Upper bound of the ridge weight, as a multiple of the mean eigenvalue; the lower one is ``LEAST_RIDGE``."""


@dataclass(frozen=True)
class Head:
    """A linear head on features, and what it was solved with."""

    weight: Reals
    """(width, classes)"""
    bias: Reals
    """(classes,)"""
    ridge: float
    noise: float = 0.0
    """Expected squared error per class and new sample, by cross-validation."""

    def scores(self, features: Reals) -> Reals:
        """Scores (samples, classes) of features (samples, width)."""
        return np.asarray(features @ self.weight + self.bias)

    def to_weights(self, temperature: float) -> dict[str, Array]:
        """As the last layer of a network whose softmax gives probabilities."""
        return {
            "head.weight": np.ascontiguousarray(self.weight.T / temperature).astype(np.float32),
            "head.bias": (self.bias / temperature).astype(np.float32),
        }


@dataclass(frozen=True)
class Centred:
    """The sums about the mean, in units of features."""

    scatter: Reals
    cross: Reals
    mean: Reals
    share: Reals
    """Share of each class."""
    samples: float
    """Whole, but where earlier sums count by a share."""
    spread: float
    """Squared deviation of the one-hot labels from their mean, summed."""

    @classmethod
    def of(cls, sums: Sums) -> Centred:
        """Refused in one sentence when nothing can be learnt from them."""
        held = int((sums.counts > 0).sum())
        if held < 2:
            raise DataError(
                f"labels of {held} class{'' if held == 1 else 'es'} are known, and a classifier needs two: label more"
            )
        n = float(sums.counts.sum())
        mean, share = sums.features / n, sums.counts / n
        scatter = (sums.outer - np.outer(sums.features, mean)) * GRID**2
        cross = (sums.cross - np.outer(sums.features, share)) * GRID
        return cls(scatter, cross, mean * GRID, share, n, float(n - (sums.counts**2).sum() / n))


def solve(sums: Sums, ridge: float | None = None, least: float = LEAST_RIDGE) -> Head:
    """The head for these sums; ``ridge`` None chooses the weight by generalised cross-validation, from ``least`` on."""
    centred = Centred.of(sums)
    error = validation(centred)
    chosen = best_ridge(error, centred, least) if ridge is None else ridge
    weight = cho_solve(factor(centred.scatter, chosen), centred.cross)
    bias = centred.share - centred.mean @ weight
    return Head(weight, bias, chosen, error(chosen) / sums.counts.size)


def factor(scatter: Reals, ridge: float) -> tuple[Reals, bool]:
    """Cholesky factor of scatter + ridge I; a singular system is refused."""
    whole = scatter + ridge * np.eye(scatter.shape[0])
    refusal = f"the system of {scatter.shape[0]} features is singular at ridge = {ridge:g}: set a larger ridge, or none"
    try:
        made: tuple[Reals, bool] = cho_factor(whole, lower=True, overwrite_a=True, check_finite=True)
    except (LinAlgError, ValueError):
        raise DataError(refusal) from None
    diagonal = np.abs(np.diagonal(made[0]))
    if diagonal.min() <= 1e-7 * diagonal.max():
        raise DataError(refusal)
    return made


def best_ridge(error: Callable[[float], float], centred: Centred, least: float = LEAST_RIDGE) -> float:
    """The ridge weight of least error: steps of ten from the middle, then of two; ``least`` mean eigenvalues or more.

    The error as a function of log lambda has one valley in practice; a walk needs a third of the grid's evaluations.
    """
    rank = max(1.0, min(centred.samples - 1, centred.mean.size))
    unit = float(np.trace(centred.scatter)) / rank
    if unit <= 0:
        raise DataError("all labelled samples have the same features: nothing can be learnt from them")
    known: dict[int, float] = {}

    def at(eighths: int) -> float:
        if not least <= 10 ** (eighths / 8) <= LARGEST:
            return float("inf")
        if eighths not in known:
            known[eighths] = error(unit * 10 ** (eighths / 8))
        return known[eighths]

    here = max(-8, ceil(8 * log10(least)))
    for step in (8, 4, 2):
        while True:
            there = min((here - step, here, here + step), key=lambda place: (at(place), -place))
            if there == here:
                break
            here = there
    return unit * 10 ** (here / 8)


def validation(centred: Centred) -> Callable[[float], float]:
    """The error of a new sample, summed over classes, as a function of the ridge weight."""
    low_rank = centred.samples - 1 < 0.7 * centred.mean.size
    make = _exact if low_rank else _probed
    return make(centred)


def _gcv(centred: Centred, fit: float, freedom: float) -> float:
    residual = max(centred.spread - fit, 0.0)
    left = max(centred.samples - 1.0 - freedom, 1e-9)
    return centred.samples * residual / left**2


def _exact(centred: Centred) -> Callable[[float], float]:
    """From the eigenvalues; a pivoted Cholesky first finds the few directions that samples span."""
    size = centred.mean.size
    lower, pivots, rank, _ = lapack.dpstrf(centred.scatter, lower=1, tol=1e-9 * max(1e-300, centred.scatter.max()))
    slim = np.tril(lower[:, :rank])
    cross = centred.cross[pivots - 1] if size else centred.cross
    values, vectors = eigh(slim.T @ slim)
    values = np.maximum(values, 1e-300)
    along = ((vectors.T @ (slim.T @ cross)) ** 2).sum(axis=1) / values

    def error(ridge: float) -> float:
        shrunk = values + ridge
        fit = float(((2.0 / shrunk - values / shrunk**2) * along).sum())
        return _gcv(centred, fit, float((values / shrunk).sum()))

    return error


def _probed(centred: Centred) -> Callable[[float], float]:
    """By one Cholesky factor per ridge weight, the trace by the same random signs for all of them."""
    size = centred.mean.size
    signs = rng(0, "probes", size).choice(np.array([-1.0, 1.0]), (size, PROBES))

    def error(ridge: float) -> float:
        try:
            lower = factor(centred.scatter, ridge)
        except DataError:
            return float("inf")
        weight = cho_solve(lower, centred.cross)
        fit = float((weight * centred.cross).sum() + ridge * (weight**2).sum())
        inverse = solve_triangular(lower[0], signs, lower=True)
        freedom = size - ridge * float((inverse**2).sum()) / PROBES
        return _gcv(centred, fit, freedom)

    return error
