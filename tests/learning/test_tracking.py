from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from chase.acquisition.epistemic import number_class_score
from chase.learning.tracking import classes_seen, epistemic_variation

DOG, CAT, ZEBRA = 0, 1, 2


def history(*predictions: int) -> np.ndarray:
    return np.array(predictions, dtype=np.int64)[:, None]


def test_the_papers_example_has_ev_3_and_number_class_6() -> None:
    seen = history(DOG, CAT, CAT, ZEBRA, CAT)
    assert epistemic_variation(seen).tolist() == [3]
    assert classes_seen(seen).tolist() == [3]
    assert number_class_score(epistemic_variation(seen), classes_seen(seen)).tolist() == [6.0]


def test_samples_are_counted_apart() -> None:
    table = np.array([[0, 1, 5], [0, 2, 5], [0, 1, 4], [0, 2, 4]])
    assert epistemic_variation(table).tolist() == [0, 3, 1]
    assert classes_seen(table).tolist() == [1, 2, 2]


def test_one_epoch_or_none_has_no_variation() -> None:
    assert epistemic_variation(history(DOG)).tolist() == [0]
    assert epistemic_variation(np.zeros((0, 4), dtype=np.int64)).tolist() == [0, 0, 0, 0]
    assert classes_seen(np.zeros((0, 2), dtype=np.int64)).tolist() == [0, 0]


@given(arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 3)))
def test_counts_agree_with_plain_python_and_stay_in_range(table: np.ndarray) -> None:
    for sample, column in enumerate(table.T.tolist()):
        changes = sum(a != b for a, b in itertools.pairwise(column))
        assert epistemic_variation(table)[sample] == changes <= len(column) - 1
        assert classes_seen(table)[sample] == len(set(column)) <= changes + 1
