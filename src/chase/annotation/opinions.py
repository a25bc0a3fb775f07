"""From several people's answers to one label: majority, Dawid-Skene weights, and what waits for an adjudicator.

Dawid and Skene (1979): each annotator has a confusion matrix, estimated by EM together with the posterior of
every sample's class. Departures: each annotator starts with ``TRUST`` right and ``DOUBT`` wrong answers per class, as
EM would find one class for all from a few answers; and only answers that name a class take part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

COLLEAGUE = "ask a colleague"
"""The reason of an answer that is none: somebody else is to be asked."""
RULES = ("majority", "dawid-skene")
QUOTE = '"'
CERTAIN = 0.8
"""The posterior from which Dawid-Skene decides without an adjudicator."""
TRUST, DOUBT = 4.0, 1.0
"""What is thought of a person beforehand: as if they had been right 4 times and wrong once in each class."""
STEPS = 50
TOLERANCE = 1e-6

Votes = NDArray[np.int64]
"""(votes, 3): sample, annotator, class, each numbered from 0."""


@dataclass(frozen=True)
class Opinion:
    """What one person says of a sample, as far as it is in force."""

    answer: int
    annotator: int
    by: str
    label: int | None
    reason: str = ""
    unsure: bool = False
    decides: bool = False


@dataclass(frozen=True)
class OpinionOutcome:
    """What the opinions come to. Only "decided" has a label or a reason to set the sample aside."""

    state: Literal["open", "conflict", "decided"]
    label: int | None = None
    reason: str = ""
    rule: str = ""
    by: str = ""
    answer: int = 0


def votes_of(opinions: Sequence[Opinion]) -> list[Opinion]:
    """The opinions that count: all but those that ask for a colleague."""
    return [one for one in opinions if one.reason != COLLEAGUE]


def outcome(opinions: Sequence[Opinion], wanted: int, posterior: NDArray[np.float64] | None = None) -> OpinionOutcome:
    """The label of a sample from its opinions, oldest first; ``posterior`` (classes,) is used where it is given.

    A decision of an adjudicator or an imported correction is final, the newest first. Otherwise ``wanted`` votes are
    waited for; more than half of them decide, or the posterior; what neither settles is a conflict.
    """
    decisions = [one for one in opinions if one.decides]
    if decisions:
        last = decisions[-1]
        return OpinionOutcome("decided", last.label, last.reason, "decision", last.by, last.answer)
    votes = votes_of(opinions)
    if not votes or len(votes) < wanted:
        return OpinionOutcome("open")
    if len(votes) == 1:
        (one,) = votes
        return OpinionOutcome("decided", one.label, one.reason, "single", one.by, one.answer)
    (best, count), *_ = Counter((one.label, one.reason) for one in votes).most_common()
    rule = "majority"
    if posterior is not None and best[0] is not None and count < len(votes):
        likeliest = int(posterior.argmax())
        if posterior[likeliest] < CERTAIN:
            return OpinionOutcome("conflict")
        best, rule = (likeliest, ""), "dawid-skene"
    elif count * 2 <= len(votes):
        return OpinionOutcome("conflict")
    agreeing = [one for one in votes if (one.label, one.reason) == best]
    if not agreeing:
        return OpinionOutcome("conflict")
    return OpinionOutcome("decided", *best, rule, listed({one.by for one in agreeing}), agreeing[-1].answer)


def listed(names: Iterable[str]) -> str:
    """Names in one cell, in order; one that has a comma stands in quotation marks, as in a CSV."""
    quoted = (f'"{name.replace(QUOTE, QUOTE * 2)}"' if "," in name or QUOTE in name else name for name in sorted(names))
    return ", ".join(quoted)


@dataclass(frozen=True)
class Crowd:
    """What Dawid-Skene found out about annotators and samples."""

    posterior: NDArray[np.float64]
    """(samples, classes)"""
    confusion: NDArray[np.float64]
    """(annotators, classes, classes): the chance that an annotator says the second where the first is true."""
    prior: NDArray[np.float64]
    """(classes,)"""

    def quality(self) -> NDArray[np.float64]:
        """(annotators,): the chance of a right answer."""
        return np.asarray(np.einsum("kcc,c->k", self.confusion, self.prior))


def dawid_skene(votes: Votes, samples: int, annotators: int, classes: int) -> Crowd:
    """EM from the shares of votes, until the posterior moves by less than ``TOLERANCE``."""
    sample, annotator, said = votes.T
    posterior = np.zeros((samples, classes))
    np.add.at(posterior, (sample, said), 1.0)
    posterior /= np.maximum(posterior.sum(1, keepdims=True), 1.0)
    for _ in range(STEPS):
        prior = posterior.sum(0) + 1.0
        prior /= prior.sum()
        confusion = np.full((annotators, classes, classes), DOUBT / max(1, classes - 1))
        confusion[:, np.arange(classes), np.arange(classes)] = TRUST
        np.add.at(confusion.transpose(0, 2, 1), (annotator, said), posterior[sample])
        confusion /= confusion.sum(2, keepdims=True)
        log = np.tile(np.log(prior), (samples, 1))
        np.add.at(log, sample, np.log(confusion[annotator, :, said]))
        fresh = np.exp(log - log.max(1, keepdims=True))
        fresh /= fresh.sum(1, keepdims=True)
        moved = float(np.abs(fresh - posterior).max()) if samples else 0.0
        posterior = fresh
        if moved < TOLERANCE:
            break
    return Crowd(posterior, confusion, prior)


def numbered(rows: Sequence[tuple[int, int, int]]) -> tuple[Votes, Mapping[int, int], Mapping[int, int]]:
    """(sample, annotator, class) with samples and annotators numbered from 0, and both numberings."""
    samples = {s: i for i, s in enumerate(sorted({row[0] for row in rows}))}
    people = {p: i for i, p in enumerate(sorted({row[1] for row in rows}))}
    votes = np.array([(samples[s], people[p], c) for s, p, c in rows], dtype=np.int64).reshape(-1, 3)
    return votes, samples, people
