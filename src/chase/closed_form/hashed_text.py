"""Features of texts: the main directions of their hashed words and parts of words (latent semantic analysis).

    step 0   in how many texts each hashed n-gram occurs -> idf = log((1 + texts) / (1 + df)) + 1, and which n-grams
             become columns: those with the most weight over all texts, half of them words, half parts of words
    step 1   Z = X' X S: the columns of the texts times random signs S -> an orthonormal basis of Z, centred
    step 2   mean and deviation of the features, X times the basis

X is (1 + log count) * idf, of one length for the words and one for the parts of a text. Z spans nearly the directions
in which texts differ most (one pass of Halko, Martinsson and Tropp 2011), so ``wide`` numbers tell texts apart nearly
as well as all their words. All features share one deviation: directions that hardly vary would be noise otherwise.
Everything that is added up is a whole number, as are the products behind a feature: sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.sparse import csr_matrix
from torch import Tensor

from chase.closed_form.feature_map import InputSpec, Reals, moment_rows, moments, standard
from chase.closed_form.ngrams import FAMILY, Reader
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import fold, rng
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples

CHUNK = 256
COLUMNS = 8192
"""N-grams that count."""
WEIGHT = 2**12
"""A weight of 1 while directions are sought."""
PRODUCT = 2.0**40
"""A weight of 1 times a scale of 1 in a feature."""
LEAST = 0.3
"""Least ridge weight, in mean eigenvalues."""
SPREAD = 32.0
"""Features are directions of unit length times this, so that they have a deviation near 1."""


@dataclass(frozen=True)
class HashedText:
    """Directions of hashed n-grams."""

    spec: InputSpec
    wide: int = 768
    columns: int = COLUMNS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.spec.kind != "text":
            raise SettingsError(
                f"features = 'hashed-text' are for texts, and these samples are of kind {self.spec.kind}"
            )
        if self.wide > self.columns:
            raise SettingsError(f"text_features = {self.wide} is more than the {self.columns} n-grams that count")

    @cached_property
    def reader(self) -> Reader:
        """What finds the n-grams."""
        return Reader(self.spec.vocabulary)

    @property
    def steps(self) -> int:
        """Document frequencies, directions, then the moments of the features."""
        return 3

    @property
    def width(self) -> int:
        """Numbers per text."""
        return self.wide

    @property
    def least_ridge(self) -> float:
        """Cross-validation may choose nearly no ridge, as where texts occur twice: it sees no error on them."""
        return LEAST

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The column of each bucket (-1: none), the weight of each column, the basis and the standardisation."""
        return {
            "column": (self.reader.buckets,),
            "idf": (self.columns,),
            "basis": (self.columns, self.wide),
            "scale": (self.columns,),
            "mean": (self.wide,),
            "std": (self.wide,),
        }

    @property
    def byte_params(self) -> tuple[str, ...]:
        """The basis is a byte per number, times the scale of its row."""
        return ("basis",)

    @property
    def share(self) -> int:
        """Columns of each family of n-grams."""
        return self.columns // self.reader.families

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The same n-grams, weights and directions in torch."""
        bucket, there = self.reader.dense(ready.long())
        place = params["column"][bucket].long()
        counts = torch.zeros((ready.shape[0], self.columns))
        counts = counts.scatter_add(1, place.clamp(min=0), there * (place >= 0).float())
        weight = (counts.clamp(min=1.0).log() + 1.0) * params["idf"] * (counts > 0).float()
        parts = []
        for at in range(0, self.share * self.reader.families, self.share):
            part = weight[:, at : at + self.share]
            length = part.square().sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
            parts.append(part / length * self.reader.families**-0.5)
        made: Tensor = (torch.cat(parts, dim=1) * params["scale"]) @ params["basis"].float() * SPREAD
        return made

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """Texts per n-gram, then what shows the directions, then moments of features."""
        if step == 0:
            df = np.zeros(self.reader.buckets)
            for part in torch.split(rows, CHUNK):
                df += self._texts_with(samples, part)
            return {"frequency": df, "texts": np.array([float(rows.numel())])}
        chosen = moment_rows(samples, rows, float(params["texts"][0]), fold(self.seed, "moments"))
        if step == 2:
            return moments(self.raw(params, samples, chosen))
        sketch, total = np.zeros((self.columns, self.wide)), np.zeros(self.columns)
        signs = self._signs()
        for weights in self._weights(params, samples, chosen):
            weights.data = np.rint(weights.data * WEIGHT)
            sketch += weights.T @ (weights @ signs)
            total += np.asarray(weights.sum(axis=0)).ravel()
        return {"sketch": sketch, "sketch.sum": total, "sketch.texts": np.array([float(chosen.numel())])}

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """Columns and their weights, then the directions, then the standardisation."""
        if step == 0:
            return self._choose(total["frequency"], float(total["texts"][0]))
        if step == 1:
            count = max(1.0, float(total["sketch.texts"][0]))
            centred = total["sketch"] - np.outer(total["sketch.sum"] / count, total["sketch.sum"] @ self._signs())
            return {**params, **in_bytes(directions(centred))}
        found = standard(total)
        varies = found["std"] != 1.0
        common = np.sqrt(np.mean(found["std"][varies].astype(np.float64) ** 2)) if varies.any() else 1.0
        found["std"] = np.full(self.wide, common, dtype=np.float32)
        return {name: params[name] for name in ("column", "idf", "basis", "scale")} | found

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Weighted n-grams along the directions (rows, width); the products are whole numbers below 2^53."""
        out, at = np.empty((rows.numel(), self.wide), dtype=np.float32), 0
        basis = params["basis"].astype(np.float64)
        for weights in self._weights(params, samples, rows):
            weights.data = np.rint(weights.data * params["scale"][weights.indices] * PRODUCT)
            out[at : at + weights.shape[0]] = (weights @ basis) * (SPREAD / PRODUCT)
            at += weights.shape[0]
        return out

    def _signs(self) -> Reals:
        return _drawn_signs(self.seed, self.columns, self.wide)

    def _choose(self, frequency: Reals, texts: float) -> dict[str, Array]:
        if texts < 1:
            raise DataError("there are no texts to fit features on: add samples")
        idf = np.log((1.0 + texts) / (1.0 + frequency)) + 1.0
        mass = frequency * idf**2
        column = np.full(self.reader.buckets, -1.0, dtype=np.float32)
        weight = np.zeros(self.columns, dtype=np.float32)
        for family in range(self.reader.families):
            first = family * FAMILY
            best = first + np.argsort(-mass[first : first + FAMILY], kind="stable")[: self.share]
            best = best[frequency[best] > 0]
            place = family * self.share + np.arange(best.size)
            column[best], weight[place] = place, idf[best]
        return {"column": column, "idf": weight, "texts": np.array([texts])}

    def _texts_with(self, samples: Samples, rows: Tensor) -> Reals:
        """In how many of the texts each n-gram occurs."""
        text, bucket = self.reader.pairs(samples.inputs.index_select(0, rows).numpy())
        seen = np.zeros((rows.numel(), self.reader.buckets), dtype=bool)
        seen[text, bucket] = True
        return np.asarray(seen.sum(axis=0), dtype=np.float64)

    def _weights(self, params: Arrays, samples: Samples, rows: Tensor) -> Iterator[csr_matrix]:
        """Weights of the columns in each text (texts, columns), a few texts at a time."""
        column, idf = params["column"].astype(np.int64), params["idf"].astype(np.float64)
        for part in torch.split(rows, CHUNK):
            text, bucket = self.reader.pairs(samples.inputs.index_select(0, part).numpy())
            place = column[bucket]
            text, place = text[place >= 0], place[place >= 0]
            key = np.sort(text * self.columns + place)
            key, counts = _run_lengths(key)
            text, place = key // self.columns, key % self.columns
            weight = (1.0 + np.log(counts)) * idf[place]
            side = text * self.reader.families + place // self.share
            length = np.sqrt(np.bincount(side, weight**2, part.numel() * self.reader.families))
            weight /= length[side] * np.sqrt(self.reader.families)
            starts = np.searchsorted(text, np.arange(part.numel() + 1))
            yield csr_matrix((weight, place, starts), shape=(part.numel(), self.columns))


def _run_lengths(ordered: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct numbers of a sorted array, and how often each occurs."""
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if ordered.size else ordered
    return ordered[first], np.diff(np.append(first, ordered.size))


@lru_cache(maxsize=2)
def _drawn_signs(seed: int, columns: int, wide: int) -> Reals:
    drawn = rng(seed, "text-signs").integers(0, 2, (columns, wide), dtype=np.int8)
    return drawn.astype(np.float64) * 2.0 - 1.0


def directions(sketch: Reals) -> Reals:
    """An orthonormal basis of the columns of a sketch; 0 for those that the ones before them span already."""
    basis, upper = qr(sketch, mode="economic", check_finite=True)
    size = np.abs(np.diagonal(upper))
    return np.asarray(np.where(size > 1e-9 * max(1e-300, float(size.max())), basis, 0.0))


def in_bytes(basis: Reals) -> dict[str, NDArray[Any]]:
    """A basis as whole numbers from -127 to 127 and a scale per row."""
    scale = (np.abs(basis).max(axis=1) / 127.0).astype(np.float32)
    codes = np.rint(basis / np.where(scale > 0, scale, 1.0)[:, None]).clip(-127, 127)
    return {"basis": codes.astype(np.int8), "scale": scale}
