"""The server's side of a secure sum over a transport: three more messages to the sites that sent their keys.

A site that does not answer a step in time is left out from then on; the sum continues while more than half of the
sites are left, and at least three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from chase.core.errors import FederationError
from chase.core.messages import ClientId, ClientUpdate
from chase.core.weights import Arrays
from chase.federation.secure_sum import LEAST, PublicKeys, Words, check_sites, unmasked_sum

Header = dict[str, object]
Ask = Callable[[str, Mapping[ClientId, Header]], Mapping[ClientId, Arrays]]
"""Sends each site a step with its header; returns what came back in time."""


@dataclass(frozen=True)
class Summed:
    """A sum and whose vectors are in it."""

    total: Words
    sites: tuple[ClientId, ...]


def keys_of(update: ClientUpdate) -> PublicKeys:
    """The public keys in a site's answer to an order; anything else with them is refused."""
    if update.weights or set(update.extras) != {"seal", "mask"}:
        raise FederationError("the answer of a site in a secure sum holds more or less than its two keys")
    return PublicKeys(update.extras["seal"].tobytes(), update.extras["mask"].tobytes())


def threshold_of(count: int) -> int:
    """More than half, and never fewer than three."""
    return max(LEAST, count // 2 + 1)


def secure_total(context: str, job: str, keys: Mapping[ClientId, PublicKeys], size: int, ask: Ask) -> Summed:
    """All steps after the first; ``size`` is the length of a vector."""
    threshold = threshold_of(len(keys))
    check_sites(keys, threshold)
    common: Header = {"context": context, "job": job, "threshold": threshold}
    listed = {str(n): [k.seal.hex(), k.mask.hex()] for n, k in keys.items()}
    sealed = ask("shares", {n: {**common, "keys": listed} for n in sorted(keys)})
    alive = sorted(n for n, boxes in sealed.items() if set(boxes) == {str(o) for o in keys if o != n})
    _enough(alive, threshold, "sent shares")
    boxes = {to: {str(by): sealed[by][str(to)].tobytes().hex() for by in alive if by != to} for to in alive}
    words = ask("masked", {n: {**common, "boxes": boxes[n]} for n in alive})
    vectors: dict[ClientId, Words] = {n: found["words"] for n, found in words.items() if _fits(found, size)}
    _enough(vectors, threshold, "sent vectors")
    came = sorted(vectors)
    given = ask("unmask", {n: {**common, "came": came} for n in came})
    bared = {n: {int(of): share.tobytes() for of, share in found.items()} for n, found in given.items()}
    whole = {n: shares for n, shares in bared.items() if set(shares) == set(alive)}
    _enough(whole, threshold, "helped to unmask the sum")
    return Summed(unmasked_sum(context, keys, alive, vectors, whole, threshold), tuple(came))


def _fits(found: Arrays, size: int) -> bool:
    words = found.get("words")
    return words is not None and words.dtype == np.uint64 and words.shape == (size,)


def _enough(sites: object, threshold: int, did: str) -> None:
    count = len(sites)  # type: ignore[arg-type]
    if count < threshold:
        raise FederationError(f"only {count} sites {did}, {threshold} are needed: this round has no sum")
