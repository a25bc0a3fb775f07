from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chase.core.errors import FederationError
from chase.federation.secure_sum import (
    Party,
    PublicKeys,
    combine,
    decode,
    encode,
    split,
    unmasked_sum,
)


def run_sum(
    vectors: dict[int, np.ndarray],
    threshold: int,
    after_keys: set[int] = frozenset(),
    after_shares: set[int] = frozenset(),
    after_masked: set[int] = frozenset(),
) -> tuple[np.ndarray, dict[int, np.ndarray], list[int]]:
    """All steps; the sets name sites that are lost after a step. Returns the sum, the masked vectors, who counts."""
    parties = {n: Party(n, "run 3") for n in vectors}
    keys = {n: p.keys for n, p in parties.items() if n not in after_keys}
    sealed = {n: parties[n].shares(keys, threshold) for n in keys}
    alive = sorted(sealed)
    boxes = {to: {by: sealed[by][to] for by in alive} for to in alive}
    masked = {n: parties[n].masked(encode(vectors[n]), keys, alive) for n in alive if n not in after_shares}
    came = sorted(masked)
    bared = {n: parties[n].unmask(boxes[n], keys, came, threshold) for n in came if n not in after_masked}
    return unmasked_sum("run 3", keys, alive, masked, bared, threshold), masked, came


def vectors_of(count: int, size: int = 50) -> dict[int, np.ndarray]:
    draw = np.random.default_rng(count)
    return {3 * n + 1: draw.normal(size=size) * 10.0**n for n in range(count)}


@pytest.mark.parametrize("phase", ["nobody", "after_keys", "after_shares", "after_masked"])
@pytest.mark.parametrize("lost", [{1}, {7}, {10}])
def test_the_sum_is_the_plain_one_bit_for_bit_whoever_drops_out_when(phase: str, lost: set[int]) -> None:
    vectors = vectors_of(5)
    found, _, came = run_sum(vectors, 3, **({} if phase == "nobody" else {phase: lost}))
    gone = lost if phase in ("after_keys", "after_shares") else set()
    assert set(came) == vectors.keys() - gone
    plain = sum(encode(vectors[n]).view(np.int64) for n in came)
    assert np.array_equal(found.view(np.int64), plain)
    assert np.abs(decode(found) - sum(vectors[n] for n in came)).max() <= len(came) * 2.0**-25


def test_different_sites_may_drop_out_in_every_phase_of_one_sum() -> None:
    vectors = vectors_of(7)
    found, _, came = run_sum(vectors, 4, {1}, {4}, {7})
    assert came == [7, 10, 13, 16, 19]
    assert np.array_equal(found.view(np.int64), sum(encode(vectors[n]).view(np.int64) for n in came))


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=6))
@settings(max_examples=25, deadline=None)
def test_any_numbers_come_out_within_the_fixed_point(numbers: list[float]) -> None:
    vectors = {n: np.array([x, -x, 0.0]) for n, x in enumerate(numbers)}
    found, _, _ = run_sum(vectors, len(numbers) // 2 + 1)
    assert abs(decode(found)[0] - sum(numbers)) <= len(numbers) * 2.0**-25
    assert decode(found)[2] == 0.0


def test_what_a_site_sends_looks_like_noise() -> None:
    zeros = {n: np.zeros(4000) for n in range(3)}
    _, masked, _ = run_sum(zeros, 2)
    for words in masked.values():
        bits = np.unpackbits(words.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 0.01
    assert not np.array_equal(masked[0], masked[1])
    assert not np.array_equal(masked[0], run_sum(zeros, 2)[1][0])  # new secrets for every sum


def test_never_both_secrets_of_one_site_and_never_too_few() -> None:
    vectors = vectors_of(4)
    parties = {n: Party(n, "c") for n in vectors}
    keys = {n: p.keys for n, p in parties.items()}
    sealed = {n: p.shares(keys, 3) for n, p in parties.items()}
    boxes = {by: sealed[by][1] for by in keys}
    given = parties[1].unmask(boxes, keys, [1, 4, 7], 3)
    assert all(len(share) == 34 for share in given.values())  # one share of one secret each
    with pytest.raises(FederationError, match="only 2 vectors"):
        parties[1].unmask(boxes, keys, [1, 4], 3)
    with pytest.raises(FederationError, match="cannot be unmasked"):
        unmasked_sum("c", keys, sorted(keys), {n: encode(v) for n, v in vectors.items()}, {1: given}, 3)


def test_a_group_in_which_a_part_could_be_learnt_is_refused() -> None:
    two = {n: Party(n, "c") for n in (0, 1)}
    with pytest.raises(FederationError, match="at least 3 sites"):
        two[0].shares({n: p.keys for n, p in two.items()}, 2)
    three = {n: Party(n, "c") for n in range(3)}
    keys = {n: p.keys for n, p in three.items()}
    with pytest.raises(FederationError, match="not more than half"):
        three[0].shares(keys, 1)
    with pytest.raises(FederationError, match="used twice"):
        three[0].shares({0: keys[0], 1: keys[1], 2: keys[1]}, 2)
    with pytest.raises(FederationError, match="not those that this site sent"):
        three[0].shares({0: PublicKeys(bytes(31) + b"1", bytes(31) + b"2"), 1: keys[1], 2: keys[2]}, 2)


def test_changed_shares_are_noticed_and_secrets_survive_a_restart() -> None:
    parties = {n: Party(n, "c") for n in range(3)}
    keys = {n: p.keys for n, p in parties.items()}
    sealed = {n: p.shares(keys, 2) for n, p in parties.items()}
    boxes = {by: sealed[by][0] for by in keys}
    again = Party(0, "c", parties[0].state)
    assert again.unmask(boxes, keys, [0, 1, 2], 2) == parties[0].unmask(boxes, keys, [0, 1, 2], 2)
    spoiled = boxes | {1: boxes[1][:-1] + bytes([boxes[1][-1] ^ 1])}
    with pytest.raises(FederationError, match="changed on their way"):
        parties[0].unmask(spoiled, keys, [0, 1, 2], 2)


def test_shares_restore_a_secret_and_fewer_do_not() -> None:
    secret = bytes(range(32))
    shares = split(secret, 3, 5)
    assert combine(shares[1:4]) == secret
    assert combine(shares[:2]) != secret


def test_numbers_that_do_not_fit_are_refused() -> None:
    for bad in (np.nan, np.inf, 2.0**31):
        with pytest.raises(FederationError, match="not finite"):
            encode(np.array([bad]))
