"""A new sample, or a second opinion on one that has a label? The score of ActiveLab (Goh and Mueller, 2023).

The score of a sample is how far its consensus label can be trusted, from the model's probability and from the people
who answered, each weighted by how much better they do than always naming the commonest class; low scores are asked
first, labelled or not. An average person who has not spoken yet stands in every score with chance level, so that a
sample with few answers is never fully trusted.

Departures: people's quality is given (by Dawid-Skene, say) rather than estimated from the consensus inside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def weight(quality: float | Floats, commonest: float) -> Floats:
    """How much somebody counts: 1 if never wrong, 0 if no better than naming the commonest class (share given)."""
    return np.clip(1 - (1 - np.asarray(quality, dtype=np.float64)) / max(1 - commonest, 1e-9), 1e-3, 1.0)


def labelled_score(
    probabilities: Floats, votes: Sequence[tuple[int, float]], consensus: int, model_quality: float, commonest: float
) -> float:
    """Trust in a label: the model's probabilities (classes,), votes as (class, the voter's quality)."""
    classes = probabilities.size
    w_model = float(weight(model_quality, commonest))
    qualities = np.array([quality for _, quality in votes])
    w_people = weight(qualities, commonest)
    typical = float(qualities.mean()) if len(votes) else 1 / classes
    said = [typical if label == consensus else (1 - typical) / (classes - 1) for label, _ in votes]
    w_next = float(w_people.mean()) if len(votes) else 1.0
    total = w_model * probabilities[consensus] + float(w_people @ np.array(said)) + w_next / classes
    return float(total / (w_model + float(w_people.sum()) + w_next))


def new_score(probabilities: Floats, quality: float, model_quality: float, commonest: float) -> Floats:
    """The same for samples nobody has answered: probabilities (samples, classes), the quality of a typical person."""
    w_model, w_next = float(weight(model_quality, commonest)), float(weight(quality, commonest))
    return np.asarray((w_model * probabilities.max(1) + w_next / probabilities.shape[1]) / (w_model + w_next))
