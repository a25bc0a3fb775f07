"""How the server turns the mean of the updates into the next global model.

One protocol: a server rule takes the model that training started from, the mean of the updates and its own
state, and returns the new model and the new state. The state is arrays, so that it goes into the
checkpoint and a resumed run stays exact.

    fedavg    w = mean                                              (McMahan et al. 2017)
    fedavgm   v = momentum * v + (mean - w); w = w + lr * v         (Hsu et al. 2019)
    fedadam   m, u = moments of (mean - w); w = w + lr * m / (sqrt(u) + tau)   (Reddi et al. 2021)

Batch-norm statistics and counters are no weights: they always take the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from chase.core.weights import Array, Arrays, Weights

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class ServerPlan:
    """The numbers that server rules use."""

    lr: float = 1.0
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3


class ServerRule(Protocol):
    """Start of the round, mean of the updates and own state -> new model and new state."""

    def __call__(
        self, start: Weights, mean: Weights, state: Arrays, plan: ServerPlan
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Weights and arrays by name."""
        ...


def fed_avg(
    start: Weights, mean: Weights, state: Arrays, plan: ServerPlan
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The mean itself."""
    return dict(mean), {}


def fed_avg_m(
    start: Weights, mean: Weights, state: Arrays, plan: ServerPlan
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Momentum over the rounds' changes."""
    after: dict[str, Array] = {}

    def step(name: str, change: Array) -> Array:
        after[f"v.{name}"] = plan.momentum * state.get(f"v.{name}", np.zeros_like(change)) + change
        return after[f"v.{name}"] * plan.lr

    return _changed(start, mean, step), after


def fed_adam(
    start: Weights, mean: Weights, state: Arrays, plan: ServerPlan
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Adam over the rounds' changes, without bias correction, as published."""
    after: dict[str, Array] = {}

    def step(name: str, change: Array) -> Array:
        first = state.get(f"m.{name}", np.zeros_like(change))
        second = state.get(f"u.{name}", np.zeros_like(change))
        after[f"m.{name}"] = plan.momentum * first + (1 - plan.momentum) * change
        after[f"u.{name}"] = plan.beta2 * second + (1 - plan.beta2) * change**2
        return np.asarray(plan.lr * after[f"m.{name}"] / (np.sqrt(after[f"u.{name}"]) + plan.tau))

    return _changed(start, mean, step), after


def _changed(start: Weights, mean: Weights, step: Callable[[str, Array], Array]) -> dict[str, Array]:
    """start + step(name, mean - start) in float64 for weights; the mean for statistics and counters."""
    out: dict[str, Array] = {}
    for name, array in mean.items():
        if name.rpartition(".")[2] in STATISTICS or not np.issubdtype(array.dtype, np.floating):
            out[name] = array
            continue
        origin = start[name].astype(np.float64)
        out[name] = (origin + step(name, array.astype(np.float64) - origin)).astype(array.dtype)
    return out


@dataclass(frozen=True)
class ServerKind:
    """A server rule with its usual learning rate."""

    rule: ServerRule
    lr: float


SERVERS: dict[str, ServerKind] = {
    "fedavg": ServerKind(fed_avg, 1.0),
    "fedavgm": ServerKind(fed_avg_m, 1.0),
    "fedadam": ServerKind(fed_adam, 0.01),
}
