"""Samples that are decoded once and stay in memory as small integers.

Images are uint8 (samples, channels, height, width), texts are token ids (samples, length).
``Samples`` has no labels at all: what a client or a strategy holds cannot leak a truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.core.errors import DataError
from chase.core.pools import SampleIds, is_in

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class Samples:
    """Inputs by sample id, without labels."""

    inputs: Tensor
    """uint8 images (n, c, h, w) or integer tokens (n, length)."""
    kind: Kind = "image"
    mean: tuple[float, ...] = (0.0,)
    """Per channel, of values scaled to 0..1; belongs to the data set."""
    std: tuple[float, ...] = (1.0,)
    ids: SampleIds | None = None
    """Sorted ids of the rows; None when id and row are the same."""
    vocabulary: int = 0
    """Number of distinct tokens, for texts."""

    def __post_init__(self) -> None:
        # Rows are found by bisection: among ids that do not rise another sample's row would be found.
        if self.ids is not None and (self.ids.size != len(self) or (self.ids[1:] <= self.ids[:-1]).any()):
            raise DataError(f"the ids of {len(self)} samples are not one each in rising order: their file is damaged")

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.inputs.shape[1:])

    def rows(self, ids: SampleIds) -> Tensor:
        """Row numbers of ids, as an int64 tensor."""
        if self.ids is None:
            return torch.from_numpy(np.ascontiguousarray(ids))
        if not is_in(ids, self.ids).all():
            raise DataError(f"{int((~is_in(ids, self.ids)).sum())} asked-for samples are not in this data")
        return torch.from_numpy(np.searchsorted(self.ids, ids))

    def ready(self, rows: Tensor) -> Tensor:
        """The rows as the network takes them: normalised float32 images, or int64 tokens.

        ``index_select`` gives plain strides whatever those of ``inputs``; with a dimension of size one
        torch may otherwise take another convolution kernel and the last bits differ between processes.
        """
        raw = self.inputs.index_select(0, rows)
        if self.kind == "text":
            return raw.long()
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

    def tested_on(self, rows: SampleIds) -> DataSet:
        """The same with only these rows of the test part."""
        if rows.size == 0:
            raise DataError(f"no test sample of '{self.name}' is left: check clients, partition and test_limit")
        inputs = self.test.inputs[torch.from_numpy(rows)]
        groups = None if self.test_groups is None else self.test_groups[rows]
        return replace(
            self, test=replace(self.test, inputs=inputs), test_labels=self.test_labels[rows], test_groups=groups
        )

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)
