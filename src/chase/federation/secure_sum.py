"""A sum that hides its parts: the server learns the sum over the sites of a round and nothing about one of them.

Secure aggregation after Bonawitz et al. (2017, "Practical Secure Aggregation", the honest-but-curious variant), in
four steps of one message each way. Sites i, j, ... are numbers; u is the threshold.

    1 keys     i makes two X25519 pairs for this sum and sends their public halves; the server passes all on.
    2 shares   i splits its mask key and a seed b_i into Shamir shares, one per site, any u of which restore it, and
               sends each encrypted for its receiver; the server passes them on.
    3 masked   i sends  x_i + PRG(b_i) + sum_{j>i} PRG(s_ij) - sum_{j<i} PRG(s_ij)  modulo 2^64, where x_i is its vector
               in fixed point and s_ij the secret that i and j agree on. The pairs cancel in the sum.
    4 unmask   for every site whose vector came, who is left sends its share of b; for every site that dropped out
               after step 2, its share of the mask key. Never both of one site: that would bare its vector.

The server restores PRG(b_i) of those whose vectors came and PRG(s_ij) of those whose did not, and subtracts them.
Numbers are whole multiples of 2^-``BITS`` modulo 2^64, so the sum is exact: equal to the plain fixed-point sum, bit for
bit. Shamir shares are Flower's (``flwr.common.secure_aggregation`` uses the same PyCryptodome routine), key agreement
X25519 with HKDF-SHA256, shares travel under ChaCha20-Poly1305, and masks are a ChaCha20 key stream.

Departures: no signatures on the keys of step 1. A server that lies about keys (an active attacker) could pass as a
site's peer: docs/security.md says so.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from chase.core.errors import FederationError

BITS = 24
"""Binary places after the point: a unit is 2^-24, about 6e-8."""
LARGEST = float(2**31)
"""A number of a vector is at most so large, so that the sum of thousands of sites stays within 63 bits."""
LEAST = 3
"""Sites without which nothing is summed: of a sum of two, each knows the other's part."""
KEY = 32
SHARE = 34
"""Bytes of a share."""
BOX = 12 + 2 * SHARE + 16
"""Bytes of two sealed shares."""
Words = NDArray[np.uint64]


def encode(vector: NDArray[np.floating]) -> Words:
    """Numbers in fixed point, modulo 2^64."""
    values = np.asarray(vector, dtype=np.float64)
    if not np.isfinite(values).all() or (values.size and np.abs(values).max() >= LARGEST):
        raise FederationError(f"a number of a vector to be summed is not finite or is larger than {LARGEST:.0f}")
    return np.asarray(np.rint(values * 2**BITS).astype(np.int64).view(np.uint64))


def decode(words: Words) -> NDArray[np.float64]:
    """The numbers of a sum."""
    return np.asarray(words.view(np.int64).astype(np.float64) / 2**BITS)


def stream(key: bytes, size: int) -> Words:
    """Pseudo-random words (size,) from a key."""
    raw = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(raw, dtype="<u8")


def _agree(own: X25519PrivateKey, other: bytes, purpose: bytes) -> bytes:
    shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(algorithm=hashes.SHA256(), length=KEY, salt=None, info=b"chase secure sum " + purpose).derive(shared)


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares of a 32-byte secret: the number of the share, then its two halves."""
    halves = [Shamir.split(threshold, count, secret[i : i + 16], ssss=False) for i in (0, 16)]
    return [struct.pack("<H", a[0]) + a[1] + b[1] for a, b in zip(*halves, strict=True)]


def combine(shares: Sequence[bytes]) -> bytes:
    """The secret from as many shares as it needs."""
    parsed = [(struct.unpack("<H", s[:2])[0], s[2:18], s[18:34]) for s in shares]
    first = Shamir.combine([(number, half) for number, half, _ in parsed], ssss=False)
    return first + Shamir.combine([(number, half) for number, _, half in parsed], ssss=False)


@dataclass(frozen=True)
class PublicKeys:
    """What a site sends in step 1: for sealing shares and for masks."""

    seal: bytes
    mask: bytes


def is_key(half: bytes) -> bool:
    """Whether others can agree on a secret with this public key; with some they cannot, and everybody would fail."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(half))
    except ValueError:
        return False
    return True


def share_number(share: bytes) -> int:
    """The number of a share, from 1 on in the order of the sites."""
    return int(struct.unpack("<H", share[:2])[0])


def check_sites(keys: Mapping[int, PublicKeys], threshold: int) -> None:
    """Refuse a group in which a part could be learnt."""
    if len(keys) < LEAST:
        raise FederationError(f"a secure sum needs at least {LEAST} sites, not {len(keys)}")
    if not len(keys) / 2 < threshold <= len(keys):
        raise FederationError(f"a threshold of {threshold} among {len(keys)} sites is not more than half of them")
    halves = [half for each in keys.values() for half in (each.seal, each.mask)]
    if len(set(halves)) < len(halves) or any(len(half) != KEY for half in halves):
        raise FederationError("a key of a secure sum is used twice or is not a key")


