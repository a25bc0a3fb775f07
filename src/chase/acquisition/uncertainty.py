"""Scores of predicted probabilities in plain NumPy: for strategies, and for the labelling page, which has no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


def margin(probs: Scores) -> Scores:
    """p1 - p2 of probs (samples, classes); with one class, p1 -> (samples,)."""
    if probs.shape[1] < 2:
        return np.asarray(probs.sum(axis=1), dtype=np.float64)
    second, first = np.partition(probs, -2, axis=1)[:, -2:].T
    return np.asarray(first - second, dtype=np.float64)


def entropy(probs: Scores) -> Scores:
    """-sum p log p of probs (..., classes), natural logarithm, with 0 log 0 = 0 -> (...)."""
    safe = np.where(probs > 0, probs, 1.0)
    return np.asarray(-(probs * np.log(safe)).sum(axis=-1), dtype=np.float64)


def confidence(probs: Scores) -> Scores:
    """max p of probs (samples, classes) -> (samples,)."""
    return np.asarray(probs.max(axis=1), dtype=np.float64)


def argmax_random(values: Scores, rng: np.random.Generator) -> int:
    """A position of the largest value, drawn evenly where several have it."""
    best = np.flatnonzero(values == values.max())
    return int(best[0] if best.size == 1 else rng.choice(best))


def balanced(
    predicted: NDArray[np.int64], scores: Scores, counts: NDArray[np.int64], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of k samples: each of the predicted class with the fewest labels, the one of highest score.

    predicted (samples,), scores (samples,), counts (classes,): labels that each class has.
    """
    held = counts.astype(np.float64)
    free = np.ones(predicted.size, dtype=bool)
    picked: list[int] = []
    for _ in range(min(k, predicted.size)):
        there = np.bincount(predicted[free], minlength=held.size) > 0
        which = argmax_random(np.where(there, -held, -np.inf), rng)
        rows = np.flatnonzero(free & (predicted == which))
        row = int(rows[argmax_random(scores[rows], rng)])
        picked.append(row)
        free[row] = False
        held[which] += 1.0
    return np.array(picked, dtype=np.int64)


LIVE = ("margin", "balanced-margin", "entropy", "least-confidence", "posterior")
"""Strategies whose order can be computed again after each answer on the labelling page."""


def ranking(strategy: str, probs: Scores, variances: Scores, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of samples, what the strategy asks first at the front; ties as they come.

    probs (samples, classes), variances (samples,) of the model's scores, counts (classes,): labels that each class has.
    """
    if strategy == "balanced-margin":
        predicted = probs.argmax(axis=1).astype(np.int64)
        return balanced(predicted, -margin(probs), counts, predicted.size, np.random.default_rng(0))
    scores = {
        "margin": -margin(probs),
        "entropy": entropy(probs),
        "least-confidence": -confidence(probs),
        "posterior": variances,
    }
    return np.argsort(-scores[strategy], kind="stable").astype(np.int64)
