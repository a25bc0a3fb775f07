from __future__ import annotations

import numpy as np
import pytest

from chase.annotation.crowd import SimulatedPerson
from chase.annotation.second_opinion import labelled_score, new_score, weight
from chase.core.errors import SettingsError


def share_right(person: SimulatedPerson, answered: int = 0) -> float:
    return float(np.mean([person.says(s, s % 5, 5, 0, answered) == s % 5 for s in range(2000)]))


def test_people_are_right_as_often_as_their_skill_says() -> None:
    assert share_right(SimulatedPerson("a", 1.0)) == 1
    assert abs(share_right(SimulatedPerson("a", 0.7)) - 0.7) < 0.03
    one, other = SimulatedPerson("a", 0.5), SimulatedPerson("b", 0.5)
    assert [one.says(s, 0, 5, 0) for s in range(50)] == [one.says(s, 0, 5, 0) for s in range(50)]
    assert [one.says(s, 0, 5, 0) for s in range(50)] != [other.says(s, 0, 5, 0) for s in range(50)]


def test_a_tired_person_errs_more_and_no_further_than_said() -> None:
    tires = SimulatedPerson("t", 0.9, fatigue=0.4, stamina=50)
    assert [round(tires.skill_after(n), 2) for n in (0, 25, 50, 500)] == [0.9, 0.7, 0.5, 0.5]
    assert abs(share_right(tires, 50) - 0.5) < 0.04


def test_confusion_goes_to_one_class() -> None:
    mixes = SimulatedPerson("m", 0.0, confusion=1.0)
    taken = mixes.mistaken_for(5, 0)
    assert all(taken[c] != c for c in range(5))
    assert {mixes.says(s, 2, 5, 0) for s in range(100)} == {int(taken[2])}


@pytest.mark.parametrize("bad", [{"skill": 1.2}, {"fatigue": -1}, {"stamina": 0}])
def test_people_who_cannot_be_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="simulated person"):
        SimulatedPerson("x", **bad)  # type: ignore[arg-type]


def test_scores_worked_by_hand() -> None:
    # Commonest class has half of the labels, so 0.75 right is half-way from chance to perfect.
    assert weight(0.75, 0.5) == pytest.approx(0.5)
    sure, torn = np.array([0.9, 0.1]), np.array([0.4, 0.6])
    # model 0.5 * 0.9, one vote 0.5 * 0.75, the next person 0.5 * 0.5; divided by 1.5
    assert labelled_score(sure, [(0, 0.75)], 0, 0.75, 0.5) == pytest.approx((0.45 + 0.375 + 0.25) / 1.5)
    assert labelled_score(torn, [(0, 0.75)], 0, 0.75, 0.5) < labelled_score(sure, [(0, 0.75)], 0, 0.75, 0.5)
    assert new_score(sure[None], 0.75, 0.75, 0.5)[0] == pytest.approx((0.45 + 0.25) / 1.0)


def test_a_label_that_model_and_colleague_doubt_is_asked_again_before_a_new_sample() -> None:
    doubted = labelled_score(np.array([0.05, 0.95]), [(0, 0.8), (1, 0.8)], 0, 0.9, 0.5)
    confirmed = labelled_score(np.array([0.95, 0.05]), [(0, 0.8), (0, 0.8)], 0, 0.9, 0.5)
    new = new_score(np.array([[0.6, 0.4]]), 0.8, 0.9, 0.5)[0]
    assert doubted < new < confirmed
