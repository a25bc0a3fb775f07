"""What a linear head needs to know of labelled samples: sums that add up over clients, exactly.

With features as whole multiples of a grid (``feature_map``), every entry is an integer below 2**53, so adding and
removing are exact in float64: the sums of the union of two clients' samples are the same bits as the sum of their
sums, and a sample that is added and removed again leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from chase.closed_form.feature_map import Codes, Reals
from chase.core.weights import Array, Arrays

CHUNK = 1024
"""Samples whose float64 copies exist at a time."""
BLOCK = 128
"""Rows and columns that are mirrored at a time."""
NAMES = ("outer", "cross", "features", "counts")


@dataclass(frozen=True)
class Sums:
    """Sums over labelled samples, in units of the grid."""

    outer: Reals
    """Features times features (width, width), symmetric."""
    cross: Reals
    """Features by class (width, classes)."""
    features: Reals
    """Features (width,)."""
    counts: Reals
    """Samples per class (classes,)."""

    @classmethod
    def empty(cls, width: int, classes: int) -> Sums:
        """Sums of no samples."""
        return cls(np.zeros((width, width)), np.zeros((width, classes)), np.zeros(width), np.zeros(classes))

    @classmethod
    def of(cls, codes: Codes | Reals, labels: NDArray[np.int64], classes: int) -> Sums:
        """Sums of samples with these features (samples, width), in units of the grid, and class numbers (samples,)."""
        parts = [
            cls._chunk(codes[at : at + CHUNK].astype(np.float64), labels[at : at + CHUNK], classes)
            for at in range(0, codes.shape[0], CHUNK)
        ]
        return reduce(cls.plus, parts) if parts else cls.empty(codes.shape[1], classes)

    @classmethod
    def _chunk(cls, values: Reals, labels: NDArray[np.int64], classes: int) -> Sums:
        truth = np.zeros((values.shape[0], classes))
        truth[np.arange(values.shape[0]), labels] = 1.0
        return cls(values.T @ values, values.T @ truth, values.sum(axis=0), truth.sum(axis=0))

    @property
    def samples(self) -> int:
        """How many samples were summed."""
        return int(self.counts.sum())

    @property
    def width(self) -> int:
        """Features per sample."""
        return int(self.features.size)

    def plus(self, other: Sums) -> Sums:
        """The sums of both sets of samples."""
        return Sums(*(getattr(self, name) + getattr(other, name) for name in NAMES))

    def minus_any(self, other: Sums) -> Sums:
        """The difference, which need not be the sums of samples: what a client's labels have changed by."""
        return Sums(*(getattr(self, name) - getattr(other, name) for name in NAMES))

    def to_arrays(self) -> dict[str, Array]:
        """Named arrays for a message or a file; of the symmetric matrix one half."""
        return {"outer": pack(self.outer), "cross": self.cross, "features": self.features, "counts": self.counts}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Sums:
        """The sums that ``to_arrays`` gave."""
        outer = unpack(arrays["outer"], arrays["features"].size)
        return cls(outer, arrays["cross"], arrays["features"], arrays["counts"])


def pack(square: Reals) -> Reals:
    """The upper half of a symmetric matrix, row after row; whole rows are copied, for speed."""
    return np.concatenate([square[row, row:] for row in range(square.shape[0])]) if square.size else square.ravel()


def unpack(half: Reals, width: int) -> Reals:
    """The symmetric matrix that ``pack`` took apart."""
    square, at = np.empty((width, width)), 0
    for row in range(width):
        square[row, row:] = half[at : at + width - row]
        at += width - row
    for row in range(0, width, BLOCK):
        end = min(row + BLOCK, width)
        square[end:, row:end] = square[row:end, end:].T
        block = square[row:end, row:end]
        block[:] = np.triu(block) + np.triu(block, 1).T
    return square
