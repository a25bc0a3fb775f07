"""Where data sets come from, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from chase.core.errors import DataError, unknown
from chase.core.randomness import rng
from chase.data.resident import DataSet, Samples

DIGITS_TEST = 0.2


def digits() -> DataSet:
    """scikit-learn's 8x8 digits, a fixed fifth of each class held out for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255.0 / 16.0)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    order = rng(0, "digits-split").permutation(labels.size)
    test = np.concatenate([order[labels[order] == c][: round(DIGITS_TEST * (labels == c).sum())] for c in range(10)])
    held_out = np.zeros(labels.size, dtype=bool)
    held_out[test] = True
    return DataSet(
        name="digits",
        train=Samples(torch.from_numpy(images[~held_out]), mean=(0.305,), std=(0.376,)),
        train_labels=labels[~held_out],
        test=Samples(torch.from_numpy(images[held_out]), mean=(0.305,), std=(0.376,)),
        test_labels=labels[held_out],
        classes=tuple("0123456789"),
    )


SOURCES: dict[str, Callable[[], DataSet]] = {"digits": digits}


def load(name: str, data_dir: str = "") -> DataSet:
    """A data set by name."""
    if name not in SOURCES:
        raise DataError(unknown("data set", name, SOURCES))
    return SOURCES[name]()
