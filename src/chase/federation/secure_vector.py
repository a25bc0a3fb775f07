"""What a site would have sent, as one row of 64-bit words that add up, and the sum of such rows read back.

    network       weight times change of the model, the weight, then the common tail, in fixed point
    its head      with head = closed-form, before that: sums of all labelled samples, as whole parts and fractions,
                  and a 1 of each site that has enough labels to send them
    closed-form   sums of newly labelled samples: whole numbers, so their sum is the plain one, bit for bit.
                  Sums that fit features may have fractions: whole parts and fractions travel as words of their own.
    tail          the number of labels and the metrics in ``SUMMED``, in fixed point

A site with nothing to send sends zeros: who has too few labels is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from chase.client.contribute import FIT, PREPARE, SUM, sum_shapes
from chase.client.solved_head import HEAD_SITES, HEAD_SUM
from chase.closed_form.feature_map import FeatureMap, InputSpec
from chase.closed_form.model import ClosedFormNet, FeatureSpec, build_model
from chase.core.errors import FederationError, SettingsError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.weights import Array, Weights, part_of
from chase.data.resident import Samples
from chase.federation.secure_sum import Words, decode, encode
from chase.models.catalog import NetSpec
from chase.settings import Settings
from chase.site.turn import METRICS

SUMMED = tuple(sorted(METRICS - {"turn", "train_loss"}))
"""The metrics that go into the sum, in this order; seconds and losses stay at the site."""
TAIL = 1 + len(SUMMED)
EXACT = float(2**53)
"""Whole numbers below this are exact in float64."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Joint:
    """A sum over the sites of a round, as the server uses it."""

    labels: int
    metrics: dict[str, float]
    weights: Weights = field(default_factory=dict)
    extras: dict[str, Array] = field(default_factory=dict)


class Vector(Protocol):
    """How an answer becomes words, and the sum of words an answer."""

    @property
    def size(self) -> int:
        """Words of one site."""
        ...

    def words(self, update: ClientUpdate) -> Words:
        """An update as words."""
        ...

    def read(self, total: Words) -> Joint:
        """What the sum of the sites' words says."""
        ...


def tail_of(update: ClientUpdate) -> Words:
    """The number of labels and the metrics."""
    return encode(np.array([update.num_labeled, *(update.metrics.get(name, 0.0) for name in SUMMED)], dtype=np.float64))


def read_tail(words: Words) -> Joint:
    """Sums of labels and metrics."""
    labels, *rest = decode(words).tolist()
    return Joint(round(labels), dict(zip(SUMMED, rest, strict=True)))


def whole(values: NDArray[np.float64]) -> Words:
    """Whole numbers as they are, modulo 2^64."""
    if not np.isfinite(values).all() or (values.size and np.abs(values).max() >= EXACT):
        raise FederationError("a number of a sum is not finite or is larger than 2^53")
    if (values != np.rint(values)).any():
        raise FederationError("a number of a sum is not an integer")
    return np.asarray(values.astype(np.int64).view(np.uint64))


@dataclass(frozen=True)
class NetworkVector:
    """For the network learner."""

    origin: Weights
    """The model that every site started from."""
    equal: bool
    """Whether all sites with labels weigh the same."""

    @property
    def names(self) -> list[str]:
        """The arrays of real numbers, in the order in which they are summed; counters stay as they were sent."""
        return sorted(name for name, array in self.origin.items() if np.issubdtype(array.dtype, np.floating))

    @property
    def size(self) -> int:
        """Words of one site."""
        return sum(self.origin[name].size for name in self.names) + 1 + TAIL

    def words(self, update: ClientUpdate) -> Words:
        """Weight times change; a site without labels has no weight."""
        weight = float(update.num_labeled > 0) if self.equal else float(update.num_labeled)
        change = [
            weight * (update.weights[n].astype(np.float64) - self.origin[n].astype(np.float64)).ravel()
            for n in self.names
        ]
        return np.concatenate([encode(np.concatenate([*change, np.array([weight])])), tail_of(update)])

    def read(self, total: Words) -> Joint:
        """The mean model; the model as it was where no site had labels."""
        numbers, joint, at = decode(total[:-TAIL]), read_tail(total[-TAIL:]), 0
        weight, weights = float(numbers[-1]), dict(self.origin)
        for name in self.names:
            like = self.origin[name]
            change = numbers[at : at + like.size].reshape(like.shape) / (weight or 1.0)
            weights[name] = (like.astype(np.float64) + change).astype(like.dtype)
            at += like.size
        return Joint(joint.labels if weight else 0, joint.metrics, weights)


