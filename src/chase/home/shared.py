"""One page for several simulated clients: each client keeps its state in the run's checkpoint and asks in one inbox.

Nothing is marked as read here: in every turn a client looks at all labels of its own samples, and reading one
twice changes nothing. Killed at any moment, a run therefore finds every answer again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Answer, Panel, Question
from chase.home.again import note_again, panel_of
from chase.home.home import Home


class SharedPage:
    """The annotator of one of the clients whose samples are on the page."""

    def __init__(self, home: Home, ids: NDArray[np.int64]) -> None:
        self._home, self._own = home, frozenset(ids.tolist())

    def ask(self, questions: Sequence[Question]) -> None:
        """File questions; one that is filed already is left as it is."""
        if questions:
            self._home.inbox.file(questions)
            note_again(self._home, questions)

    def withdraw(self, samples: Sequence[int]) -> None:
        """Close questions that waited too long."""
        if samples:
            self._home.inbox.expire(samples)

    def answers(self, turn: int) -> Sequence[Answer]:
        """Every label in force of the client's samples, those known before included."""
        return [answer for answer in self._home.inbox.hand_out(0)[0] if answer.sample in self._own]

    def panel(self) -> Panel:
        """What people said of the client's samples."""
        return panel_of(self._home, self._own)
