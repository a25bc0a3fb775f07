"""Vectors that the user brings, such as embeddings of a foundation model: only standardised.

They are a column of lists, or a table whose columns are all numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.closed_form.feature_map import InputSpec, Standardised
from chase.core.errors import DataError, SettingsError
from chase.core.weights import Arrays
from chase.data.resident import Samples

WIDEST = 8192
"""More features than this would make sums of more than half a gigabyte per client."""


@dataclass(frozen=True)
class GivenFeatures(Standardised):
    """The vectors themselves."""

    spec: InputSpec

    def __post_init__(self) -> None:
        words = [column.name for column in self.spec.columns if column.kind != "numeric"]
        if words:
            raise SettingsError(
                f"features = 'given' are for numbers, and column '{words[0]}' holds categories: leave it out of "
                "`columns`, or use features = 'table'"
            )
        if self.spec.kind not in ("vectors", "table"):
            raise SettingsError(f"features = 'given' are for vectors, and these samples are of kind {self.spec.kind}")
        if self.width > WIDEST:
            raise DataError(f"vectors have {self.width} numbers, at most {WIDEST} are allowed: reduce them first")

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.spec.shape[0]

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The vectors as they came; a coded row has a number and whether it is missing for every column."""
        if self.spec.kind == "table":
            ready = ready[:, ::2]
        return ready * torch.tensor(self.spec.std) + torch.tensor(self.spec.mean)

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """The vectors (rows, width); other lengths and missing numbers are refused."""
        if samples.columns != self.spec.columns:
            raise DataError(
                f"the table has the columns {', '.join(c.name for c in samples.columns) or '(none)'}, and the model "
                f"expects {', '.join(c.name for c in self.spec.columns) or 'one column of lists'}: use the same columns"
            )
        if samples.inputs.shape[1] != self.width:
            raise DataError(
                f"these vectors have {samples.inputs.shape[1]} numbers, and the model expects {self.width}: "
                "compute the vectors of all clients with the same embedding model"
            )
        values = samples.inputs.index_select(0, rows).float().numpy()
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise DataError(f"the vector of row {int(rows[row])} holds NaN or infinity: correct or remove it")
        return values
