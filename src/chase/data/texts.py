"""Texts to small integers.

``characters``: the 80 letters of the LEAF benchmark's Shakespeare, one token each; anything else
becomes a blank. ``words``: every lower-case word is hashed into one of ``BUCKETS`` tokens, so that
sites need not agree on a vocabulary, which would tell what their texts say. Token 0 pads.
``bytes``: the lower-case text itself in UTF-8, for features that hash words and parts of words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Tokens = Literal["words", "characters", "bytes"]
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
BLANK = LETTERS.index(" ")
BUCKETS = 8192
"""Word tokens, the padding included: half a million weights at width 64."""

BYTES = 256
"""Tokens of texts kept as bytes; 0 pads."""
BYTES_PER_WORD = 8
"""Room for each of the ``text_length`` words of a text kept as bytes: a word, and the blank behind it."""

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


def text_bytes(texts: Sequence[str], length: int) -> tuple[NDArray[np.uint8], int]:
    """The first bytes of each text, lower-case with single blanks (texts, 8 * length), and how many texts were cut."""
    width = BYTES_PER_WORD * length
    out, cut = np.zeros((len(texts), width), dtype=np.uint8), 0
    for row, text in enumerate(texts):
        kept = " ".join(text.replace("\0", " ").lower().split()).encode("utf-8", "replace")
        if len(kept) > width:
            cut += 1
            kept = kept[:width].decode("utf-8", "ignore").encode()  # no half letter at the end
        out[row, : len(kept)] = np.frombuffer(kept, dtype=np.uint8)
    return out, cut


def words_of(vocabulary: int, shape: tuple[int, ...]) -> int:
    """The ``text_length`` that texts of a stored shape were read with."""
    return shape[0] // BYTES_PER_WORD if vocabulary == BYTES else shape[0]


def kept_of_a_text(how: Tokens, length: int) -> str:
    """What is kept of a long text, in words."""
    if how == "bytes":
        return f"{BYTES_PER_WORD * length:,} bytes (text_length = {length} words)"
    return f"{length} {how}"


def tokens_of(vocabulary: int) -> Tokens:
    """How texts with this many tokens are stored."""
    return "bytes" if vocabulary == BYTES else "characters" if vocabulary == len(LETTERS) else "words"


def tokenize(texts: Sequence[str], how: str, length: int) -> tuple[NDArray[np.int16] | NDArray[np.uint8], int, int]:
    """Tokens (texts, length), the size of the vocabulary, and how many texts were cut at that length."""
    if how == "bytes":
        kept, cut = text_bytes(texts, length)
        return kept, BYTES, cut
    if how == "characters":
        return characters(texts, length), len(LETTERS), sum(len(text) > length for text in texts)
    tokens, cut = words_and_cut(texts, length)
    return tokens, BUCKETS, cut
