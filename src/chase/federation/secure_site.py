"""A site's side of a secure sum: what it would have sent becomes a vector, and only masked words leave the site.

Secrets and vector of a sum lie in ``secure/`` of the site's home while it is under way. A step that is asked for
again is answered as before; which of a site's two secrets is given away is decided once (``unmask``). A vector becomes
part of sums over one set of sites only, also where a round is held again: of two sums over different sites the
difference would be known.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from chase.core.errors import BadSharesError, FederationError, SummedBeforeError
from chase.core.files import write_atomically, write_private
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Array, Weights, digest
from chase.federation.privacy import Budget, private_weights, release_of, site_sigma
from chase.federation.secure_sum import Party, PublicKeys, Words
from chase.site.place import Site


def noise_of(site: Site, run: str, round: int) -> np.random.Generator:
    """Noise that nobody else can repeat, and that is the same when an order is repeated."""
    path = site.path / "noise.secret"
    if not path.exists():
        write_private(path, secrets.token_bytes(32), refusal=FederationError)
    seed = [*path.read_bytes(), *f"{run} {round}".encode()]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))


def with_noise(
    site: Site, update: ClientUpdate, order: RoundOrder, rules: Mapping[str, Any], asked: Mapping[str, Any]
) -> Weights:
    """The weights as they leave the site under differential privacy; the site keeps its own account of what is spent.

    ``rules`` are those that the site accepted, ``asked`` is the noise of this round: a multiplier, and how many sites
    at least share it.
    """
    multiplier, sites, clip = float(asked["multiplier"]), int(asked["sites"]), float(rules["dp_clip"])
    if sites < 1:
        raise FederationError("the server asks for noise shared by no site: nothing is sent")
    account = Budget(site.path / "privacy.json", float(rules["dp_epsilon"]), float(rules["dp_delta"]))
    # The same noise on two vectors would give away their difference: a turn taken again is another release.
    release = f"{release_of(order.run, sites, clip)} {digest(order.origin)} {digest(update.weights)}"
    account.spend(release, order.round, multiplier)
    noise = noise_of(site, f"{release} {multiplier!r}", order.round)  # two scales of one noise would give it away
    return private_weights(order.origin, update.weights, clip, site_sigma(multiplier, clip, sites), noise)


KEPT = 20
"""Vectors of each job of which the site remembers with whom they were summed."""
JOBS = ("turn", "tally")
"""What is summed securely: answers to orders, and scores."""


class SecureSite:
    """The sum that a site takes part in now."""

    def __init__(self, site: Site, job: str) -> None:
        if job not in JOBS:
            raise FederationError("a secure sum of another kind than this site takes part in")
        self._path = site.path / "secure" / f"{job}.json"
        self._words, self._sets = self._path.with_suffix(".words"), self._path.with_suffix(".sets")

    def begin(self, number: ClientId, context: str, of: str, words: Words) -> dict[str, Array]:
        """Step 1: keep the vector, ``of`` a run and round or of a model, and new secrets; the public keys leave."""
        body = self._read()
        if body is None or body["context"] != context:
            party = Party(number, context)
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._words, words.tobytes())
            digest = hashlib.sha256(words.tobytes()).hexdigest()
            body = {"context": context, "number": number, "state": party.state.hex(), "words": digest}
            body["of"] = f"{of} {digest}"
            self._write(body)
        return _arrays({name: bytes(value) for name, value in asdict(self._party(body).keys).items()})

    def shares(self, header: Mapping[str, Any]) -> dict[str, Array]:
        """Step 2."""
        body = self._open(header)
        if "sealed" not in body:
            sealed = self._party(body).shares(read_keys(header), int(header["threshold"]))
            body |= {"keys": header["keys"], "threshold": int(header["threshold"])}
            body["sealed"] = {str(other): box.hex() for other, box in sealed.items()}
            self._write(body)
        own = str(body["number"])
        return _arrays({other: bytes.fromhex(box) for other, box in body["sealed"].items() if other != own})

    def masked(self, header: Mapping[str, Any]) -> dict[str, Array]:
        """Step 3."""
        body = self._open(header)
        if body.setdefault("boxes", header["boxes"]) != header["boxes"]:
            raise FederationError("the server asks for a masked vector twice, with other shares")
        self._write(body)
        raw = self._words.read_bytes()
        if hashlib.sha256(raw).hexdigest() != body["words"]:
            raise FederationError("the vector of a secure sum is not the one that this site began with")
        words: Words = np.frombuffer(raw, dtype=np.uint64)
        alive = sorted([int(n) for n in body["boxes"]] + [int(body["number"])])
        return {"words": self._party(body).masked(words, read_keys(body), alive)}

    def unmask(self, header: Mapping[str, Any]) -> dict[str, Array]:
        """Step 4: once, for one set of sites."""
        body = self._open(header)
        sealed = _boxes(body)
        bad = self._party(body).unopened(sealed, read_keys(body))
        if bad:  # nothing is given, so the vector may still be summed without these sites
            raise BadSharesError(bad)
        came = sorted(int(n) for n in header["came"])
        if body.setdefault("came", came) != came:
            raise FederationError("the server asks for shares twice, for other sites: nothing is given")
        self._keep_set(str(body["of"]), came)
        self._write(body)
        own = int(body["number"])
        sealed[own] = bytes.fromhex(body["sealed"][str(own)])
        given = self._party(body).unmask(sealed, read_keys(body), came, int(body["threshold"]))
        return _arrays({str(other): share for other, share in given.items()})

    def _keep_set(self, vector: str, came: list[int]) -> None:
        """Refuse to have a vector summed with other sites than before."""
        try:
            known: dict[str, list[int]] = json.loads(self._sets.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = {}
        except (OSError, ValueError) as error:
            raise FederationError(f"{self._sets} cannot be read ({error}): restore it, or remove it") from None
        if known.setdefault(vector, came) != came:
            raise SummedBeforeError
        write_atomically(self._sets, json.dumps(dict(list(known.items())[-KEPT:])).encode(), durable=True)

    def _party(self, body: Mapping[str, Any]) -> Party:
        return Party(int(body["number"]), str(body["context"]), bytes.fromhex(body["state"]))

    def _open(self, header: Mapping[str, Any]) -> dict[str, Any]:
        body = self._read()
        if body is None or body["context"] != header["context"]:
            raise FederationError("a step of a secure sum that this site has no part in")
        return body

    def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def _write(self, body: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._path, json.dumps(body).encode())


def read_keys(header: Mapping[str, Any]) -> dict[int, PublicKeys]:
    """Public keys by site."""
    return {int(n): PublicKeys(bytes.fromhex(k[0]), bytes.fromhex(k[1])) for n, k in header["keys"].items()}


def _boxes(body: Mapping[str, Any]) -> dict[int, bytes]:
    """The sealed shares of the others, by site."""
    return {int(n): bytes.fromhex(box) for n, box in body["boxes"].items()}


def _arrays(parts: Mapping[str, bytes]) -> dict[str, Array]:
    return {name: np.frombuffer(part, dtype=np.uint8).copy() for name, part in parts.items()}
