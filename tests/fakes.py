"""A pool whose predictions are given, for strategies on numbers worked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class FakePool(SimpleNamespace):
    def __len__(self) -> int:
        return int(self.ids.size)


def fake_pool(
    *,
    label_changes: np.ndarray | None = None,
    probs: np.ndarray | None = None,
    features: np.ndarray | None = None,
    labeled_features: np.ndarray | None = None,
    labeled_classes: np.ndarray | None = None,
) -> Any:
    """Ids 0, 1, ...; whatever is not given must not be asked for."""
    given = next(a for a in (label_changes, probs, features) if a is not None)
    classes = 2 if probs is None else probs.shape[1]
    labeled = np.array([0]) if labeled_classes is None else labeled_classes
    return FakePool(
        ids=np.arange(len(given)),
        num_classes=classes,
        label_changes=label_changes,
        labeled_ids=np.arange(0 if labeled_features is None else len(labeled_features)),
        class_counts=np.bincount(labeled, minlength=classes),
        probs=lambda which=None: probs,
        logits=lambda which=None: np.log(probs + 1e-12),
        features=lambda which=None: features,
        labeled_features=lambda which=None: labeled_features,
    )
