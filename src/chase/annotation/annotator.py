"""What is asked of an annotator, and what comes back.

Annotators never block: ``ask`` files questions, ``answers`` returns what is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


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
