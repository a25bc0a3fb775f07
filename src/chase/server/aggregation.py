"""How updates become one mean, and how the server turns it into the next global model.

Sums are taken in blocks of ``BLOCK`` clients of the round, in id order: within a block one after another, then block
after block, in float64. A block can be summed wherever its clients ran and arrive in any order: every engine and
every number of workers gives the same bits.

One protocol: a server rule takes the model that training started from, the mean of the updates and its own
state, and returns the new model and the new state. The state is arrays, so that it goes into the
checkpoint and a resumed run stays exact.

    fedavg    w = mean                                              (McMahan et al. 2017)
    fedavgm   v = momentum * v + (mean - w); w = w + lr * v         (Hsu et al. 2019)
    fedadam   m, u = moments of (mean - w); w = w + lr * m / (sqrt(u) + tau)   (Reddi et al. 2021)

Batch-norm statistics and counters are no weights: they always take the mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from chase.core import plugins
from chase.core.errors import SettingsError, UpdateError
from chase.core.messages import ClientId
from chase.core.randomness import rng
from chase.core.weights import Array, Arrays, Weights

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")

BLOCK = 32
"""Clients per block; part of the results, like a seed."""

ClientWeights = Literal["labelled", "equal", "shuffled"]
"""By number of labels (the paper's text), all alike, or label counts in random order (the authors' code)."""

Summand = tuple[ClientId, Arrays, float]
"""A client, its arrays and its weight."""

Mean = tuple[dict[str, Array], dict[str, Array]]
"""Mean weights, and the mean of what travels beside them."""


def client_weights(counts: Mapping[ClientId, int], kind: ClientWeights, seed: int, round: int) -> dict[ClientId, float]:
    """The weight of each client that has labels, in id order; ``counts`` are labels per client.

    The authors' code averages models in shuffled order with label counts in id order, so each count meets the model of
    a random client: ``shuffled`` repeats that, and needs the counts of all clients of the round.
    """
    ids = sorted(client for client, labels in counts.items() if labels > 0)
    values = [1.0 if kind == "equal" else float(counts[client]) for client in ids]
    if kind == "shuffled":
        values = [values[place] for place in rng(seed, "client-weights", round).permutation(len(values))]
    return dict(zip(ids, values, strict=True))


@dataclass(frozen=True)
class BlockSum:
    """The weighted sums of one block of clients."""

    block: int
    sums: dict[str, Array]
    """Floating arrays: sum of weight * array, float64."""
    largest: dict[str, Array]
    """Integer arrays (batch-norm counters): a count does not halve well, so the largest stands for all."""
    weight: float
    """Sum of the weights."""


def in_blocks(clients: Iterable[ClientId]) -> dict[ClientId, int]:
    """The block of each of a round's clients: the first ``BLOCK`` by id are block 0, and so on.

    By place among those who take part, not by id: of 100 among 10,000 hardly two would share a block of ids.
    """
    return {client: place // BLOCK for place, client in enumerate(sorted(clients))}


def block_sum(block: int, parts: Sequence[Summand]) -> BlockSum:
    """The sums over clients of one block, taken in id order whatever order they come in."""
    ordered = sorted(parts, key=lambda part: part[0])
    sums: dict[str, Array] = {}
    largest: dict[str, Array] = {}
    for name, like in ordered[0][1].items():
        if like.dtype.kind == "f":
            _, first, weight = ordered[0]
            summed = np.asarray(np.multiply(first[name], weight, dtype=np.float64))
            summed += 0.0  # a sum from zero has no negative zeros
            for _, arrays, weight in ordered[1:]:
                summed += np.multiply(arrays[name], weight, dtype=np.float64)
            sums[name] = summed
        else:
            largest[name] = np.maximum.reduce([arrays[name] for _, arrays, _ in ordered])
    return BlockSum(block, sums, largest, float(sum(weight for _, _, weight in ordered)))


class RunningSum:
    """Adds block sums in the order of their blocks, in whatever order they arrive.

    With ``expected``, the numbers of the blocks that may come, a sum is added and forgotten as soon as all before it
    are there; without, all are kept to the end. A block that brings nothing is passed over with ``skip``.
    """

    def __init__(self, expected: Iterable[int] = ()) -> None:
        self._expected = sorted(set(expected), reverse=True)
        self._early: dict[int, BlockSum | None] = {}
        self._total: BlockSum | None = None

    def add(self, part: BlockSum) -> None:
        """Take one block's sums; each block comes once."""
        self._take(part.block, part)

    def skip(self, block: int) -> None:
        """No client of this block takes part in the sum."""
        self._take(block, None)

    def _take(self, block: int, part: BlockSum | None) -> None:
        if block in self._early or (self._total is not None and block <= self._total.block):
            raise UpdateError(f"block {block} of the clients arrived twice or too late")
        self._early[block] = part
        while self._expected and self._expected[-1] in self._early:
            self._fold(self._early.pop(self._expected.pop()))

    def _fold(self, part: BlockSum | None) -> None:
        if part is None:
            return
        if self._total is None:
            self._total = BlockSum(part.block, {n: a.copy() for n, a in part.sums.items()}, part.largest, part.weight)
            return
        total = self._total
        for name, array in part.sums.items():
            total.sums[name] += array
        largest = {name: np.maximum(array, part.largest[name]) for name, array in total.largest.items()}
        self._total = BlockSum(part.block, total.sums, largest, total.weight + part.weight)

    def total(self) -> BlockSum:
        """All sums; what has not had its turn yet is added now."""
        for block in sorted(self._early):
            self._fold(self._early.pop(block))
        if self._total is None:
            raise UpdateError("an average of no updates was asked for")
        return self._total

    def mean(self, like: Arrays) -> dict[str, Array]:
        """The weighted mean, in the order and types of ``like``."""
        total = self.total()
        if total.weight <= 0:
            raise UpdateError("all updates have weight zero, so there is no average")
        return {
            name: (total.sums[name] / total.weight).astype(array.dtype) if name in total.sums else total.largest[name]
            for name, array in like.items()
        }


