"""Samples that are decoded once and stay in memory.

Images are uint8 (samples, channels, height, width), or float32 from 0 to 255 where they had
more than 8 bits; texts are token ids (samples, length), vectors are
float32 (samples, width), table rows are float32 (samples, columns): a number, NaN where it is missing, or
the code of a category.
``Samples`` has no labels at all: what a client or a strategy holds cannot leak a truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.core.errors import DataError
from chase.core.pools import SampleIds, is_in
from chase.data.kinds import Column as Column
from chase.data.kinds import Kind as Kind
from chase.data.kinds import row_cells as row_cells
from chase.data.names import Names


def coded_rows(raw: Tensor, columns: tuple[Column, ...], means: tuple[float, ...], stds: tuple[float, ...]) -> Tensor:
    """Table rows as numbers: a standardised value and a flag for a missing one, one flag per category."""
    mean, std = np.broadcast_to(means, len(columns)), np.broadcast_to(stds, len(columns))
    parts: list[Tensor] = []
    for at, column in enumerate(columns):
        cells = raw[:, at]
        missing = cells.isnan()
        if column.kind == "numeric":
            value = ((cells - float(mean[at])) / float(std[at])).masked_fill(missing, 0.0)
            parts.append(torch.stack([value, missing.float()], dim=1))
        else:
            codes = torch.arange(len(column.values), dtype=torch.float32)
            parts.append((cells[:, None] == codes).float())
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Samples:
    """Inputs by sample id, without labels."""

    inputs: Tensor
    """uint8 images (n, c, h, w), integer tokens (n, length), float32 vectors (n, width) or rows (n, columns)."""
    kind: Kind = "image"
    mean: tuple[float, ...] = (0.0,)
    """Per channel, of values scaled to 0..1, or per column, or one for all; belongs to the data set."""
    std: tuple[float, ...] = (1.0,)
    ids: SampleIds | None = None
    """Sorted ids of the rows; None when id and row are the same."""
    vocabulary: int = 0
    """Number of distinct tokens, for texts."""
    columns: tuple[Column, ...] = ()
    """What the columns of a table are."""
    scale: tuple[float, float] = (0.0, 255.0)
    """The lowest and the highest value of the pictures as they are in their files; 0 and 255 of ``inputs``."""

    def __post_init__(self) -> None:
        if self.kind == "table" and len(self.columns) != self.inputs.shape[1]:
            raise DataError(f"a table of {self.inputs.shape[1]} columns comes with {len(self.columns)} descriptions")
        # Rows are found by bisection: among ids that do not rise another sample's row would be found.
        if self.ids is not None and (self.ids.size != len(self) or (self.ids[1:] <= self.ids[:-1]).any()):
            raise DataError(f"the ids of {len(self)} samples are not one each in rising order: their file is damaged")

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample as a network takes it."""
        if self.kind == "table":
            return (sum(column.width for column in self.columns),)
        return tuple(self.inputs.shape[1:])

    def rows(self, ids: SampleIds) -> Tensor:
        """Row numbers of ids, as an int64 tensor."""
        if self.ids is None:
            return torch.from_numpy(np.ascontiguousarray(ids))
        if not is_in(ids, self.ids).all():
            raise DataError(f"{int((~is_in(ids, self.ids)).sum())} asked-for samples are not in this data")
        return torch.from_numpy(np.searchsorted(self.ids, ids))

    def ready(self, rows: Tensor) -> Tensor:
        """The rows as the network takes them: normalised float32 images or vectors, int64 tokens, coded table rows.

        ``index_select`` gives plain strides whatever those of ``inputs``; with a dimension of size one
        torch may otherwise take another convolution kernel and the last bits differ between processes.
        """
        raw = self.inputs.index_select(0, rows)
        if self.kind == "text":
            return raw.long()
        if self.kind == "vectors":
            return raw.float().sub(torch.tensor(self.mean)).div_(torch.tensor(self.std))
        if self.kind == "table":
            return coded_rows(raw, self.columns, self.mean, self.std)
        scale, shift = self._scale
        return raw.float().mul_(scale).sub_(shift)

    @property
    def black(self) -> Tensor:
        """A black pixel as the network takes it (c, 1, 1)."""
        return -self._scale[1]

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Factor and offset that normalise a pixel; made once, for ``ready`` is called for small batches too."""
        std = torch.tensor(self.std)
        return (1.0 / (255.0 * std)).view(-1, 1, 1), (torch.tensor(self.mean) / std).view(-1, 1, 1)


@dataclass(frozen=True)
class DataSet:
    """A whole data set, truth included: for building a simulation and for the test set only."""

    name: str
    train: Samples
    train_labels: NDArray[np.int64]
    """Class number per row; -1 where nobody knows."""
    test: Samples
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    """Natural owner of each training row, where the data has one."""
    group_names: tuple[str, ...] = ()
    test_groups: NDArray[np.int64] | None = None
    """Natural owner of each test row, where the data has one."""
    group_sizes: tuple[int, ...] = ()
    """All samples of each owner, those left out between training and test part included."""
    problems: tuple[str, ...] = ()
    """What a user should know of this data, such as skipped files."""
    train_names: Names | None = None
    """What the user calls each training sample: a path, a row of a file, or an id; None for data known by name."""
    test_names: Names | None = None
    train_texts: Names | None = None
    """Texts as people read them, where only their words' numbers are in ``train``."""
    test_texts: Names | None = None
    train_files: Names | None = None
    """The original file of each sample, relative to the folder of the table that names it."""
    seconds: float = 0.0
    """Recordings: their length."""
    reading: Mapping[str, str] = field(default_factory=dict)
    """Which columns of an own table were read, by setting."""
    originals: str = ""
    """The folder that names or files of samples are relative to, where their originals are files."""

    def __repr__(self) -> str:
        """In a line, for a notebook: the samples themselves would fill the page."""
        owners = f", {len(self.group_names)} owners" if self.group_names else ""
        shape = "x".join(str(size) for size in self.train.inputs.shape[1:])
        return (
            f"<DataSet '{self.name}': {self.train.kind} of {shape}, {len(self.train)} training and {len(self.test)} "
            f"test samples, {len(self.classes)} classes{owners}>"
        )

    def tested_on(self, rows: SampleIds) -> DataSet:
        """The same with only these rows of the test part."""
        if rows.size == 0:
            raise DataError(f"no test sample of '{self.name}' is left: check clients, partition and test_limit")
        inputs = self.test.inputs[torch.from_numpy(rows)]
        groups = None if self.test_groups is None else self.test_groups[rows]
        return replace(
            self,
            test=replace(self.test, inputs=inputs),
            test_labels=self.test_labels[rows],
            test_groups=groups,
            test_names=None if self.test_names is None else self.test_names.take(rows),
            test_texts=None if self.test_texts is None else self.test_texts.take(rows),
        )

    def name_of(self, sample: int) -> str:
        """What the user calls a training sample; data known by name goes by its row."""
        return str(sample) if self.train_names is None else self.train_names[sample]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)
