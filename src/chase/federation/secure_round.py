"""The server's side of a secure sum over a transport: three more messages to the sites that sent their keys.

A site that does not answer a step in time, or whose answer does not fit, is left out from then on; the sum continues
while more than half of the sites are left, and at least three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from chase.core.errors import FederationError
from chase.core.messages import ClientId, ClientUpdate
from chase.core.weights import Arrays
from chase.federation.secure_sum import (
    BOX,
    KEY,
    LEAST,
    SHARE,
    PublicKeys,
    Words,
    check_sites,
    is_key,
    share_number,
    unmasked_sum,
)

Header = dict[str, object]
Ask = Callable[[str, Mapping[ClientId, Header]], Mapping[ClientId, Arrays]]
"""Sends each site a step with its header; returns what came back in time."""
Refuse = Callable[[ClientId, str], None]
Fits = Callable[[ClientId, Arrays], bool]


@dataclass(frozen=True)
class Summed:
    """A sum and whose vectors are in it."""

    total: Words
    sites: tuple[ClientId, ...]


def keys_of(update: ClientUpdate) -> PublicKeys:
    """The public keys in a site's answer to an order; anything else with them, or no keys, is refused."""
    if update.weights or set(update.extras) != {"seal", "mask"}:
        raise FederationError("the answer of a site in a secure sum holds more or less than its two keys")
    seal, mask = (update.extras[name] for name in ("seal", "mask"))
    if not all(half.nbytes == KEY and is_key(half.tobytes()) for half in (seal, mask)):
        raise FederationError("a key of a site for a secure sum is not a key")
    return PublicKeys(seal.tobytes(), mask.tobytes())


def used_twice(keys: Mapping[ClientId, PublicKeys]) -> list[ClientId]:
    """The sites that have a key of another, or one key for both purposes."""
    uses = Counter(half for each in keys.values() for half in (each.seal, each.mask))
    return [n for n, each in keys.items() if uses[each.seal] > 1 or uses[each.mask] > 1]


def threshold_of(count: int) -> int:
    """More than half, and never fewer than three."""
    return max(LEAST, count // 2 + 1)


def secure_total(
    context: str, job: str, keys: Mapping[ClientId, PublicKeys], size: int, ask: Ask, refuse: Refuse = lambda n, w: None
) -> Summed:
    """All steps after the first; ``size`` is the length of a vector, ``refuse`` is told whose answers do not fit."""
    threshold = threshold_of(len(keys))
    check_sites(keys, threshold)
    common: Header = {"context": context, "job": job, "threshold": threshold}
    listed = {str(n): [k.seal.hex(), k.mask.hex()] for n, k in keys.items()}

    def fitting(step: str, headers: Mapping[ClientId, Header], fits: Fits) -> dict[ClientId, Arrays]:
        answers = ask(step, headers)
        for n in answers:
            if not fits(n, answers[n]):
                refuse(n, f"its answer to step '{step}' of a secure sum does not fit")
        return {n: found for n, found in sorted(answers.items()) if fits(n, found)}

    def boxes_fit(n: ClientId, found: Arrays) -> bool:
        return set(found) == {str(o) for o in keys if o != n} and all(box.nbytes == BOX for box in found.values())

    sealed = fitting("shares", {n: {**common, "keys": listed} for n in sorted(keys)}, boxes_fit)
    alive = sorted(sealed)
    _enough(alive, threshold, "sent shares")
    boxes = {to: {str(by): sealed[by][str(to)].tobytes().hex() for by in alive if by != to} for to in alive}
    vectors = fitting("masked", {n: {**common, "boxes": boxes[n]} for n in alive}, lambda n, found: _fits(found, size))
    _enough(vectors, threshold, "sent vectors")
    came, place = sorted(vectors), {n: at + 1 for at, n in enumerate(sorted(keys))}

    def shares_fit(n: ClientId, found: Arrays) -> bool:
        shares = [share.tobytes() for share in found.values()]
        whole = set(found) == {str(of) for of in alive} and all(len(share) == SHARE for share in shares)
        return whole and all(share_number(share) == place[n] for share in shares)

    given = fitting("unmask", {n: {**common, "came": came} for n in came}, shares_fit)
    _enough(given, threshold, "helped to unmask the sum")
    bared = {n: {int(of): share.tobytes() for of, share in found.items()} for n, found in given.items()}
    words: dict[ClientId, Words] = {n: found["words"] for n, found in vectors.items()}
    return Summed(unmasked_sum(context, keys, alive, words, bared, threshold), tuple(came))


def _fits(found: Arrays, size: int) -> bool:
    words = found.get("words")
    return words is not None and words.dtype == np.uint64 and words.shape == (size,)


def _enough(sites: object, threshold: int, did: str) -> None:
    count = len(sites)  # type: ignore[arg-type]
    if count < threshold:
        raise FederationError(f"only {count} sites {did}, {threshold} are needed: this round has no sum")
