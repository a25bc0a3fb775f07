"""Features of table rows: the columns themselves and random Fourier features of them (Rahimi and Recht 2007).

    step 0   moments of the numeric columns -> every column with mean 0 and deviation 1, missing cells at the mean
    step 1   mean and deviation of the features

A numeric column also gives a flag "is missing", a categorical one a flag per category. The Fourier features
cos(w'x + b) approximate a Gaussian kernel whose width is that of two typical rows; w and b are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.closed_form.feature_map import InputSpec, moments, standard
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import rng
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples

CHUNK = 4096
LEAST = 0.1
"""Least ridge weight, in mean eigenvalues. With few labels cross-validation often chose nearly none, and the head that
it gave chose bad questions: 79 to 85 % with 40 to 80 bought labels where this has 91 to 94 % (docs/LOG.md)."""


@dataclass(frozen=True)
class TableFeatures:
    """Columns and their random Fourier features."""

    spec: InputSpec
    fourier: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if self.spec.kind != "table":
            raise SettingsError(
                f"features = 'table' are for table rows, and these samples are of kind {self.spec.kind}"
            )

    @property
    def steps(self) -> int:
        """Moments of the columns, then of the features."""
        return 2

    @property
    def least_ridge(self) -> float:
        """Cross-validation may choose nearly no ridge where there are few labels."""
        return LEAST

    @property
    def coded(self) -> int:
        """Numbers that the columns give."""
        return sum(column.width for column in self.spec.columns)

    @property
    def width(self) -> int:
        """Columns and Fourier features."""
        return self.coded + self.fourier

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Column moments, Fourier directions and the standardisation."""
        columns = (len(self.spec.columns),)
        fourier = {"directions": (self.coded, self.fourier), "phases": (self.fourier,)}
        moments = {"mean": (self.width,), "std": (self.width,)}
        return {"column_mean": columns, "column_std": columns, **fourier, **moments}

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """From rows coded with the data set's moments to rows coded with the agreed ones."""
        count = len(self.spec.columns)
        mean, std = np.broadcast_to(self.spec.mean, count), np.broadcast_to(self.spec.std, count)
        parts, at = [], 0
        for number, column in enumerate(self.spec.columns):
            own = ready[:, at : at + column.width]
            at += column.width
            if column.kind == "numeric":
                cell = own[:, :1] * float(std[number]) + float(mean[number])
                value = (cell - params["column_mean"][number]) / params["column_std"][number] * (1.0 - own[:, 1:])
                own = torch.cat([value, own[:, 1:]], dim=1)
            parts.append(own)
        coded = torch.cat(parts, dim=1).clamp(-8.0, 8.0)
        return torch.cat([coded, torch.cos(coded @ params["directions"] + params["phases"])], dim=1)

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """Moments of the numeric cells that are there, then of the features."""
        self._check(samples)
        if step == 1:
            return moments(self.raw(params, samples, rows))
        cells = samples.inputs.index_select(0, rows).double().numpy()
        if np.isinf(cells).any():
            raise DataError(f"column '{self._named(np.isinf(cells))}' holds infinity: correct or remove those rows")
        there = ~np.isnan(cells)
        filled = np.where(there, cells, 0.0)
        return {
            "column.count": there.sum(axis=0).astype(np.float64),
            "column.sum": filled.sum(axis=0),
            "column.square": (filled**2).sum(axis=0),
        }

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """Standardised columns and the seeded directions, then the standardised features."""
        if step == 1:
            return {**params, **standard(total)}
        count = np.maximum(total["column.count"], 1.0)
        mean = total["column.sum"] / count
        std = np.sqrt(np.maximum(total["column.square"] / count - mean**2, 0.0))
        numeric = np.array([column.kind == "numeric" for column in self.spec.columns])
        std[std <= 1e-9 * np.maximum(1.0, np.abs(mean))] = 1.0
        draw = rng(self.seed, "fourier")
        # Two independent rows differ by about sqrt(2 * numeric + 2 * categorical) in length.
        reach = np.sqrt(2.0 * max(1, len(self.spec.columns)))
        return {
            "column_mean": np.where(numeric, mean, 0.0).astype(np.float32),
            "column_std": np.where(numeric, std, 1.0).astype(np.float32),
            "directions": (draw.standard_normal((self.coded, self.fourier)) / reach).astype(np.float32),
            "phases": draw.uniform(0.0, 2.0 * np.pi, self.fourier).astype(np.float32),
        }

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Coded columns and cosines (rows, width)."""
        self._check(samples)
        scaled = replace(samples, mean=tuple(params["column_mean"].tolist()), std=tuple(params["column_std"].tolist()))
        directions, phases = (torch.from_numpy(np.array(params[name])) for name in ("directions", "phases"))
        out = torch.empty((rows.numel(), self.width))
        for at in range(0, rows.numel(), CHUNK):
            coded = scaled.ready(rows[at : at + CHUNK]).clamp_(-8.0, 8.0)
            out[at : at + CHUNK, : self.coded] = coded
            out[at : at + CHUNK, self.coded :] = torch.cos(coded @ directions + phases)
        return out.numpy()

    def _check(self, samples: Samples) -> None:
        if samples.columns != self.spec.columns:
            raise DataError(
                f"the table has the columns {', '.join(c.name for c in samples.columns) or '(none)'}, and the model "
                f"expects {', '.join(c.name for c in self.spec.columns)}: "
                "names, kinds and categories must be the same"
            )

    def _named(self, wrong: NDArray[np.bool_]) -> str:
        return self.spec.columns[int(np.flatnonzero(wrong.any(axis=0))[0])].name