class Party:
    """A site's side of one sum. Its secrets are new for each sum and are dropped with it."""

    def __init__(self, number: int, context: str, state: bytes | None = None) -> None:
        self.number, self._context = number, context.encode()
        raw = secrets.token_bytes(3 * KEY) if state is None else state
        self._state = raw
        self._seal = X25519PrivateKey.from_private_bytes(raw[:KEY])
        self._mask = X25519PrivateKey.from_private_bytes(raw[KEY : 2 * KEY])
        self._seed = raw[2 * KEY :]

    @property
    def state(self) -> bytes:
        """The secrets, for the site's own disk while the sum is under way."""
        return self._state

    @property
    def keys(self) -> PublicKeys:
        """Step 1."""
        return PublicKeys(self._seal.public_key().public_bytes_raw(), self._mask.public_key().public_bytes_raw())

    def _purpose(self, what: str, other: int) -> bytes:
        low, high = sorted((self.number, other))
        return f"{what} {low} {high} ".encode() + self._context

    def shares(self, keys: Mapping[int, PublicKeys], threshold: int) -> dict[int, bytes]:
        """Step 2: for each other site, its shares of our mask key and of our seed, sealed."""
        check_sites(keys, threshold)
        if keys.get(self.number) != self.keys:
            raise FederationError("the keys of a secure sum are not those that this site sent")
        order = sorted(keys)
        mask = split(self._mask.private_bytes_raw(), threshold, len(order))
        seed = split(self._seed, threshold, len(order))
        sealed = {}
        for place, other in enumerate(order):
            body = mask[place] + seed[place]
            key = _agree(self._seal, keys[other].seal, self._purpose("seal", other)) if other != self.number else None
            sealed[other] = body if key is None else self._lock(key, body, self.number, other)
        return sealed

    def _lock(self, key: bytes, body: bytes, sender: int, receiver: int) -> bytes:
        nonce = secrets.token_bytes(12)
        return nonce + ChaCha20Poly1305(key).encrypt(nonce, body, struct.pack("<ii", sender, receiver))

    def unopened(self, sealed: Mapping[int, bytes], keys: Mapping[int, PublicKeys]) -> list[int]:
        """The sites whose sealed shares cannot be opened."""
        found = []
        for other, box in sealed.items():
            try:
                self._open(box, keys[other], other)
            except (FederationError, ValueError, KeyError):
                found.append(other)
        return sorted(found)

    def masked(self, words: Words, keys: Mapping[int, PublicKeys], alive: Sequence[int]) -> Words:
        """Step 3: our vector under the masks that we share with all whose shares came."""
        if self.number not in alive or len(alive) < LEAST:
            raise FederationError(f"a secure sum needs at least {LEAST} sites with shares, not {len(alive)}")
        total = words + stream(self._seed, words.size)
        for other in alive:
            if other != self.number:
                pad = stream(_agree(self._mask, keys[other].mask, self._purpose("mask", other)), words.size)
                total = total + pad if other > self.number else total - pad
        return np.asarray(total, dtype=np.uint64)

    def unmask(
        self, sealed: Mapping[int, bytes], keys: Mapping[int, PublicKeys], came: Sequence[int], threshold: int
    ) -> dict[int, bytes]:
        """Step 4: for each site that sent shares, our share of its seed if its vector came, else of its mask key."""
        if len(came) < max(threshold, LEAST):
            raise FederationError(
                f"only {len(came)} vectors came, {max(threshold, LEAST)} are needed: nothing is revealed"
            )
        found = {}
        for other, box in sealed.items():
            body = box if other == self.number else self._open(box, keys[other], other)
            found[other] = body[SHARE:] if other in came else body[:SHARE]
        return found

    def _open(self, box: bytes, keys: PublicKeys, sender: int) -> bytes:
        key = _agree(self._seal, keys.seal, self._purpose("seal", sender))
        try:
            return ChaCha20Poly1305(key).decrypt(box[:12], box[12:], struct.pack("<ii", sender, self.number))
        except InvalidTag:
            raise FederationError(f"the shares of site {sender} were changed on their way") from None


def unmasked_sum(
    context: str,
    keys: Mapping[int, PublicKeys],
    alive: Sequence[int],
    vectors: Mapping[int, Words],
    bared: Mapping[int, Mapping[int, bytes]],
    threshold: int,
) -> Words:
    """The server's side of step 4: the sum of the vectors that came.

    ``alive`` sent shares, ``vectors`` came from some of them, and ``bared`` is what each site that is left sent last.
    """
    if len(bared) < threshold or len(vectors) < max(threshold, LEAST):
        raise FederationError(
            f"{len(vectors)} vectors and {len(bared)} last answers came, {max(threshold, LEAST)} and {threshold} are "
            "needed: the sum cannot be unmasked"
        )
    total = np.zeros_like(next(iter(vectors.values())))
    for words in vectors.values():
        total = total + words
    for site in alive:
        shares = [given[site] for given in bared.values() if site in given][:threshold]
        secret = combine(shares)
        if site in vectors:
            total = total - stream(secret, total.size)
        else:
            total = total + _pairs(context, site, secret, keys, vectors, total.size)
    return np.asarray(total, dtype=np.uint64)


def _pairs(
    context: str, lost: int, key: bytes, keys: Mapping[int, PublicKeys], vectors: Mapping[int, Words], size: int
) -> Words:
    """What the masks shared with a lost site left in the sum, with its sign turned."""
    own, left = X25519PrivateKey.from_private_bytes(key), np.zeros(size, dtype=np.uint64)
    for other in vectors:
        low, high = sorted((lost, other))
        pad = stream(_agree(own, keys[other].mask, f"mask {low} {high} ".encode() + context.encode()), size)
        left = left + pad if lost < other else left - pad
    return left
