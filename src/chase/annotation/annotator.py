"""What is asked of an annotator, and what comes back.

Annotators never block: ``ask`` files questions, ``answers`` returns what is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from chase.core.weights import Array, Arrays

SECOND_OPINION = "second opinion"
"""Named in the place of a strategy by questions that ask again."""
Votes = NDArray[np.int64]
"""(votes, 3): sample, person, class."""


@dataclass(frozen=True)
class Question:
    """A sample to label, with the reason it was chosen."""

    sample: int
    round: int
    turn: int
    """The client's own turn in which it was asked."""
    strategy: str
    ev: int
    """Last measured epistemic variation (0 if never measured)."""
    score: float | None = None
    """The strategy's score, where it has one; for people only."""
    thoughts: tuple[tuple[int, float], ...] = ()
    """The model's likeliest classes with their probabilities, best first; for people only."""
    again: bool = False
    """A second opinion on a sample that has a label already."""


@dataclass(frozen=True)
class Answer:
    """What an annotator said of a sample; ``label`` None means that nobody can tell."""

    sample: int
    label: int | None
    by: str
    reason: str = ""


@dataclass(frozen=True)
class Desk:
    """What a simulated annotator of one's own is made with, one per client."""

    client: int
    truth: Mapping[int, int]
    """The class of each of the client's samples, by id; -1 where nobody knows."""
    num_classes: int
    seed: int


class Annotator(Protocol):
    """Files questions and hands out answers."""

    def ask(self, questions: Sequence[Question]) -> None:
        """File questions; one that is filed already is left as it is."""
        ...

    def withdraw(self, samples: Sequence[int]) -> None:
        """These samples have waited too long and are no longer asked for."""
        ...

    def answers(self, turn: int) -> Sequence[Answer]:
        """What is ready in the client's turn and has not been handed out before."""
        ...


@dataclass(frozen=True)
class Panel:
    """What several people have said so far, and what they may be asked once more."""

    votes: Votes
    """Each person's last answer to each sample, where it names a class."""
    waiting: Mapping[int, int]
    """Samples that a second opinion is waited for, and the client's turn in which it was asked for."""
    closed: frozenset[int]
    """Samples with votes that are not asked again: decided for good, or nobody is left to ask."""
    given: int
    """Second opinions answered so far."""
    most: int | None = None
    """Second opinions per request that these people want at most; None = as the settings say."""

    def by_sample(self) -> dict[int, list[tuple[int, int]]]:
        """The votes of each sample, as (person, class)."""
        found: dict[int, list[tuple[int, int]]] = {}
        for sample, person, label in self.votes.tolist():
            found.setdefault(sample, []).append((person, label))
        return found


class SeveralPeople(Protocol):
    """An annotator of whom a second opinion may be asked."""

    def panel(self) -> Panel:
        """What was said so far."""
        ...


class Remembers(Protocol):
    """An annotator whose memory is kept with the client's state, so that a resumed run is the same run."""

    def memory(self) -> dict[str, Array]:
        """All that its answers depend on."""
        ...

    def recall(self, memory: Arrays) -> None:
        """Be as when this was the memory; an empty one is the beginning."""
        ...


def has_panel(annotator: Annotator) -> TypeGuard[SeveralPeople]:
    """Whether a second opinion may be asked of it; ``isinstance`` with a protocol takes a hundred times as long."""
    return callable(getattr(annotator, "panel", None))


def remembers(annotator: Annotator) -> TypeGuard[Remembers]:
    """Whether its memory is kept with the client's state."""
    return callable(getattr(annotator, "memory", None)) and callable(getattr(annotator, "recall", None))
