"""Hashed n-grams of stored texts, in NumPy for training and in torch for export: the same buckets, bit for bit.

How texts are stored (``chase.data.texts``) decides what is hashed:

    bytes        words, each punctuation mark being one, and runs of 3 to 5 bytes within words, one blank on
                 either side included; words and runs have buckets of their own
    words        the stored tokens, which are hashed words already
    characters   runs of 1 to 5 characters

The hash of bytes b[s], ..., b[e - 1] is  sum (b[i] + 1) BASE^(i - s)  modulo a prime below 2^31: prefix sums give that
of every run at once, and no product leaves 64 bits, so that every runtime of an exported model agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.data.texts import BYTES

PRIME = 2**31 - 1
BASE = 1_103_515_245
FAMILY = 2**16
"""Buckets of words, and of runs."""
BLANK = 32
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reader:
    """Which n-grams stored texts have."""

    vocabulary: int
    """Says how the texts are stored."""

    @property
    def families(self) -> int:
        """Sets of buckets: words and runs of texts kept as bytes, else one."""
        return 2 if self.vocabulary == BYTES else 1

    @property
    def buckets(self) -> int:
        """Buckets of all families."""
        return self.families * FAMILY

    def pairs(self, tokens: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
        """tokens (texts, length) -> the text and the bucket of every n-gram."""
        if self.vocabulary == BYTES:
            return _of_bytes(tokens)
        if self.vocabulary < BYTES:
            return _of_characters(tokens.astype(np.int64))
        text, place = np.nonzero(tokens)
        return text, tokens[text, place].astype(np.int64) % FAMILY

    def dense(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The same in torch: buckets (texts, places) and 1 where there is an n-gram, 0 elsewhere."""
        if self.vocabulary == BYTES:
            return _dense_bytes(tokens)
        if self.vocabulary < BYTES:
            return _dense_characters(tokens)
        return tokens % FAMILY, (tokens != 0).float()


@lru_cache(maxsize=8)
def powers(length: int) -> tuple[Ints, Ints]:
    """BASE^i and its inverse, for i below ``length``, modulo the prime."""
    up, down = [1], [1]
    inverse = pow(BASE, -1, PRIME)
    for _ in range(length - 1):
        up.append(up[-1] * BASE % PRIME)
        down.append(down[-1] * inverse % PRIME)
    return np.array(up, dtype=np.int64), np.array(down, dtype=np.int64)


def salt(size: int) -> tuple[int, int]:
    """Factor and offset that tell n-grams of a size (0: words) from others with the same hash."""
    return pow(48_271, size + 1, PRIME), pow(69_621, size + 1, PRIME)


def _bucket(hashed: Ints, size: int) -> Ints:
    factor, offset = salt(size)
    return (hashed * factor + offset) % PRIME % FAMILY


