"""The head that sums give, as weights of a network and as numbers for the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from chase.closed_form import ridge
from chase.closed_form.calibration import SHARPNESS, closed_form
from chase.closed_form.feature_map import LEAST_RIDGE
from chase.closed_form.sums import Sums
from chase.core.errors import ChaseError, DataError, UpdateError
from chase.core.weights import Array


class NotEnough(ChaseError):
    """Labels of fewer than two classes: nothing to solve yet."""


@dataclass(frozen=True)
class SolvedHead:
    """A last layer, and what it was solved with."""

    weights: dict[str, Array]
    facts: dict[str, float]
    noise: float
    """Expected squared error per class and new sample."""


def solved_head(
    sums: Sums, ridge_weight: float | None, sharpness: float = SHARPNESS, least: float = LEAST_RIDGE
) -> SolvedHead:
    """The head for these sums; ``NotEnough`` says that labels of a second class are missing."""
    held = int((sums.counts > 0).sum())
    if held < 2:
        raise NotEnough(
            f"labels of {held} class{'' if held == 1 else 'es'} are known so far, and a classifier needs two: "
            "until more are labelled the model cannot tell classes apart"
        )
    try:
        head = ridge.solve(sums, ridge_weight, least)
    except DataError as error:
        raise UpdateError(f"the head cannot be solved: {error}") from None
    temperature = closed_form(head.noise, sharpness)
    facts = {"ridge": head.ridge, "temperature": temperature}
    return SolvedHead(head.to_weights(temperature), facts, head.noise)
