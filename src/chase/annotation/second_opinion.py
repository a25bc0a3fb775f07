"""A new sample, or a second opinion on one that has a label? The score of ActiveLab (Goh and Mueller, 2023).

The score of a sample is how far its label can be trusted, from the model's probability p and the people who answered;
low scores are asked first, labelled or not. With K classes and each one weighted by how much better they do than always
naming the commonest class (``weight``):

    labelled   (w_model p[label] + sum over votes w_person q(vote) + w_next / K) / (w_model + sum w_person + w_next)
    new        (w_model max p + w_next / K) / (w_model + w_next)

q(vote) is the share of answers that agree with the label where several people answered, or what is left of it over
the other classes where the vote is for another one. An average person who has not spoken yet (``w_next``) stands in
every score with chance level, so that a sample with few answers is never fully trusted. A person's quality is the
share of answers that agree with other people's; the model's that of labels that it would have given too. While no
sample has two answers, nobody's quality is known: all weights are 1 and only the model speaks.

Departures: a person's quality begins with ``AGREED`` agreeing and ``DIFFERED`` other answers, the model's is counted
over all labelled samples and so is the commonest class, since in the beginning few samples have several answers.
Probabilities are taken as they are: the paper fits their temperature to the votes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Votes

Floats = NDArray[np.float64]

AGREED, DIFFERED = 4.0, 1.0
"""What is thought of a person beforehand, in answers that agree with others' and in answers that do not."""
HALF = 0.5
"""Labels that are trusted less are asked again where no new sample competes."""
LEAST = 1e-3
"""The least weight: nobody counts for nothing."""


def weight(quality: float | Floats, commonest: float) -> Floats:
    """How much somebody counts: 1 if never wrong, about 0 if no better than always naming the commonest class."""
    return np.clip(1 - (1 - np.asarray(quality, dtype=np.float64)) / max(1 - commonest, 1e-9), LEAST, 1.0)


@dataclass(frozen=True)
class Trust:
    """How much the model and each person count."""

    model: float
    people: Mapping[int, float]
    """The weight of each person by number."""
    next: float
    """The weight of an average person who has not spoken yet."""
    agreeing: float | None
    """Share of answers that agree with the label; None while no sample has two."""

    def of_labelled(self, probs: Floats, votes: Sequence[tuple[int, int]], label: int) -> float:
        """Trust in a label: the model's probabilities (classes,), votes as (person, class)."""
        classes = probs.size
        weights = np.array([self.people[person] for person, _ in votes])
        if self.agreeing is None:
            said = np.full(len(votes), probs[label])
        else:
            other = (1 - self.agreeing) / (classes - 1)
            said = np.array([self.agreeing if vote == label else other for _, vote in votes])
        total = self.model * probs[label] + float(weights @ said) + self.next / classes
        return float(total / (self.model + float(weights.sum()) + self.next))

    def of_new(self, probs: Floats) -> Floats:
        """Trust in what the model would say of samples nobody has answered: probs (samples, classes)."""
        total = self.model * probs.max(axis=1) + self.next / probs.shape[1]
        return np.asarray(total / (self.model + self.next))


def find_trust(votes: Votes, labels: Mapping[int, int], guesses: Mapping[int, int]) -> Trust:
    """Weights from all votes, the labels in force and the classes that the model would give, by sample."""
    voters: dict[int, list[tuple[int, int]]] = {}
    for sample, person, label in votes.tolist():
        voters.setdefault(sample, []).append((person, label))
    everybody = sorted({person for given in voters.values() for person, _ in given})
    several = {sample: given for sample, given in voters.items() if len(given) > 1 and sample in labels}
    if not several:
        return Trust(1.0, dict.fromkeys(everybody, 1.0), 1.0, None)
    counts = np.bincount(list(labels.values()))
    commonest = float(counts.max() / counts.sum())
    right = np.mean([guesses[sample] == labels[sample] for sample in guesses])
    often = np.sqrt(np.mean([len(given) for given in voters.values()]))
    quality = agreement_with_others(several, everybody)
    people = {person: float(weight(share, commonest)) for person, share in quality.items()}
    same = [np.mean([vote == labels[sample] for _, vote in given]) for sample, given in several.items()]
    model = float(weight(float(right), commonest)) * float(often)
    return Trust(model, people, float(np.mean(list(people.values()))), float(np.mean(same)))


def agreement_with_others(
    several: Mapping[int, Sequence[tuple[int, int]]], everybody: Sequence[int]
) -> dict[int, float]:
    """Of each person, the share of colleagues' answers to the same samples that are the same."""
    same, of = dict.fromkeys(everybody, AGREED), dict.fromkeys(everybody, AGREED + DIFFERED)
    for given in several.values():
        for person, label in given:
            same[person] += sum(other == label for who, other in given if who != person)
            of[person] += len(given) - 1
    return {person: same[person] / of[person] for person in everybody}


@dataclass(frozen=True)
class Rivals:
    """New samples and labelled ones that compete for the places of a request."""

    new: NDArray[np.int64]
    new_scores: Floats
    again: NDArray[np.int64]
    again_scores: Floats

    def split(self, places: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least trusted: new ones, and at most ``most`` second opinions, least trusted first; new ones win ties.

        Where new samples are too few for all places, second opinions fill them if trusted less than half.
        """
        order = np.lexsort((self.again, self.again_scores))[: max(0, most)]
        again, scores = self.again[order], self.again_scores[order]
        spare = max(0, places - self.new.size)
        surest = np.sort(self.new_scores)[::-1]
        limits = [max([HALF, *surest[:1]])] * spare + surest.tolist()
        taken = 0
        while taken < min(again.size, len(limits)) and scores[taken] < limits[taken]:
            taken += 1
        out = np.lexsort((self.new, -self.new_scores))[: max(0, taken - spare)]
        return np.delete(self.new, out), again[:taken]
