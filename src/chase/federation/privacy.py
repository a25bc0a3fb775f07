"""Differential privacy of whole sites: clip each site's change, add noise, and count what has been spent.

Every site clips its change of the model to the length ``dp_clip`` and adds its part of Gaussian noise, so that the sum
over the ``quorum`` sites that a round needs carries noise of ``multiplier * dp_clip`` (a distributed Gaussian
mechanism: McMahan et al. 2018 with the noise added before the sum). All sites weigh the same. Who sees the models
learns about a site's taking part at most what (epsilon, delta) allows; the server itself only where it sees no more
than the sum (``secure = true``).

Epsilon is counted by Rényi differential privacy (Mironov 2017), with Opacus' accountant, for a site that takes part in
every round: no amplification by sampling is claimed. The sensitivity is ``dp_clip``: adding or removing one site.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import numpy as np

from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.core.weights import Array, Weights
from chase.server.robust import change_norm, scaled_change

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 128, 256, 512)
LARGEST_MULTIPLIER = 1e6
LEAST_COST = 1e-9
"""What is left of a promise when nothing is: a release with a multiplier of 30,000."""
SLACK = 1e-3
"""Share by which rounding may exceed a promise."""


@cache
def epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """What so many rounds have spent."""
    if rounds == 0:
        return 0.0
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise FederationError(
            "differential privacy needs Opacus' accountant: install it with `pip install 'chase-fal[privacy]'`"
        ) from None
    spent = rdp.compute_rdp(q=1.0, noise_multiplier=multiplier, steps=rounds, orders=list(ORDERS))
    return float(rdp.get_privacy_spent(orders=list(ORDERS), rdp=spent, delta=delta)[0])


@cache
def noise_multiplier(target: float, rounds: int, delta: float) -> float:
    """The least noise, to three digits, with which so many rounds spend at most ``target``."""
    low, high = 1e-2, 1.0
    while epsilon(high, rounds, delta) > target:
        low, high = high, 2 * high
        if high > LARGEST_MULTIPLIER:
            raise FederationError(f"dp_epsilon = {target} over {rounds} rounds cannot be kept: allow more or run fewer")
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle, rounds, delta) > target else (low, middle)
    return high


def private_weights(
    start: Weights, weights: Weights, clip: float, sigma: float, rng: np.random.Generator
) -> dict[str, Array]:
    """Weights whose change from ``start`` is clipped to a length and has noise of ``sigma`` on every number.

    Counters keep the value that they started with.
    """
    norm = change_norm(start, weights)
    clipped = scaled_change(start, weights, min(1.0, clip / norm) if norm else 1.0)
    out: dict[str, Array] = {}
    for name, array in clipped.items():
        if np.issubdtype(array.dtype, np.floating):
            out[name] = (array + rng.normal(scale=sigma, size=array.shape)).astype(array.dtype)
        else:
            out[name] = start[name]
    return out


class Budget:
    """What has been spent of a promise (epsilon, delta), in a file: the server has one and every site its own.

    The Rényi divergence of a Gaussian release with multiplier z is proportional to 1 / z^2, so releases add up to one
    number, ``cost``, whatever their multipliers were: a run that is made longer or goes back adds to it. A release is a
    pair of run and round; the same one again, with the same noise, costs nothing.
    """

    def __init__(self, path: Path, target: float, delta: float) -> None:
        self._path, self._target, self._delta = path, target, delta
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            self._cost, self._last = float(body["cost"]), (str(body["run"]), int(body["round"]))
            self._multiplier = float(body["multiplier"])
        except FileNotFoundError:
            self._cost, self._last, self._multiplier = 0.0, ("", 0), 0.0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FederationError(f"{path} cannot be read, so nobody knows what privacy is left: {error}") from None

    @property
    def spent(self) -> float:
        """Epsilon so far."""
        return epsilon(self._cost**-0.5, 1, self._delta) if self._cost else 0.0

    def plan(self, run: str, round: int, rounds: int) -> float:
        """The noise multiplier of a release when so many are left, this one included; it counts as made."""
        if (run, round) == self._last:
            return self._multiplier
        left = noise_multiplier(self._target, 1, self._delta) ** -2 - self._cost
        if left <= LEAST_COST:
            raise FederationError(
                f"dp_epsilon = {self._target:g} is spent ({self.spent:.3g}): no further round is possible. Allow more, "
                "if the sites accept it, or create a new federation"
            )
        multiplier = math.sqrt(rounds / left)
        self._keep(run, round, multiplier)
        return multiplier

    def spend(self, run: str, round: int, multiplier: float) -> None:
        """Count a release, or refuse it: it would spend too much, or is an earlier one with other noise."""
        if (run, round) == self._last:
            if multiplier != self._multiplier:
                raise FederationError("the same round was asked for with other noise before: nothing is sent")
            return
        if not 0 < multiplier < math.inf or epsilon((self._cost + multiplier**-2) ** -0.5, 1, self._delta) > (
            self._target * (1 + SLACK)
        ):
            raise FederationError(
                f"this round would spend more than the dp_epsilon = {self._target:g} that this site accepted: "
                "nothing is sent"
            )
        self._keep(run, round, multiplier)

    def _keep(self, run: str, round: int, multiplier: float) -> None:
        self._cost, self._last, self._multiplier = self._cost + multiplier**-2, (run, round), multiplier
        body = {"cost": self._cost, "run": run, "round": round, "multiplier": multiplier}
        write_atomically(self._path, json.dumps(body).encode(), durable=True)


def release_of(run: str, sites: int, clip: float) -> str:
    """What the server and the sites name the releases of a run by in their accounts: other noise is another release."""
    return f"{run} {sites} {clip}"


def site_sigma(multiplier: float, clip: float, sites: int) -> float:
    """The noise of one site, of at least so many that are summed."""
    return multiplier * clip / math.sqrt(sites)
