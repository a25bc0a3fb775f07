"""A data set as it is kept on disk: plain arrays and a small description, ready to become a ``DataSet``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.data.names import Names
from chase.data.resident import Column, DataSet, Kind, Samples

Inputs = NDArray[Any]
"""uint8 images (n, c, h, w), tokens (n, length), float32 vectors (n, width) or table rows (n, columns)."""
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class DataPart:
    """Inputs, class numbers (-1 unknown) and, where known, owners and own names of one part of a data set."""

    inputs: Inputs
    labels: Labels
    owners: Labels | None = None
    names: Names | None = None
    """What the user calls each sample."""
    texts: Names | None = None
    """Texts as people read them."""
    files: Names | None = None
    """The original file of each sample."""

    def take(self, rows: NDArray[np.int64]) -> DataPart:
        """Only these rows, in this order."""
        owners = None if self.owners is None else self.owners[rows]
        packed = (None if texts is None else texts.take(rows) for texts in (self.names, self.texts, self.files))
        return DataPart(self.inputs[rows], self.labels[rows], owners, *packed)


@dataclass(frozen=True)
class Decoded:
    """Both parts and what belongs to the data set as a whole."""

    name: str
    kind: Kind
    train: DataPart
    test: DataPart
    classes: tuple[str, ...]
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    owner_names: tuple[str, ...] = ()
    owner_sizes: tuple[int, ...] = ()
    """Samples of each owner, those between training and test part included."""
    vocabulary: int = 0
    """Number of distinct tokens, for texts."""
    scale: tuple[float, float] = (0.0, 255.0)
    """The values of the pictures that became 0 and 255."""
    seconds: float = 0.0
    """Recordings: their length."""
    columns: tuple[Column, ...] = ()
    """What the columns are, for a table."""
    problems: tuple[str, ...] = field(default=())
    """What a user should know: duplicates, skipped files."""
    reading: Mapping[str, str] = field(default_factory=dict)
    """Which columns of a table were read, by setting; empty where it is no table."""
    entry: str = ""
    """The cache's name for it, which its content decides; empty where it is not in the cache."""

    def data_set(self) -> DataSet:
        """The resident form; nothing is copied, so memory-mapped arrays stay shared."""
        return DataSet(
            name=self.name,
            train=self._samples(self.train),
            train_labels=self.train.labels,
            test=self._samples(self.test),
            test_labels=self.test.labels,
            classes=self.classes,
            groups=self.train.owners,
            group_names=self.owner_names,
            test_groups=self.test.owners,
            group_sizes=self.owner_sizes,
            problems=self.problems,
            train_names=self.train.names,
            test_names=self.test.names,
            train_texts=self.train.texts,
            test_texts=self.test.texts,
            train_files=self.train.files,
            seconds=self.seconds,
            reading=self.reading,
        )

    def _samples(self, part: DataPart) -> Samples:
        return Samples(
            torch.from_numpy(part.inputs),
            self.kind,
            self.mean,
            self.std,
            vocabulary=self.vocabulary,
            columns=self.columns,
            scale=self.scale,
        )
