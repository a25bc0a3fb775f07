"""Posterior variance of a ridge model on the features, batch-aware (a Gaussian process with a linear kernel).

The variance of a candidate x given the labelled samples X is x'(X'X + ridge I)^-1 x: what the labels say nothing about.
After each pick the variances are updated as if its label were known (it does not matter which label), so a batch
does not ask the same thing ten times. Features are centred at the candidates' mean.

The update works on inner products: with k = x x'/ridge, each labelled or picked sample p takes away
cov(., p)^2 / (1 + var(p)), and cov is deflated by those before: a Cholesky factor that grows by one column a sample.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from chase.acquisition.strategy import PoolView, Scores, argmax_random
from chase.core.pools import SampleIds

Points = NDArray[np.floating]
RIDGE = 0.1
"""Ridge weight, as a share of the candidates' mean squared length."""


def posterior_variances(points: Points, labeled: Points, ridge: float) -> tuple[Scores, NDArray[np.float64]]:
    """Variances of points (samples, width) given labelled ones, and the factor (labelled, samples) they leave."""
    exact, known = points.astype(np.float64), labeled.astype(np.float64)
    prior = (exact**2).sum(axis=1) / ridge
    if known.shape[0] == 0:
        return prior, np.zeros((0, exact.shape[0]))
    lower = cholesky(known @ known.T / ridge + np.eye(known.shape[0]), lower=True)
    taken = solve_triangular(lower, known @ exact.T / ridge, lower=True)
    return np.maximum(prior - (taken**2).sum(axis=0), 0.0), taken


def greedy_by_variance(
    points: Points, labeled: Points, ridge: float, k: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Scores]:
    """Rows of k points, each of the largest variance given the labelled and those before; and the first variances."""
    exact = points.astype(np.float64)
    variance, taken = posterior_variances(points, labeled, ridge)
    first = variance
    columns = [taken]
    picked: list[int] = []
    for _ in range(min(k, exact.shape[0])):
        free = variance.copy()
        free[picked] = -1.0
        row = argmax_random(free, rng)
        picked.append(row)
        covariance = exact @ exact[row] / ridge
        for column in columns:
            covariance -= column[:, row] @ column
        step = covariance / np.sqrt(1.0 + max(covariance[row], 0.0))
        columns.append(step[None])
        variance = np.maximum(variance - step**2, 0.0)
    return np.array(picked, dtype=np.int64), first


class Posterior:
    """The samples that the labelled ones say least about, each in another direction."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates by posterior variance."""
        if budget == 0:
            return pool.ids[:0]
        points = pool.features().astype(np.float64)
        centre = points.mean(axis=0)
        points -= centre
        ridge = RIDGE * float((points**2).sum(axis=1).mean()) or 1.0
        labeled = pool.labeled_features() - centre if pool.labeled_ids.size else points[:0]
        rows, pool.scores = greedy_by_variance(points, labeled, ridge, budget, rng)
        return pool.ids[rows]
