"""How good a model is on a labelled test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from chase.closed_form.calibration import Reliability, reliability
from chase.server.quality import auc


@dataclass(frozen=True)
class Scores:
    """What one evaluation found."""

    accuracy: float
    loss: float
    macro_f1: float
    per_class: list[float | None]
    """Accuracy of each class; None for a class without test samples."""
    calibration_error: float
    """Mean distance between how sure the model is and how often it is right (ECE, 15 bins)."""


def mean_auc(outputs: Tensor, labels: NDArray[np.int64]) -> float | None:
    """Area under the ROC curve, one class against the rest, mean over the classes that are tested; None without any."""
    probabilities = outputs.double().softmax(dim=1).numpy()
    areas = [auc(probabilities[:, c], labels == c) for c in range(probabilities.shape[1])]
    known = [area for area in areas if area is not None]
    return sum(known) / len(known) if known else None


def confusion(outputs: Tensor, labels: NDArray[np.int64], num_classes: int) -> Tensor:
    """How many samples of each class (rows) were taken for each class (columns)."""
    pairs = torch.from_numpy(labels) * num_classes + outputs.argmax(dim=1)
    return torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, -1)


def score(outputs: Tensor, labels: NDArray[np.int64], num_classes: int) -> Scores:
    """Scores of outputs (samples, classes) against class numbers."""
    table = confusion(outputs, labels, num_classes)
    right, held, claimed = table.diagonal().double(), table.sum(1).double(), table.sum(0).double()
    f1 = (2 * right / (held + claimed).clamp(min=1))[held > 0]
    return Scores(
        accuracy=float(right.sum() / max(1, labels.size)),
        loss=float(F.cross_entropy(outputs, torch.from_numpy(labels))),
        macro_f1=float(f1.mean()),
        per_class=[float(r / h) if h else None for r, h in zip(right, held, strict=True)],
        calibration_error=calibrated(outputs, labels).error,
    )


def calibrated(outputs: Tensor, labels: NDArray[np.int64]) -> Reliability:
    """Confidence against accuracy of outputs (samples, classes), in bins."""
    return reliability(outputs.double().softmax(dim=1).numpy(), labels)


SCORE_NAMES = ("test_accuracy", "test_loss", "macro_f1", "calibration_error", "per_class")
"""The names of the scores in a line of metrics; all None in a round that is not evaluated."""


def score_metrics(found: Scores) -> dict[str, Any]:
    """Scores under the names they have in a line of metrics."""
    values = (found.accuracy, found.loss, found.macro_f1, found.calibration_error, found.per_class)
    return dict(zip(SCORE_NAMES, values, strict=True))


def mean_scores(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The unweighted mean of several models' scores: how isolated clients are reported."""
    mean = {name: sum(scores[name] for scores in each) / len(each) for name in SCORE_NAMES[:-1]}
    columns = zip(*(scores["per_class"] for scores in each), strict=True)
    per_class = [None if column[0] is None else sum(column) / len(column) for column in columns]
    areas = [scores["auc"] for scores in each if scores.get("auc") is not None]
    return mean | {"per_class": per_class} | ({"auc": sum(areas) / len(areas)} if areas else {})