def average(parts: Sequence[Summand], clients: Iterable[ClientId] | None = None) -> dict[str, Array]:
    """The weighted mean of clients' arrays, block by block; ``clients`` are all that were asked, if more than these."""
    numbers = in_blocks((client for client, _, _ in parts) if clients is None else clients)
    blocks: dict[int, list[Summand]] = {}
    for part in parts:
        blocks.setdefault(numbers[part[0]], []).append(part)
    running = RunningSum(blocks)
    for block, some in blocks.items():
        running.add(block_sum(block, some))
    return running.mean(parts[0][1] if parts else {})


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
    about: str = ""


SERVERS: dict[str, ServerKind] = {
    "fedavg": ServerKind(fed_avg, 1.0, "the mean itself"),
    "fedavgm": ServerKind(fed_avg_m, 1.0, "momentum over the changes of the rounds"),
    "fedadam": ServerKind(fed_adam, 0.01, "Adam over the changes of the rounds"),
}


def find_server(name: str) -> ServerKind:
    """A server rule by name, or one's own: an object, of another package, or ``package.module:function``."""
    if name in SERVERS:
        return SERVERS[name]
    found = plugins.find("server", name, SERVERS)
    if isinstance(found, ServerKind):
        return found
    if not callable(found):
        raise SettingsError(f"server '{name}' is a {type(found).__name__}, not a function of start, mean, state, plan")
    try:
        inspect.signature(found).bind("start", "mean", "state", "plan")
    except TypeError as error:
        raise SettingsError(f"server '{name}' is called with start, mean, state and plan, but {error}") from None
    except ValueError:
        pass  # a function that does not tell its arguments
    rule: ServerRule = found
    return ServerKind(rule, 1.0)
