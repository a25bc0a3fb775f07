from __future__ import annotations

import numpy as np
import pytest

from chase.annotation.crowd import SimulatedPerson
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
