"""A simulated team: several people per client who differ in skill, get tired and may be asked for a second opinion.

Questions go round: whoever is next in turn and has not answered the sample yet. One answer is the label; of several
answers, Dawid-Skene over all answers of the team makes it (nobody adjudicates here, so the likeliest class always
counts). All that answers depend on is the team's memory, which is kept with the client's state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Answer, Panel, Question
from chase.annotation.crowd import SimulatedPerson
from chase.annotation.opinions import dawid_skene, numbered
from chase.core.pools import SampleIds
from chase.core.weights import Array, Arrays

STAMINA = 20
"""Answers after which a person rests; until then skill falls by ``fatigue``."""

Row = tuple[int, int, int]


def team_of(
    client: int, people: int, skill: float, spread: float, confusion: float, fatigue: float
) -> list[SimulatedPerson]:
    """People of a client, with skills evenly from ``skill - spread`` to ``skill + spread``."""
    skills = np.clip(skill + np.linspace(-spread, spread, people) if people > 1 else np.array([skill]), 0.0, 1.0)
    return [
        SimulatedPerson(f"person {number} of client {client}", float(own), confusion, fatigue, STAMINA)
        for number, own in enumerate(skills)
    ]


class SimulatedTeam:
    """The annotator of one client: a team that answers ``delay`` turns after a question."""

    def __init__(
        self,
        ids: SampleIds,
        truth: NDArray[np.int64],
        num_classes: int,
        people: Sequence[SimulatedPerson],
        *,
        seed: int,
        delay: int = 0,
    ) -> None:
        self._truth = dict(zip(ids.tolist(), truth.tolist(), strict=True))
        self._classes, self._people, self._seed, self._delay = num_classes, people, seed, delay
        self.recall({})

    def ask(self, questions: Sequence[Question]) -> None:
        """Remember when each sample was asked for."""
        for question in questions:
            self._waiting.setdefault(question.sample, (question.turn, int(question.again)))

    def withdraw(self, samples: Sequence[int]) -> None:
        """Forget the questions."""
        for sample in samples:
            self._waiting.pop(sample, None)

    def answers(self, turn: int) -> list[Answer]:
        """Labels of what was asked at least ``delay`` turns ago, and of earlier samples whose label has changed."""
        ready = sorted(s for s, (asked, _) in self._waiting.items() if turn - asked >= self._delay)
        unknown = [sample for sample in ready if self._truth[sample] < 0]
        for sample in ready:
            self._given += self._waiting.pop(sample)[1]
            if self._truth[sample] >= 0:
                self._votes.append((sample, *self._vote(sample)))
        changed = self._settle() if ready else []
        none = [Answer(sample, None, "team", "no truth is known") for sample in unknown]
        return sorted([*changed, *none], key=lambda answer: answer.sample)

    def panel(self) -> Panel:
        """What was said so far."""
        spoke: dict[int, int] = {}
        for sample, _, _ in self._votes:
            spoke[sample] = spoke.get(sample, 0) + 1
        closed = frozenset(sample for sample, count in spoke.items() if count >= len(self._people))
        waiting = {sample: turn for sample, (turn, again) in self._waiting.items() if again}
        return Panel(_rows(self._votes, 3), waiting, closed, self._given)

    def memory(self) -> dict[str, Array]:
        """Votes, labels, open questions and how many each person has answered."""
        waiting = [(sample, turn, again) for sample, (turn, again) in sorted(self._waiting.items())]
        return {
            "votes": _rows(self._votes, 3),
            "labels": _rows(sorted(self._labels.items()), 2),
            "waiting": _rows(waiting, 3),
            "answered": np.array(self._answered, dtype=np.int64),
            "given": np.array([self._given], dtype=np.int64),
        }

    def recall(self, memory: Arrays) -> None:
        """Be as when this was the memory; an empty one is the beginning. Samples that are gone are forgotten."""

        def rows(name: str) -> list[list[int]]:
            return [row for row in memory[name].tolist() if row[0] in self._truth] if memory else []

        self._votes: list[Row] = [(sample, person, label) for sample, person, label in rows("votes")]
        self._labels: dict[int, int] = {row[0]: row[1] for row in rows("labels")}
        self._waiting: dict[int, tuple[int, int]] = {sample: (turn, again) for sample, turn, again in rows("waiting")}
        self._answered: list[int] = memory["answered"].tolist() if memory else [0] * len(self._people)
        self._given = int(memory["given"][0]) if memory else 0

    def _vote(self, sample: int) -> tuple[int, int]:
        """Who answers, and what."""
        spoke = {person for one, person, _ in self._votes if one == sample}
        free = [person for person in range(len(self._people)) if person not in spoke]
        who = min(free or range(len(self._people)), key=lambda person: (self._answered[person], person))
        person = self._people[who]
        tired = self._answered[who] % person.stamina
        self._answered[who] += 1
        return who, person.says(sample, self._truth[sample], self._classes, self._seed, tired)

    def _settle(self) -> list[Answer]:
        """Labels that are new or have changed."""
        votes, samples, people = numbered(self._votes)
        said: dict[int, set[int]] = {}
        for sample, _, label in self._votes:
            said.setdefault(sample, set()).add(label)
        labels = {sample: min(several) for sample, several in said.items()}
        if any(len(several) > 1 for several in said.values()):
            posterior = dawid_skene(votes, len(samples), len(people), self._classes).posterior
            differ = [sample for sample, several in said.items() if len(several) > 1]
            labels |= {sample: int(posterior[samples[sample]].argmax()) for sample in differ}
        changed = [sample for sample, label in labels.items() if self._labels.get(sample) != label]
        self._labels = labels
        return [Answer(sample, labels[sample], "team") for sample in sorted(changed)]


def _rows(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, width)
