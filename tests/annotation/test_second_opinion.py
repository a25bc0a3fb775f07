"""The ActiveLab score on numbers worked by hand, and the competition for the places of a request."""

from __future__ import annotations

import numpy as np
import pytest

from chase.annotation.second_opinion import LEAST, Rivals, Trust, find_trust, weight

VOTES = np.array([(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 0, 1), (3, 1, 1)])
LABELS, GUESSES = {0: 0, 1: 0, 2: 1, 3: 1}, {0: 0, 1: 1, 2: 1, 3: 1}


def test_somebody_counts_as_far_as_they_beat_the_commonest_class() -> None:
    assert weight(1.0, 0.5) == 1
    assert weight(0.75, 0.5) == pytest.approx(0.5)
    assert weight(0.3, 0.5) == LEAST


def test_weights_come_from_agreement() -> None:
    """Each person agrees in one of two shared samples: (4 + 1) of (5 + 2). The model gives three of four labels."""
    trust = find_trust(VOTES, LABELS, GUESSES)
    assert trust.people == {0: pytest.approx(3 / 7), 1: pytest.approx(3 / 7)}
    assert trust.next == pytest.approx(3 / 7)
    assert trust.agreeing == pytest.approx(0.75)
    assert trust.model == pytest.approx(0.5 * np.sqrt(6 / 4))


def test_scores_worked_by_hand() -> None:
    trust, sure = Trust(0.5, {0: 0.5, 1: 0.25}, 0.5, 0.75), np.array([0.9, 0.1])
    one = (0.5 * 0.9 + 0.5 * 0.75 + 0.5 * 0.5) / 1.5
    assert trust.of_labelled(sure, [(0, 0)], 0) == pytest.approx(one)
    against = (0.5 * 0.9 + 0.5 * 0.75 + 0.25 * 0.25 + 0.5 * 0.5) / 1.75
    assert trust.of_labelled(sure, [(0, 0), (1, 1)], 0) == pytest.approx(against)
    assert trust.of_new(sure[None]).tolist() == [pytest.approx((0.5 * 0.9 + 0.5 * 0.5) / 1.0)]


def test_only_the_model_speaks_while_no_sample_has_two_answers() -> None:
    trust = find_trust(VOTES[4:], LABELS, GUESSES)
    assert trust == Trust(1.0, {0: 1.0, 1: 1.0}, 1.0, None)
    assert trust.of_labelled(np.array([0.2, 0.8]), [(0, 0)], 0) == pytest.approx((0.2 + 0.2 + 0.5) / 3)
    assert trust.of_new(np.array([[0.6, 0.4]])).tolist() == [pytest.approx((0.6 + 0.5) / 2)]


def test_a_doubted_label_comes_before_a_new_sample_and_a_confirmed_one_after() -> None:
    trust = Trust(0.9, {0: 0.6, 1: 0.6}, 0.6, 0.8)
    doubted = trust.of_labelled(np.array([0.05, 0.95]), [(0, 0), (1, 1)], 0)
    confirmed = trust.of_labelled(np.array([0.95, 0.05]), [(0, 0), (1, 0)], 0)
    new = trust.of_new(np.array([[0.6, 0.4]]))[0]
    assert doubted < new < confirmed


def rivals(new: list[float], again: list[float]) -> Rivals:
    return Rivals(np.arange(len(new)), np.array(new), 100 + np.arange(len(again)), np.array(again))


@pytest.mark.parametrize(
    ("new", "again", "places", "most", "kept", "asked"),
    [
        ([0.5, 0.7, 0.6], [0.55, 0.2, 0.9], 3, 3, [0], [101, 100]),  # each takes the place of the surest new sample
        ([0.5, 0.7, 0.6], [0.55, 0.2, 0.9], 3, 1, [0, 2], [101]),
        ([0.5, 0.7, 0.6], [0.7], 3, 3, [0, 1, 2], []),  # new ones win ties
        ([0.5], [0.4, 0.45, 0.6], 3, 5, [0], [100, 101]),  # two places are spare
        ([0.8], [0.7, 0.75, 0.79], 3, 5, [], [100, 101, 102]),
        ([], [0.4, 0.5], 2, 2, [], [100]),  # without rivals, labels that are trusted less than half
        ([0.5, 0.6], [0.1], 2, 0, [0, 1], []),
    ],
)
def test_the_least_trusted_get_the_places(
    new: list[float], again: list[float], places: int, most: int, kept: list[int], asked: list[int]
) -> None:
    stay, second = rivals(new, again).split(places, most)
    assert (stay.tolist(), second.tolist()) == (kept, asked)
    assert stay.size + second.size <= places
