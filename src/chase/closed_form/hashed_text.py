"""Features of texts: the most frequent hashed words or characters, weighted by document frequencies of all sites.

    step 0   in how many texts each hashed n-gram occurs -> idf = log((1 + texts) / (1 + df)) + 1
    step 1   mean and deviation of the features

A text arrives as tokens (words are already hashed, see ``chase.data.texts``; or characters). Its 1-grams to
``longest``-grams are hashed into ``buckets``; the ``wide`` buckets that most texts hold are the features. A text is the
vector of log(1 + count) * idf, of length 1. All features share one deviation: rare words would be noise otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from chase.closed_form.feature_map import InputSpec, mixed, moment_rows, moments, standard
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import fold
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples

CHUNK = 2048
CHARACTERS = 256
"""A smaller vocabulary is one of characters."""


@dataclass(frozen=True)
class HashedText:
    """n-grams of tokens as a dense vector."""

    spec: InputSpec
    buckets: int = 2**16
    wide: int = 2048
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
    def least_ridge(self) -> float:
        """Cross-validation may choose nearly no ridge, as where texts occur twice: it sees no error on them."""
        return 1.0

    @property
    def pads(self) -> bool:
        """Words are padded with token 0; characters with blanks."""
        return self.spec.vocabulary >= CHARACTERS

    @property
    def longest(self) -> int:
        """Tokens in the longest n-gram: one word, or five characters. Pairs of words gained nothing (docs/LOG.md)."""
        return 5 if self.spec.vocabulary < CHARACTERS else 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Inverse document frequencies, the feature of each bucket (-1: none) and the standardisation."""
        return {"idf": (self.buckets,), "column": (self.buckets,), "mean": (self.wide,), "std": (self.wide,)}

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The same n-grams, hashes and weights in torch; hashes wrap around like unsigned ones."""
        tokens = ready.long()
        state, columns, real = torch.zeros_like(tokens), [], []
        for n in range(1, min(self.longest, tokens.shape[1]) + 1):
            ends = tokens[:, n - 1 :]
            state = torch_mixed(state[:, : ends.shape[1]] * 31 + ends + 1, n)
            columns.append(state & (self.buckets - 1))
            real.append((ends != 0) if self.pads else torch.ones_like(ends, dtype=torch.bool))
        column = torch.cat(columns, dim=1)
        place = params["column"][column].long()
        there = (torch.cat(real, dim=1) & (place >= 0)).float()
        counts = torch.zeros((tokens.shape[0], self.buckets)).scatter_add(1, column, there).gather(1, column)
        weight = torch.log1p(counts) * params["idf"][column] * there / counts.clamp(min=1.0)
        length = (weight.square() * counts).sum(dim=1, keepdim=True).sqrt().clamp(min=1e-12)
        return torch.zeros((tokens.shape[0], self.wide)).scatter_add(1, place.clamp(min=0), weight / length)

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
        """Inverse document frequencies and the most frequent n-grams, then the standardisation."""
        if step == 1:
            found = standard(total)
            varies = found["std"] != 1.0
            common = np.sqrt(np.mean(found["std"][varies].astype(np.float64) ** 2)) if varies.any() else 1.0
            found["std"] = np.full(self.wide, common, dtype=np.float32)
            return {"idf": params["idf"], "column": params["column"], **found}
        texts = float(total["texts"][0])
        if texts < 1:
            raise DataError("there are no texts to fit features on: add samples")
        idf = np.log((1.0 + texts) / (1.0 + total["frequency"])) + 1.0
        column = np.full(self.buckets, -1.0, dtype=np.float32)
        frequent = np.argsort(-total["frequency"], kind="stable")[: self.wide]
        column[frequent] = np.arange(frequent.size)
        return {"idf": idf.astype(np.float32), "column": column, "texts": total["texts"]}

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Weights of the most frequent n-grams (rows, width)."""
        out = np.zeros((rows.numel(), self.wide), dtype=np.float32)
        column = params["column"].astype(np.int64)
        for at in range(0, rows.numel(), CHUNK):
            counts = self._counts(samples, rows[at : at + CHUNK])
            text = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
            place, weight = column[counts.indices], np.log1p(counts.data) * params["idf"][counts.indices]
            text, place, weight = text[place >= 0], place[place >= 0], weight[place >= 0]
            length = np.sqrt(np.bincount(text, weight**2, counts.shape[0]))
            out[at + text, place] = weight / np.maximum(length, 1e-12)[text]
        return out

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
