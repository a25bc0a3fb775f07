"""How far people agree: Cohen's kappa of each pair, Krippendorff's alpha over all and per class, with intervals.

Kappa (Cohen 1960) compares two people on the samples that both answered; alpha (Krippendorff 2004, nominal) takes
any number of people and missing answers. A class's alpha asks "this class or another". Intervals are percentile
bootstraps over samples, seeded. Where only one class was ever used neither is defined, and None stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.randomness import rng

RESAMPLES = 1000
LEVEL = 0.95
Vote = tuple[int, str, int]
"""Sample, annotator, class."""
Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A coefficient with its interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Pair:
    """Two people on the samples that both answered."""

    first: str
    second: str
    samples: int
    same: float
    """Share of equal answers."""
    kappa: Estimate


@dataclass(frozen=True)
class ClassAgreement:
    """One class against all others."""

    name: str
    samples: int
    """Samples that somebody gave this class."""
    alpha: Estimate


@dataclass(frozen=True)
class AnnotatorAgreement:
    """All of it."""

    samples: int
    """Samples with two answers or more."""
    alpha: Estimate
    pairs: tuple[Pair, ...]
    classes: tuple[ClassAgreement, ...]

    def to_json(self) -> dict[str, Any]:
        """For the page and the report."""
        return asdict(self)


def krippendorff_alpha(counts: Counts, weights: Counts | None = None) -> NDArray[np.float64]:
    """Nominal alpha of counts (samples, classes), for each row of weights (resamples, samples); NaN if undefined.

    Samples with fewer than two answers must be left out.
    """
    weights = np.ones((1, counts.shape[0])) if weights is None else weights
    m = counts.sum(1)
    observed = weights @ ((m**2 - (counts**2).sum(1)) / (m - 1))
    per_class = weights @ counts
    n = per_class.sum(1)
    expected = n**2 - (per_class**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(expected > 0, 1 - (n - 1) * observed / expected, np.nan))


def cohen_kappa(table: Counts) -> NDArray[np.float64]:
    """Kappa of tables (..., classes, classes) of the first's answers by the second's; NaN if undefined."""
    n = table.sum((-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = np.trace(table, axis1=-2, axis2=-1) / n
        chance = (table.sum(-1) * table.sum(-2)).sum(-1) / n**2
        return np.asarray(np.where(chance < 1, (seen - chance) / (1 - chance), np.nan))


def _estimate(value: float, resampled: NDArray[np.float64]) -> Estimate:
    if np.isnan(value):
        return Estimate(None)
    defined = resampled[~np.isnan(resampled)]
    if defined.size < RESAMPLES // 2:
        return Estimate(float(value))
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high))


def _alpha(counts: Counts, name: str) -> Estimate:
    n = counts.shape[0]
    if n == 0:
        return Estimate(None)
    weights = rng(0, "bootstrap", name).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)
    return _estimate(float(krippendorff_alpha(counts)[0]), krippendorff_alpha(counts, weights))


def _pair(first: str, second: str, both: Sequence[tuple[int, int]], num_classes: int) -> Pair:
    table = np.zeros((num_classes, num_classes))
    np.add.at(table, tuple(np.array(both).T), 1.0)
    n = len(both)
    draws = rng(0, "bootstrap", first, second).multinomial(n, table.reshape(-1) / n, size=RESAMPLES)
    kappa = _estimate(float(cohen_kappa(table)), cohen_kappa(draws.reshape(-1, num_classes, num_classes).astype(float)))
    return Pair(first, second, n, float(np.trace(table) / n), kappa)


def agreement(votes: Sequence[Vote], classes: Sequence[str]) -> AnnotatorAgreement:
    """How far these votes agree; a person has at most one vote per sample."""
    by_sample: dict[int, dict[str, int]] = {}
    for sample, who, label in votes:
        by_sample.setdefault(sample, {})[who] = label
    shared = [by_sample[sample] for sample in sorted(by_sample) if len(by_sample[sample]) > 1]
    counts = np.zeros((len(shared), len(classes)))
    for row, said in enumerate(shared):
        np.add.at(counts[row], list(said.values()), 1.0)
    pairs = []
    for first, second in combinations(sorted({who for said in shared for who in said}), 2):
        both = [(said[first], said[second]) for said in shared if first in said and second in said]
        if both:
            pairs.append(_pair(first, second, both, len(classes)))
    totals, used = counts.sum(1), np.flatnonzero(counts.sum(0)).tolist()
    per_class = tuple(
        ClassAgreement(
            name, int((counts[:, c] > 0).sum()), _alpha(np.stack([counts[:, c], totals - counts[:, c]], 1), name)
        )
        for c, name in ((c, classes[c]) for c in used)
    )
    return AnnotatorAgreement(len(shared), _alpha(counts, "alpha"), tuple(pairs), per_class)
