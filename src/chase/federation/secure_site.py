"""A site's side of a secure sum: what it would have sent becomes a vector, and only masked words leave the site.

Secrets and vector of a sum lie in ``secure/`` of the site's home while it is under way. A step that is asked for
again is answered as before; which of a site's two secrets is given away is decided once (``unmask``).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.core.messages import ClientId, ClientUpdate
from chase.core.weights import Array, Weights
from chase.federation.privacy import private_weights
from chase.federation.secure_sum import Party, PublicKeys, Words, encode
from chase.site.place import Site
from chase.site.turn import METRICS

SUMMED = tuple(sorted(METRICS - {"turn", "train_loss"}))
"""The metrics that go into the sum, in this order; seconds and losses stay at the site."""


def real_names(like: Weights) -> list[str]:
    """The arrays of real numbers, in the order in which they are summed."""
    return sorted(name for name, array in like.items() if np.issubdtype(array.dtype, np.floating))


def vector_of(update: ClientUpdate, origin: Weights, weight: float) -> NDArray[np.float64]:
    """Weight times change of the model, the weight, the number of labels and the metrics, as one row of numbers."""
    change = [
        weight * (update.weights[n].astype(np.float64) - origin[n].astype(np.float64)).ravel()
        for n in real_names(origin)
    ]
    rest = [weight, float(update.num_labeled), *(float(update.metrics.get(name, 0.0)) for name in SUMMED)]
    return np.concatenate([*change, np.array(rest)])


def from_sum(total: NDArray[np.float64], origin: Weights) -> tuple[dict[str, Array], float, int, dict[str, float]]:
    """The mean model, the sum of the weights, of the labels and of the metrics; counters stay as they were sent."""
    at, weights = 0, dict(origin)
    tail = total[sum(origin[name].size for name in real_names(origin)) :]
    weight = float(tail[0])
    for name in real_names(origin):
        like = origin[name]
        change = total[at : at + like.size].reshape(like.shape) / (weight or 1.0)
        weights[name] = (like.astype(np.float64) + change).astype(like.dtype)
        at += like.size
    return weights, weight, int(tail[1]), dict(zip(SUMMED, tail[2:].tolist(), strict=True))


def noise_of(site: Site, run: str, round: int) -> np.random.Generator:
    """Noise that nobody else can repeat, and that is the same when an order is repeated."""
    path = site.path / "noise.secret"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
    seed = [*path.read_bytes(), *f"{run} {round}".encode()]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))


def with_noise(site: Site, update: ClientUpdate, run: str, origin: Weights, asked: Mapping[str, Any]) -> Weights:
    """The weights as they leave the site under differential privacy."""
    return private_weights(
        origin, update.weights, float(asked["clip"]), float(asked["sigma"]), noise_of(site, run, update.round)
    )


class SecureSite:
    """The sum that a site takes part in now."""

    def __init__(self, site: Site, job: str) -> None:
        self._path = site.path / "secure" / f"{job}.json"
        self._number = -1

    def begin(self, number: ClientId, context: str, vector: NDArray[np.float64]) -> dict[str, Array]:
        """Step 1: keep the vector and new secrets; the public keys leave."""
        body = self._read()
        if body is None or body["context"] != context:
            party = Party(number, context)
            words = encode(vector)
            body = {"context": context, "number": number, "state": party.state.hex(), "words": words.tolist()}
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
        words: Words = np.array(body["words"], dtype=np.uint64)
        alive = sorted([int(n) for n in body["boxes"]] + [int(body["number"])])
        return {"words": self._party(body).masked(words, read_keys(body), alive)}

    def unmask(self, header: Mapping[str, Any]) -> dict[str, Array]:
        """Step 4: once, for one set of sites."""
        body = self._open(header)
        came = sorted(int(n) for n in header["came"])
        if body.setdefault("came", came) != came:
            raise FederationError("the server asks for shares twice, for other sites: nothing is given")
        self._write(body)
        own = int(body["number"])
        sealed = {int(n): bytes.fromhex(box) for n, box in body["boxes"].items()}
        sealed[own] = bytes.fromhex(body["sealed"][str(own)])
        given = self._party(body).unmask(sealed, read_keys(body), came, int(body["threshold"]))
        return _arrays({str(other): share for other, share in given.items()})

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


def _arrays(parts: Mapping[str, bytes]) -> dict[str, Array]:
    return {name: np.frombuffer(part, dtype=np.uint8).copy() for name, part in parts.items()}


def secure_path(home: Path) -> Path:
    """Where sums under way are kept."""
    return home / "secure"
