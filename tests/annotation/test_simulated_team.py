"""A simulated team of people: who answers, what the label is, and what is remembered."""

from __future__ import annotations

import numpy as np
import pytest

from chase.annotation.annotator import Answer, Question, has_panel, remembers
from chase.annotation.crowd import SimulatedPerson
from chase.annotation.team import STAMINA, SimulatedTeam, team_of


def asked(*samples: int, turn: int = 1, again: bool = False) -> list[Question]:
    return [Question(s, 1, turn, "margin", 0, again=again) for s in samples]


def team(skills: tuple[float, ...] = (1.0, 1.0, 1.0), delay: int = 0, samples: int = 60) -> SimulatedTeam:
    people = [SimulatedPerson(f"p{n}", skill) for n, skill in enumerate(skills)]
    return SimulatedTeam(np.arange(samples), np.arange(samples) % 3, 3, people, seed=0, delay=delay)


def test_questions_go_round_and_a_second_opinion_is_somebody_elses() -> None:
    made = team()
    assert has_panel(made)
    assert remembers(made)
    made.ask(asked(4, 5, 6, 7))
    assert made.answers(1) == [Answer(s, s % 3, "team") for s in (4, 5, 6, 7)]
    assert made.panel().votes[:, 1].tolist() == [0, 1, 2, 0]
    made.ask(asked(4, turn=2, again=True))
    assert made.panel().waiting == {4: 2}
    assert made.answers(2) == [], "the label is as it was"
    panel = made.panel()
    assert panel.votes[-1].tolist() == [4, 1, 1]
    assert (panel.given, panel.waiting) == (1, {})
    made.ask(asked(4, turn=3, again=True))
    made.answers(3)
    assert made.panel().closed == {4}, "nobody is left"


def test_several_answers_make_a_label_that_may_change() -> None:
    """Person 0 is always wrong; two others outvote them."""
    made = team((0.0, 1.0, 1.0))
    made.ask(asked(*range(30)))
    first = {a.sample: a.label for a in made.answers(1)}
    wrong = [s for s, label in first.items() if label != s % 3]
    assert wrong == [s for s, who, _ in made.panel().votes.tolist() if who == 0]
    for turn in (2, 3):
        made.ask(asked(*wrong, turn=turn, again=True))
        changed = made.answers(turn)
    assert {a.sample: a.label for a in changed} == {s: s % 3 for s in wrong}
    assert made.panel().given == 2 * len(wrong)


@pytest.mark.parametrize("delay", [0, 2])
def test_a_team_that_recalls_its_memory_goes_on_as_if_nothing_had_happened(delay: int) -> None:
    skills = (0.6, 0.7, 0.8)

    def days(break_after: int) -> list[list[Answer]]:
        made, found = team(skills, delay), []
        for turn in range(8):
            made.ask(asked(3 * turn, 3 * turn + 1, turn=turn))
            if turn > 3:
                made.ask(asked(turn - 4, turn=turn, again=True))
            found.append(made.answers(turn))
            if turn == break_after:
                memory, made = made.memory(), team(skills, delay)
                made.recall(memory)
        return found

    plain = days(-1)
    assert any(plain)
    assert all(days(turn) == plain for turn in range(8))


def test_withdrawn_questions_are_forgotten_and_what_nobody_knows_stays_unlabelled() -> None:
    made = SimulatedTeam(np.arange(2), np.array([-1, 1]), 2, [SimulatedPerson("a", 1.0)], seed=0, delay=1)
    made.ask(asked(0, 1))
    made.withdraw([1])
    assert made.answers(2) == [Answer(0, None, "team", "no truth is known")]
    assert made.answers(3) == []


def test_skills_are_spread_evenly_and_tired_people_rest() -> None:
    people = team_of(3, 5, 0.8, 0.1, 0.5, 0.3)
    assert [round(p.skill, 3) for p in people] == [0.7, 0.75, 0.8, 0.85, 0.9]
    assert {p.stamina for p in people} == {STAMINA}
    assert [p.skill for p in team_of(0, 1, 0.8, 0.1, 0, 0)] == [0.8]
    assert [p.skill for p in team_of(0, 2, 0.95, 0.2, 0, 0)] == [0.75, 1.0]
    assert team_of(0, 1, 0.8, 0, 0, 0)[0].name != team_of(1, 1, 0.8, 0, 0, 0)[0].name

    one = SimulatedPerson("a", 1.0, fatigue=1.0, stamina=2)
    made = SimulatedTeam(np.arange(40), np.zeros(40, dtype=np.int64), 3, [one], seed=0)
    made.ask(asked(*range(40)))
    right = [label == 0 for label in (a.label for a in made.answers(1))]
    assert all(right[::2]), "rested before every second answer"
    assert not all(right[1::2])


def test_samples_that_are_gone_are_forgotten() -> None:
    made = team(samples=10, delay=1)
    made.ask(asked(2, 8))
    made.answers(2)
    made.ask(asked(3, 9, turn=2))
    left = team(samples=5, delay=1)
    left.recall(made.memory())
    assert left.panel().votes[:, 0].tolist() == [2]
    assert [a.sample for a in left.answers(3)] == [3]
