"""Whether an update can be what it says it is, before it touches the model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from chase.client.contribute import PREPARE, SUM
from chase.closed_form.feature_map import LIMIT
from chase.closed_form.patches import FIRST_PATCHES
from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.pools import NAMES
from chase.core.weights import check_fits, without
from chase.federation.rules import Rules
from chase.server.closed_form import check_answer_fits
from chase.site.turn import METRICS

Shape = tuple[int, ...]
NONE: Mapping[str, Shape] = {}

FIT_COUNTS = {"images": 1, "texts": 1, "frequency": 1, "column.count": 1, "moment.count": 1}
FIT_COUNTS |= {"patch.count": FIRST_PATCHES}
"""Sums that fit features and count something: how often at most per sample."""
NEEDED = frozenset({"turn", "labels", "inferences", "inferred_samples"} | {f"pool_{name}" for name in NAMES})


class Outgrown(UpdateError):
    """A site says more than its size at the handshake allows: it may have grown, so hands are shaken again."""


def check_answer(
    update: ClientUpdate, order: RoundOrder, rules: Rules, samples: int, shapes: Mapping[str, Shape] = NONE
) -> None:
    """Refuse an update that does not fit its order, or whose weight or metrics cannot be right.

    ``samples`` is how many the site said it has; ``shapes`` are those of the sums that fit features.
    """
    check_answer_fits(update, order)
    who = f"update of client {update.client} for round {order.round}"
    odd = sorted(k for k in update.metrics if k not in METRICS and not k.startswith("seconds_"))
    if odd:
        raise UpdateError(f"{who}: metrics that were not agreed on: {', '.join(odd[:5])}")
    lacking = sorted(NEEDED - update.metrics.keys())
    if lacking:
        raise UpdateError(f"{who}: missing metrics: {', '.join(lacking[:5])}")
    wild = sorted(k for k, v in update.metrics.items() if not math.isfinite(v) or (v < 0 and k != "train_loss"))
    if wild:
        raise UpdateError(f"{who}: metric '{wild[0]}' is {update.metrics[wild[0]]}")
    if update.num_labeled > rules.most_labels or update.num_labeled != update.metrics["pool_labeled"]:
        raise UpdateError(
            f"{who}: a labelled count of {update.num_labeled} beside a pool of "
            f"{update.metrics['pool_labeled']:.0f} is implausible (at most {rules.most_labels})"
        )
    check_sums(update, who, samples)
    if order.phase == PREPARE:
        check_fit_sums(update, who, samples, shapes)
    held = sum(update.metrics[f"pool_{name}"] for name in NAMES)
    labels = update.metrics["labels"] - update.metrics.get("second_opinions", 0.0)
    if labels < 0:
        raise UpdateError(f"{who}: more second opinions than labels")
    if max(held, labels) > samples:
        raise Outgrown(
            f"{who}: pools of {held:.0f} samples and {labels:.0f} labels given are more than the "
            f"{samples} samples that it has by the handshake"
        )


def check_fit_sums(update: ClientUpdate, who: str, samples: int, shapes: Mapping[str, Shape]) -> None:
    """Refuse sums that fit features if they are others than were asked for, or count more than so many samples."""
    check_fits(update.extras, {name: np.empty(shape) for name, shape in shapes.items()}, who)
    for name, each in FIT_COUNTS.items():
        array = update.extras.get(f"{SUM}{name}")
        if array is not None and array.size and not 0 <= array.min() <= array.max() <= each * samples:
            raise Outgrown(f"{who}: the sums '{name}' hold {array.max():.3g}, which {samples} samples cannot give")


def per_sample(update: ClientUpdate, samples: int) -> float:
    """How large the sums that fit features are for one sample; cells of tables may have any size and do not count."""
    parts = without(update.extras, f"{SUM}column.").values()
    return math.sqrt(sum(float(np.square(array).sum()) for array in parts)) / max(1, samples)


def check_sums(update: ClientUpdate, who: str, samples: int) -> None:
    """Refuse sums of labelled samples that no set of so many samples has: features are codes of at most ``LIMIT``.

    A site may add all its samples and remove as many in one round.
    """
    bounds = {"counts": 1, "features": LIMIT, "cross": LIMIT, "outer": LIMIT**2}
    for name, bound in bounds.items():
        array = update.extras.get(f"{SUM}{name}")
        if array is None or not array.size:
            continue
        if (array != np.rint(array)).any():
            raise UpdateError(f"{who}: the sums '{name}' contain a number that is not an integer")
        largest = float(np.abs(array).max())
        if largest > 2.0 * bound * samples:
            raise Outgrown(f"{who}: the sums '{name}' hold {largest:.3g}, which {samples} samples cannot give")
