"""Says when training diverges slowly: the loss rises, but stays a number, so that nothing ends the run.

The loss of a round is that of the clients' last local epoch (``metrics.mean_loss``). It is high where it is more than
twice the lowest of the rounds before and more than half of what guessing costs, ln(classes). The second keeps ordinary
runs quiet, whose losses are near 0 and double when hard samples are labelled. An untrained network guesses, so the
lowest of the rounds before the first is what guessing costs; other losses than cross-entropy have no such value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from chase.run.metrics import TRAIN_LOSS, Metrics
from chase.settings import Settings

ROUNDS = 3
"""Rounds in a row with a high loss before it is said."""
TIMES = 2.0


def rising_loss(settings: Settings, classes: int, lines: Sequence[Metrics]) -> list[str]:
    """The note on a loss that rises, in the round in which it is seen first; else nothing.

    Runs that start from fresh weights again and again (``form``) have no loss that could be compared over rounds.
    """
    if settings.learner != "network" or settings.form in ("cycles", "reset") or classes < 2:
        return []
    guessing = math.log(classes)
    lowest, since, high = (guessing if settings.loss == "cross-entropy" else math.inf), 0, 0
    for line in lines:
        loss = line.get(TRAIN_LOSS)
        if loss is None:
            continue
        if loss > max(TIMES * lowest, guessing / 2):
            high += 1
            if high == ROUNDS:
                return [_note(settings, line, lowest, since)] if line is lines[-1] else []
            continue
        high = 0
        if loss < lowest:
            lowest, since = loss, line["round"]
    return []


def _note(settings: Settings, line: Metrics, lowest: float, since: int) -> str:
    before = f"{lowest:.2g} after round {since}" if since else f"{lowest:.2g}, which is what guessing gives"
    return (
        f"the training loss has risen and stayed high for {ROUNDS} rounds: {line[TRAIN_LOSS]:.2g} after round "
        f"{line['round']}, before that {before} (lr = {settings.lr:g}, {settings.optimizer}): the learning rate may be "
        f"too large, try --set lr={settings.lr / 10:.2g}"
    )
