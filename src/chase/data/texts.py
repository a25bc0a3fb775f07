"""Texts to small integers.

``characters``: the 80 letters of the LEAF benchmark's Shakespeare, one token each; anything else
becomes a blank. ``words``: every lower-case word is hashed into one of ``BUCKETS`` tokens, so that
sites need not agree on a vocabulary, which would tell what their texts say. Token 0 pads.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
BLANK = LETTERS.index(" ")
BUCKETS = 8192
"""Word tokens, the padding included: half a million weights at width 64."""

_WORD = re.compile(r"\w+|[^\w\s]")


def letter_table() -> NDArray[np.uint8]:
    """Token of every byte."""
    table = np.full(256, BLANK, dtype=np.uint8)
    for token, letter in enumerate(LETTERS):
        table[ord(letter)] = token
    return table


def word_token(word: str) -> int:
    """A token from 1 to BUCKETS - 1, the same on every machine."""
    return 1 + zlib.crc32(word.encode()) % (BUCKETS - 1)


def words_and_cut(texts: Sequence[str], length: int) -> tuple[NDArray[np.int16], int]:
    """The first ``length`` words of each text as hashed tokens, padded with 0 -> (texts, length); how many had more."""
    out, cut = np.zeros((len(texts), length), dtype=np.int16), 0
    for row, text in enumerate(texts):
        found = _WORD.findall(text.lower())
        tokens = [word_token(word) for word in found[:length]]
        out[row, : len(tokens)] = tokens
        cut += len(found) > length
    return out, cut


def characters(texts: Sequence[str], length: int) -> NDArray[np.uint8]:
    """The last ``length`` characters of each text, blanks in front -> (texts, length)."""
    out = np.full((len(texts), length), BLANK, dtype=np.uint8)
    table = letter_table()
    for row, text in enumerate(texts):
        tail = np.frombuffer(text[-length:].encode("ascii", "replace"), dtype=np.uint8)
        if tail.size:
            out[row, length - tail.size :] = table[tail]
    return out


def tokenize(texts: Sequence[str], how: str, length: int) -> tuple[NDArray[np.int16] | NDArray[np.uint8], int, int]:
    """Tokens (texts, length), the size of the vocabulary, and how many texts were cut at that length."""
    if how == "characters":
        return characters(texts, length), len(LETTERS), sum(len(text) > length for text in texts)
    tokens, cut = words_and_cut(texts, length)
    return tokens, BUCKETS, cut