def _of_bytes(tokens: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """One stream of all texts, a blank before and behind each, so that padding costs nothing."""
    count, length = tokens.shape
    used = np.where(tokens.any(axis=1), length - (tokens[:, ::-1] != 0).argmax(axis=1), 0)
    padded = np.zeros((count, length + 2), dtype=np.uint8)
    padded[:, 1:-1] = tokens
    inside = np.arange(length + 2) < used[:, None] + 2
    text, place = np.nonzero(inside)
    stream = padded[text, place].astype(np.int64)
    stream[stream == 0] = BLANK
    up, down = powers(length + 2)
    prefix = np.concatenate([[0], np.cumsum((stream + 1) * up[place] % PRIME)])
    blanks = np.concatenate([[0], np.cumsum(stream == BLANK)])

    def hashes(start: Ints, end: Ints) -> Ints:
        return np.asarray((prefix[end] - prefix[start]) % PRIME * down[place[start]] % PRIME, dtype=np.int64)

    begins, ends = _word_edges(stream)
    found = [(text[begins], _bucket(hashes(begins, ends), 0))]
    for size in (3, 4, 5):
        start = np.arange(max(0, stream.size - size + 1))
        start = start[blanks[start + size - 1] == blanks[start + 1]]
        found.append((text[start], _bucket(hashes(start, start + size), size) + FAMILY))
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def _word_edges(stream: Ints) -> tuple[Ints, Ints]:
    """Where words begin and end (behind their last byte); a punctuation mark is a word."""
    letter = LETTER[stream]
    mark = ~letter & (stream != BLANK)
    before = np.concatenate([[False], letter[:-1]])
    after = np.concatenate([letter[1:], [False]])
    return np.flatnonzero(mark | (letter & ~before)), np.flatnonzero(mark | (letter & ~after)) + 1


def _letters() -> NDArray[np.bool_]:
    return np.array([chr(b).isalnum() or b == ord("_") if b < 128 else True for b in range(256)])


LETTER = _letters()
"""Bytes that words are made of: letters, digits, the underscore, and all of other scripts."""


def _of_characters(tokens: Ints) -> tuple[Ints, Ints]:
    up, down = powers(tokens.shape[1])
    prefix = np.concatenate(
        [np.zeros((len(tokens), 1), np.int64), np.cumsum((tokens + 1) * up % PRIME, axis=1)], axis=1
    )
    texts, found = [], []
    for size in range(1, min(5, tokens.shape[1]) + 1):
        hashed = (prefix[:, size:] - prefix[:, :-size]) % PRIME * down[: tokens.shape[1] - size + 1] % PRIME
        found.append(_bucket(hashed, size).ravel())
        texts.append(np.repeat(np.arange(len(tokens)), hashed.shape[1]))
    return np.concatenate(texts), np.concatenate(found)


def _dense_bytes(tokens: Tensor) -> tuple[Tensor, Tensor]:
    edge = torch.zeros_like(tokens[:, :1])
    stream = torch.cat([edge, tokens, edge], dim=1)
    stream = torch.where(stream == 0, torch.full_like(stream, BLANK), stream)
    up, down = (torch.from_numpy(table) for table in powers(stream.shape[1]))
    term = (stream + 1) * up % PRIME
    blank = stream == BLANK
    words, there = _dense_words(stream, term, down, blank)
    prefix, blanks = (torch.cat([edge, part.cumsum(dim=1)], dim=1) for part in (term, blank.long()))
    columns, real = [words], [there]
    for size in (3, 4, 5):
        if stream.shape[1] < size:
            continue
        last = stream.shape[1] - size + 1
        hashed = (prefix[:, size:] - prefix[:, :-size]) % PRIME * down[:last] % PRIME
        within = blanks[:, size - 1 : size - 1 + last] - blanks[:, 1 : 1 + last]
        columns.append(_torch_bucket(hashed, size) + FAMILY)
        real.append((within == 0).float())
    return torch.cat(columns, dim=1), torch.cat(real, dim=1)


def _dense_words(stream: Tensor, term: Tensor, down: Tensor, blank: Tensor) -> tuple[Tensor, Tensor]:
    """Every word is summed in a place of its own; a place that no word has counts nothing."""
    letter = torch.from_numpy(LETTER)[stream]
    before = torch.cat([torch.zeros_like(letter[:, :1]), letter[:, :-1]], dim=1)
    begins = ((~letter & ~blank) | (letter & ~before)).long()
    number = begins.cumsum(dim=1)
    empty = torch.zeros((stream.shape[0], stream.shape[1] + 1), dtype=torch.int64)
    hashed = empty.scatter_add(1, number, term * (~blank).long())
    shift = empty.scatter_add(1, number, down * begins)
    there = empty.scatter_add(1, number, begins)
    return _torch_bucket(hashed % PRIME * shift % PRIME, 0), there.float()


def _dense_characters(tokens: Tensor) -> tuple[Tensor, Tensor]:
    up, down = (torch.from_numpy(table) for table in powers(tokens.shape[1]))
    prefix = torch.cat([torch.zeros_like(tokens[:, :1]), ((tokens + 1) * up % PRIME).cumsum(dim=1)], dim=1)
    columns = []
    for size in range(1, min(5, tokens.shape[1]) + 1):
        hashed = (prefix[:, size:] - prefix[:, :-size]) % PRIME * down[: tokens.shape[1] - size + 1] % PRIME
        columns.append(_torch_bucket(hashed, size))
    column = torch.cat(columns, dim=1)
    return column, torch.ones_like(column, dtype=torch.float32)


def _torch_bucket(hashed: Tensor, size: int) -> Tensor:
    factor, offset = salt(size)
    return (hashed * factor + offset) % PRIME % FAMILY
