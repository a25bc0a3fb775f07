"""Features of texts: n-grams by hand, the same in torch, sums that add up, and how well they tell texts apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from chase.closed_form.feature_map import InputSpec, decode, fit, least_ridge, transform
from chase.closed_form.hashed_text import HashedText, directions, in_bytes
from chase.closed_form.ngrams import BASE, FAMILY, PRIME, Reader, salt
from chase.closed_form.ridge import solve
from chase.closed_form.sums import Sums
from chase.core.randomness import rng
from chase.core.weights import digest
from chase.data.resident import Samples
from chase.data.texts import BYTES, LETTERS, text_bytes, tokenize

TEXTS = ["The cat, the CAT!", "naïve café", "", "a", "no  way\nhome"]


def hashed(part: bytes, size: int) -> int:
    """The bucket of an n-gram within its family, by the definition."""
    value = sum((byte + 1) * pow(BASE, at, PRIME) for at, byte in enumerate(part)) % PRIME
    factor, offset = salt(size)
    return (value * factor + offset) % PRIME % FAMILY


def stored(texts: list[str], how: str = "bytes", length: int = 8) -> Samples:
    tokens, vocabulary, _ = tokenize(texts, how, length)
    return Samples(torch.from_numpy(tokens), "text", vocabulary=vocabulary)


def found(samples: Samples, row: int) -> Counter[int]:
    text, bucket = Reader(samples.vocabulary).pairs(samples.inputs.numpy())
    return Counter(bucket[text == row].tolist())


def test_texts_are_kept_as_lower_case_bytes_with_single_blanks() -> None:
    kept, cut = text_bytes(["A  b\n c", "É" * 5, "x\0y"], 1)
    assert [bytes(row).rstrip(b"\0").decode() for row in kept] == ["a b c", "éééé", "x y"]
    assert (kept.shape, cut) == ((3, 8), 1)  # five letters of two bytes: the last does not fit


def test_a_text_has_its_words_its_marks_and_the_parts_of_its_words() -> None:
    """By hand: `the cat, the cat!` has words the (2), cat (2), the comma and the exclamation mark."""
    words = Counter({hashed(b"the", 0): 2, hashed(b"cat", 0): 2, hashed(b",", 0): 1, hashed(b"!", 0): 1})
    parts: Counter[int] = Counter()
    for word in (b" the ", b" cat, ", b" the ", b" cat! "):
        for size in (3, 4, 5):
            parts.update(FAMILY + hashed(word[at : at + size], size) for at in range(len(word) - size + 1))
    assert found(stored(TEXTS), 0) == words + parts


def test_letters_of_other_scripts_make_words_and_an_empty_text_has_nothing() -> None:
    samples = stored(TEXTS)
    assert found(samples, 1)[hashed("naïve".encode(), 0)] == 1
    assert not found(samples, 2)
    assert found(samples, 3) == Counter({hashed(b"a", 0): 1, FAMILY + hashed(b" a ", 3): 1})


@pytest.mark.parametrize("how", ["bytes", "words", "characters"])
def test_torch_finds_the_same_n_grams(how: str) -> None:
    samples = stored(TEXTS, how)
    reader = Reader(samples.vocabulary)
    bucket, there = reader.dense(samples.inputs.long())
    for row in range(len(TEXTS)):
        dense = Counter(bucket[row][there[row] > 0].tolist())
        assert dense == found(samples, row)


def test_bytes_inside_a_text_that_pad_are_blanks() -> None:
    tokens = np.array([[104, 105, 0, 0, 104, 111, 0, 0]], dtype=np.uint8)
    blanks = np.where(tokens == 0, 32, tokens)
    inside = Reader(BYTES).pairs(tokens)[1]
    assert sorted(inside.tolist()) == sorted(Reader(BYTES).pairs(blanks)[1].tolist())
    bucket, there = Reader(BYTES).dense(torch.from_numpy(tokens).long())
    assert sorted(bucket[there > 0].tolist()) == sorted(inside.tolist())


def test_runs_of_characters_by_hand() -> None:
    tokens = np.array([[3, 7]], dtype=np.uint8)
    text, bucket = Reader(len(LETTERS)).pairs(tokens)
    assert text.tolist() == [0, 0, 0]
    assert bucket.tolist() == [hashed(bytes([3]), 1), hashed(bytes([7]), 1), hashed(bytes([3, 7]), 2)]


def test_weights_by_hand() -> None:
    """Two texts as words: idf = log(3 / (1 + df)) + 1, times 1 + log(count), of length 1."""
    samples = stored(["red red blue", "red"], "words")
    feature_map = HashedText(InputSpec.of(samples), wide=16)
    params = feature_map.solve(0, {}, feature_map.sums(0, {}, samples, torch.arange(2)))
    assert params["texts"].tolist() == [2.0]
    (weights,) = feature_map._weights(params, samples, torch.arange(2))
    red, blue = 1.0 * (1 + np.log(2)), np.log(1.5) + 1
    first = sorted(weights[0].toarray()[0][weights[0].indices].tolist())
    assert first == pytest.approx(sorted(np.array([red, blue]) / np.hypot(red, blue)))
    assert weights[1].data.tolist() == pytest.approx([1.0])


def test_directions_are_orthonormal_and_those_that_are_not_there_are_zero() -> None:
    wide = rng(0, "wide").standard_normal((40, 3)) @ rng(0, "mix").standard_normal((3, 6))
    found = directions(wide)
    assert found[:, :3].T @ found[:, :3] == pytest.approx(np.eye(3), abs=1e-12)
    assert np.abs(found[:, 3:]).max() == 0.0
    kept = in_bytes(found)
    assert kept["basis"].dtype == np.int8
    assert kept["basis"] * kept["scale"][:, None] == pytest.approx(found, abs=float(kept["scale"].max()) / 2 + 1e-7)


def made_up(count: int = 900) -> tuple[list[str], np.ndarray]:
    """Six topics of a made-up language in which endings tell as much as words."""
    draw = np.random.default_rng(0)
    roots = np.array(["".join(draw.choice(list("abcdefghij"), 5)) for _ in range(1500)])
    usual, labels, topics = 1.0 / np.arange(1, 1501), draw.integers(0, 6, count), []
    for _ in range(6):
        shares = usual.copy()
        shares[draw.choice(1500, 60, replace=False)] *= 8.0
        topics.append(np.cumsum(shares / shares.sum()))
    texts = [" ".join(roots[np.minimum(np.searchsorted(topics[c], draw.random(60)), 1499)]) for c in labels]
    return texts, labels


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], np.ndarray]:
    return made_up()


@pytest.mark.parametrize("how", ["bytes", "words"])
def test_texts_are_told_apart_as_well_as_by_tf_idf_and_logistic_regression(
    corpus: tuple[list[str], np.ndarray], how: str
) -> None:
    texts, labels = corpus
    samples, everything = stored(texts, how, 80), torch.arange(len(texts))
    feature_map = HashedText(InputSpec.of(samples), wide=256)
    codes = transform(feature_map, fit(feature_map, [(samples, everything)]), samples, everything)
    head = solve(Sums.of(codes[:400], labels[:400], 6), least=least_ridge(feature_map))
    ours = float((head.scores(decode(codes[400:]).astype(np.float64)).argmax(axis=1) == labels[400:]).mean())
    vectors = TfidfVectorizer(sublinear_tf=True).fit(texts[:400])
    rival = LogisticRegression(C=10, max_iter=200).fit(vectors.transform(texts[:400]), labels[:400])
    theirs = float(rival.score(vectors.transform(texts[400:]), labels[400:]))
    assert theirs > 0.5
    assert ours > theirs - 0.03


def test_every_partition_gives_the_same_bits_and_torch_the_same_numbers(corpus: tuple[list[str], np.ndarray]) -> None:
    samples, everything = stored(corpus[0][:120], length=60), torch.arange(120)
    feature_map = HashedText(InputSpec.of(samples), wide=64, columns=1024)
    one = fit(feature_map, [(samples, everything)])
    many = fit(feature_map, [(samples, part) for part in torch.split(everything, 37)][::-1])
    assert digest(one) == digest(many)
    assert {name: array.shape for name, array in one.items()} == feature_map.shapes
    raw = feature_map.raw(one, samples, everything)
    assert np.array_equal(feature_map.raw(one, samples, torch.tensor([7])), raw[7:8])
    params = {name: torch.from_numpy(array) for name, array in one.items()}
    assert feature_map.embed(params, samples.ready(everything)).numpy() == pytest.approx(raw, abs=1e-4)
