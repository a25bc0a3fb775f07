"""A simulated annotator: it knows the truth, may err, and may take its time.

Beside the test set this is the only place where the truth of a training sample is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Answer, Question
from chase.core.pools import SampleIds
from chase.core.randomness import rng


class Oracle:
    """Answers from the truth, ``delay`` turns after the question, wrong with chance ``wrong``.

    A wrong answer is uniform over the other classes and depends on the sample alone. A sample whose
    truth nobody knows is answered "cannot tell".
    """

    def __init__(
        self,
        ids: SampleIds,
        truth: NDArray[np.int64],
        num_classes: int,
        *,
        seed: int,
        wrong: float = 0.0,
        delay: int = 0,
    ) -> None:
        self._truth = dict(zip(ids.tolist(), truth.tolist(), strict=True))
        self._classes, self._seed, self._wrong, self._delay = num_classes, seed, wrong, delay
        self._waiting: dict[int, int] = {}

    def ask(self, questions: Sequence[Question]) -> None:
        """Remember when each sample was asked for."""
        for question in questions:
            self._waiting.setdefault(question.sample, question.turn)

    def withdraw(self, samples: Sequence[int]) -> None:
        """Forget the questions."""
        for sample in samples:
            self._waiting.pop(sample, None)

    def answers(self, turn: int) -> list[Answer]:
        """Answers to what was asked at least ``delay`` turns ago."""
        ready = sorted(s for s, asked in self._waiting.items() if turn - asked >= self._delay)
        for sample in ready:
            del self._waiting[sample]
        return [self._answer(sample) for sample in ready]

    def _answer(self, sample: int) -> Answer:
        label = self._truth[sample]
        if label < 0:
            return Answer(sample, None, "oracle", "no truth is known")
        if self._wrong > 0 and self._classes > 1:
            draw = rng(self._seed, "wrong-label", sample)
            if draw.random() < self._wrong:
                label = (label + int(draw.integers(1, self._classes))) % self._classes
        return Answer(sample, label, "oracle")
