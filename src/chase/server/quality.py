"""What a model's outputs on a test set say beyond accuracy: per class, over thresholds, calibrated or not, how sure.

All pure functions of probabilities (samples, classes) and class numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.closed_form.calibration import BINS

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]
SURE = 1.959964
"""Standard deviations of a 95 % interval."""


def sensitivity_specificity(labels: Labels, predicted: Labels, num_classes: int) -> list[dict[str, float | None]]:
    """For each class: share of its samples found, and share of the others not taken for it."""
    out: list[dict[str, float | None]] = []
    for c in range(num_classes):
        of, said = labels == c, predicted == c
        found = float(said[of].mean()) if of.any() else None
        spared = float((~said[~of]).mean()) if (~of).any() else None
        out.append({"sensitivity": found, "specificity": spared})
    return out


def auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: the chance that a positive sample scores above a negative one, ties half."""
    if positive.all() or not positive.any():
        return None
    order = np.argsort(scores, kind="stable")
    _, inverse, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = np.empty(scores.size)
    ranks[order] = (last - (counts - 1) / 2.0)[inverse]
    above = int(positive.sum())
    return float((ranks[positive].sum() - above * (above + 1) / 2) / (above * (scores.size - above)))


def balanced_accuracy(labels: Labels, predicted: Labels, num_classes: int) -> float:
    """The mean sensitivity over the classes that are tested."""
    rows = sensitivity_specificity(labels, predicted, num_classes)
    return float(np.mean([row["sensitivity"] for row in rows if row["sensitivity"] is not None]))


def reliability(probabilities: Probabilities, labels: Labels, bins: int = BINS) -> list[dict[str, float]]:
    """Samples by the confidence of their prediction: how many, how confident on average, how often right."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    at = np.minimum((sure * bins).astype(np.int64), bins - 1)
    return [
        {"count": int(here.sum()), "confidence": float(sure[here].mean()), "accuracy": float(right[here].mean())}
        for here in (at == b for b in range(bins))
        if here.any()
    ]


def expected_calibration_error(probabilities: Probabilities, labels: Labels, bins: int = BINS) -> float:
    """The mean gap between confidence and accuracy over the bins, weighted by their samples."""
    rows = reliability(probabilities, labels, bins)
    return float(sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in rows) / max(1, labels.size))


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score (1927)."""
    if not total:
        return 0.0, 1.0
    share, square = right / total, SURE**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = SURE * math.sqrt(share * (1 - share) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def majority(labels: Labels, num_classes: int) -> float:
    """The accuracy of always naming the most frequent class of the test set."""
    return float(np.bincount(labels, minlength=num_classes).max() / max(1, labels.size))


def quality(probabilities: Probabilities, labels: Labels, classes: tuple[str, ...]) -> dict[str, Any]:
    """All of it, as plain values for ``quality.json``."""
    predicted = probabilities.argmax(axis=1)
    right = int((predicted == labels).sum())
    rows = sensitivity_specificity(labels, predicted, len(classes))
    areas = [auc(probabilities[:, c], labels == c) for c in range(len(classes))]
    known = [area for area in areas if area is not None]
    per_class = [
        {"class": name, **row, "auc": area, "tested": int((labels == c).sum())}
        for c, (name, row, area) in enumerate(zip(classes, rows, areas, strict=True))
    ]
    return {
        "tested": int(labels.size),
        "accuracy": right / max(1, labels.size),
        "accuracy_interval": list(wilson(right, labels.size)),
        "majority_accuracy": majority(labels, len(classes)),
        "balanced_accuracy": balanced_accuracy(labels, predicted, len(classes)),
        "auc": sum(known) / len(known) if known else None,
        "ece": expected_calibration_error(probabilities, labels),
        "reliability": reliability(probabilities, labels),
        "classes": per_class,
    }