@dataclass(frozen=True)
class SumsVector:
    """For the closed-form learner."""

    shapes: Mapping[str, Shape]
    """The sums of a site, by name."""
    fractions: bool
    """Whether their numbers may have fractions: only while features are fitted."""

    @property
    def count(self) -> int:
        """Numbers in the sums of a site."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def size(self) -> int:
        """Words of one site."""
        return (2 if self.fractions else 1) * self.count + TAIL

    def words(self, update: ClientUpdate) -> Words:
        """The sums, zeros where there are none."""
        sent = {name: array.shape for name, array in update.extras.items()}
        if sent and sent != dict(self.shapes):
            raise FederationError("the sums of this site have other names or shapes than the order asks for")
        arrays = [update.extras[n] if sent else np.zeros(self.shapes[n]) for n in sorted(self.shapes)]
        values = np.concatenate([array.astype(np.float64).ravel() for array in arrays])
        if not self.fractions:
            return np.concatenate([whole(values), tail_of(update)])
        near = np.rint(values)
        return np.concatenate([whole(near), encode(values - near), tail_of(update)])

    def read(self, total: Words) -> Joint:
        """The sums over all sites."""
        values, at, extras = total[: self.count].view(np.int64).astype(np.float64), 0, dict[str, Array]()
        if self.fractions:
            values = values + decode(total[self.count : -TAIL])
        for name in sorted(self.shapes):
            size = int(np.prod(self.shapes[name]))
            extras[name] = values[at : at + size].reshape(self.shapes[name])
            at += size
        joint = read_tail(total[-TAIL:])
        return Joint(joint.labels, joint.metrics, extras=extras)


@dataclass(frozen=True)
class HeadVector:
    """For a network whose last layer is solved: sums for it, who sent them (a 1), then the network itself."""

    network: NetworkVector
    sums: SumsVector

    @property
    def count(self) -> int:
        """Words before those of the network."""
        return self.sums.size - TAIL + 1

    @property
    def size(self) -> int:
        """Words of one site."""
        return self.count + self.network.size

    def words(self, update: ClientUpdate) -> Words:
        """Sums, zeros where a site has too few labels, and the network."""
        sums = self.sums.words(update)[:-TAIL]
        return np.concatenate([sums, encode(np.array([float(bool(update.extras))])), self.network.words(update)])

    def read(self, total: Words) -> Joint:
        """The mean model, and the sums if anybody sent some."""
        rest, at = total[self.count :], self.count - 1
        joint, sites = self.network.read(rest), float(decode(total[at : at + 1])[0])
        if not sites:
            return joint
        found = self.sums.read(np.concatenate([total[:at], rest[-TAIL:]]))
        return replace(joint, metrics=joint.metrics | {HEAD_SITES: sites}, extras=found.extras)


def vector_for(settings: Settings, spec: NetSpec, order: RoundOrder) -> Vector:
    """How the answers to an order are summed."""
    if settings.learner == "network":
        network = NetworkVector(order.origin, settings.client_weights != "labelled")
        if settings.head != "closed-form":
            return network
        shapes = {f"{HEAD_SUM}{name}": shape for name, shape in sum_shapes(order).items()}
        return HeadVector(network, SumsVector(shapes, fractions=True))
    if order.phase == PREPARE:
        return SumsVector(fit_shapes(spec, settings.seed, order), fractions=True)
    return SumsVector({f"{SUM}{name}": shape for name, shape in sum_shapes(order).items()}, fractions=False)


def fit_shapes(spec: NetSpec, seed: int, order: RoundOrder) -> dict[str, Shape]:
    """The sums that an order to fit features asks for: those of no sample at all have the same names and shapes."""
    net = build_model(spec, seed)
    if not isinstance(net, ClosedFormNet):
        raise SettingsError("learner = 'closed-form' needs a closed-form model")
    feature_map: FeatureMap = net.feature_map
    params = part_of(order.extras, FIT)
    empty, rows = no_samples(FeatureSpec.from_text(spec.features).inputs), torch.empty(0, dtype=torch.int64)
    found = feature_map.sums(order.round + feature_map.steps - 1, params, empty, rows)
    return {f"{SUM}{name}": array.shape for name, array in found.items()}


def no_samples(inputs: InputSpec) -> Samples:
    """A set of samples of a kind and shape that holds none."""
    kinds = {"image": torch.uint8, "text": torch.int64}
    nothing = torch.empty((0, *inputs.shape), dtype=kinds.get(inputs.kind, torch.float32))
    return Samples(
        nothing, inputs.kind, inputs.mean, inputs.std, np.empty(0, np.int64), inputs.vocabulary, inputs.columns
    )
