from __future__ import annotations

from collections import Counter

import numpy as np

from chase.annotation.annotator import Answer, Question
from chase.annotation.oracle import Oracle


def questions(*samples: int, turn: int = 1) -> list[Question]:
    return [Question(s, 1, turn, "ev", 0) for s in samples]


def test_answers_at_once_the_truth_once() -> None:
    oracle = Oracle(np.arange(5), np.array([3, 1, 4, 1, 5]), 6, seed=0)
    oracle.ask(questions(4, 0))
    assert oracle.answers(1) == [Answer(0, 3, "oracle"), Answer(4, 5, "oracle")]
    assert oracle.answers(1) == []


def test_answers_come_after_the_delay() -> None:
    oracle = Oracle(np.arange(5), np.zeros(5, dtype=np.int64), 2, seed=0, delay=2)
    oracle.ask(questions(0, turn=1))
    oracle.ask(questions(1, turn=2))
    assert [[a.sample for a in oracle.answers(turn)] for turn in (1, 2, 3, 4)] == [[], [], [0], [1]]


def test_a_question_asked_again_keeps_its_place_and_a_withdrawn_one_is_forgotten() -> None:
    oracle = Oracle(np.arange(5), np.zeros(5, dtype=np.int64), 2, seed=0, delay=2)
    oracle.ask(questions(0, 1, turn=1))
    oracle.ask(questions(0, turn=3))
    oracle.withdraw([1, 4])
    assert [a.sample for a in oracle.answers(3)] == [0]
    assert oracle.answers(99) == []


def test_a_sample_without_a_truth_cannot_be_told() -> None:
    oracle = Oracle(np.arange(2), np.array([-1, 1]), 2, seed=0, wrong=1.0)
    oracle.ask(questions(0))
    assert oracle.answers(1) == [Answer(0, None, "oracle", "no truth is known")]


def answer_all(seed: int, wrong: float, order: np.ndarray) -> dict[int, int]:
    oracle = Oracle(np.arange(4000), np.full(4000, 3), 5, seed=seed, wrong=wrong)
    oracle.ask(questions(*order.tolist()))
    return {a.sample: a.label for a in oracle.answers(1)}


def test_wrong_labels_come_at_their_rate_and_evenly_over_the_other_classes() -> None:
    found = Counter(answer_all(0, 0.3, np.arange(4000)).values())
    assert abs(found[3] / 4000 - 0.7) < 0.025
    assert set(found) == {0, 1, 2, 3, 4}
    assert all(240 < found[c] < 360 for c in (0, 1, 2, 4))  # 300 expected


def test_an_error_belongs_to_the_sample_not_to_the_moment() -> None:
    forwards, backwards = answer_all(1, 0.3, np.arange(4000)), answer_all(1, 0.3, np.arange(4000)[::-1])
    assert forwards == backwards
    assert answer_all(2, 0.3, np.arange(4000)) != forwards


def test_always_wrong_and_never_wrong() -> None:
    assert 3 not in answer_all(0, 1.0, np.arange(4000)).values()
    assert set(answer_all(0, 0.0, np.arange(4000)).values()) == {3}
