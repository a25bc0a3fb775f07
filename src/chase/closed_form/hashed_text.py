"""Features of texts: hashed token n-grams, weighted by document frequencies that are summed over sites, projected.

    step 0   in how many texts each hashed n-gram occurs -> idf = log((1 + texts) / (1 + df)) + 1
    step 1   mean and deviation of the features

A text arrives as tokens (words are already hashed, see ``chase.data.texts``; or characters). Its 1-grams to
``longest``-grams are hashed into ``buckets``; a text is the vector of log(1 + count) * idf, of length 1, and is
projected to ``wide`` numbers by a fixed sparse random matrix of signs (Achlioptas 2003), drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from chase.closed_form.feature_map import InputSpec, mixed, moment_rows, moments, standard
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import fold, rng
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples

CHUNK = 2048
SIGNS = 8
"""Numbers that one n-gram touches in the projection."""
CHARACTERS = 256
"""A smaller vocabulary is one of characters."""


@dataclass(frozen=True)
class HashedText:
    """n-grams of tokens as a dense vector."""

    spec: InputSpec
    buckets: int = 2**16
    wide: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if self.spec.kind != "text":
            raise SettingsError(
                f"features = 'hashed-text' are for texts, and these samples are of kind {self.spec.kind}"
            )

    @property
    def steps(self) -> int:
        """Document frequencies, then the moments of the features."""
        return 2

    @property
    def width(self) -> int:
        """Numbers per text."""
        return self.wide

    @property
    def pads(self) -> bool:
        """Words are padded with token 0; characters with blanks."""
        return self.spec.vocabulary >= CHARACTERS

    @property
    def longest(self) -> int:
        """Tokens in the longest n-gram: two words, or five characters."""
        return 5 if self.spec.vocabulary < CHARACTERS else 2

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Inverse document frequencies and the standardisation."""
        return {"idf": (self.buckets,), "mean": (self.wide,), "std": (self.wide,)}

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The same n-grams, hashes and projection in torch; hashes wrap around like unsigned ones."""
        tokens = ready.long()
        state, columns, real = torch.zeros_like(tokens), [], []
        for n in range(1, min(self.longest, tokens.shape[1]) + 1):
            ends = tokens[:, n - 1 :]
            state = torch_mixed(state[:, : ends.shape[1]] * 31 + ends + 1, n)
            columns.append(state & (self.buckets - 1))
            real.append((ends != 0) if self.pads else torch.ones_like(ends, dtype=torch.bool))
        column, there = torch.cat(columns, dim=1), torch.cat(real, dim=1).float()
        counts = torch.zeros((tokens.shape[0], self.buckets)).scatter_add(1, column, there).gather(1, column)
        weight = torch.log1p(counts) * params["idf"][column] * there / counts.clamp(min=1.0)
        length = (weight.square() * counts).sum(dim=1, keepdim=True).sqrt().clamp(min=1e-12)
        place, sign = (torch.from_numpy(array) for array in self._touched)
        spread = ((weight / length)[:, :, None] * sign[column]).flatten(1)
        return torch.zeros((tokens.shape[0], self.wide)).scatter_add(1, place[column].flatten(1), spread)

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """Texts per n-gram, then moments of features."""
        if step == 0:
            df = np.zeros(self.buckets)
            for part in torch.split(rows, CHUNK):
                df += np.bincount(self._counts(samples, part).indices, minlength=self.buckets)
            return {"frequency": df, "texts": np.array([float(rows.numel())])}
        chosen = moment_rows(samples, rows, float(params["texts"][0]), fold(self.seed, "moments"))
        return moments(self.raw(params, samples, chosen))

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """Inverse document frequencies, then the standardisation."""
        if step == 1:
            return {"idf": params["idf"], **standard(total)}
        texts = float(total["texts"][0])
        if texts < 1:
            raise DataError("there are no texts to fit features on: add samples")
        idf = np.log((1.0 + texts) / (1.0 + total["frequency"])) + 1.0
        return {"idf": idf.astype(np.float32), "texts": total["texts"]}

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Projected n-gram weights (rows, width)."""
        out = np.zeros((rows.numel(), self.wide), dtype=np.float32)
        for at in range(0, rows.numel(), CHUNK):
            counts = self._counts(samples, rows[at : at + CHUNK])
            counts.data = np.log1p(counts.data) * params["idf"][counts.indices]
            length = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1))).ravel()
            scaled = csr_matrix(
                (
                    counts.data / np.repeat(np.maximum(length, 1e-12), np.diff(counts.indptr)),
                    counts.indices,
                    counts.indptr,
                ),
                shape=counts.shape,
            )
            out[at : at + CHUNK] = (scaled @ self._projection).toarray()
        return out

    @cached_property
    def _touched(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Places and signs of every n-gram (buckets, SIGNS)."""
        draw = rng(self.seed, "projection")
        place = draw.integers(0, self.wide, (self.buckets, SIGNS))
        return place, draw.choice(np.array([-1.0, 1.0], dtype=np.float32), (self.buckets, SIGNS))

    @cached_property
    def _projection(self) -> csr_matrix:
        """Signs at ``SIGNS`` places of every n-gram (buckets, wide)."""
        place, sign = self._touched
        starts = np.arange(0, self.buckets * SIGNS + 1, SIGNS)
        return csr_matrix((sign.ravel(), place.ravel(), starts), shape=(self.buckets, self.wide))

    def _counts(self, samples: Samples, rows: Tensor) -> csr_matrix:
        """How often each hashed n-gram occurs (rows, buckets); token 0 of words pads and ends an n-gram."""
        tokens = samples.inputs.index_select(0, rows).numpy().astype(np.int64)
        texts, columns = [], []
        state = np.zeros_like(tokens, dtype=np.uint64)
        for n in range(1, min(self.longest, tokens.shape[1]) + 1):
            ends = tokens[:, n - 1 :]
            with np.errstate(over="ignore"):
                state = mixed((state[:, : ends.shape[1]] * np.uint64(31) + ends.astype(np.uint64) + np.uint64(1)), n)
            real = np.ones_like(ends, dtype=bool)
            if self.pads:
                real = ends != 0  # padding follows the words, so an n-gram whose last token is a word is all words
            text, place = np.nonzero(real)
            texts.append(text)
            columns.append((state[text, place] % np.uint64(self.buckets)).astype(np.int64))
        text, column = np.concatenate(texts), np.concatenate(columns)
        made = csr_matrix((np.ones(text.size), (text, column)), shape=(tokens.shape[0], self.buckets))
        made.sum_duplicates()
        return made


def torch_mixed(numbers: Tensor, salt: int) -> Tensor:
    """``mixed`` on int64 tensors: products wrap around, shifts fill with zeros."""
    z = numbers * _signed(0x9E3779B97F4A7C15) + salt
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & (2**33 - 1))


def _signed(number: int) -> int:
    """The int64 with the same bits."""
    return number - 2**64 if number >= 2**63 else number
