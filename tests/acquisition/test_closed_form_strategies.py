"""The strategies that came with the closed-form learner, on numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import fake_pool

from chase.acquisition.balanced_margin import BalancedMargin
from chase.acquisition.posterior import Posterior, greedy_by_variance, posterior_variances
from chase.acquisition.typical import Typical, greedy_coverage
from chase.acquisition.uncertainty import balanced
from chase.core.randomness import rng


def test_posterior_variance_is_what_the_labels_leave_open() -> None:
    """One labelled sample at (1, 0), ridge 1: H = diag(2, 1), so (2, 0) has 4/2 and (0, 3) keeps 9."""
    points, labelled = np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([[1.0, 0.0]])
    assert posterior_variances(points, labelled, 1.0)[0] == pytest.approx([2.0, 9.0])
    assert posterior_variances(points, labelled[:0], 1.0)[0] == pytest.approx([4.0, 9.0])


def test_posterior_does_not_ask_the_same_thing_twice() -> None:
    """The two longest point the same way: after the first, the second has 9/10 left and the other direction asks."""
    points = np.array([[3.0, 0.0], [3.0, 0.1], [0.0, 2.0]])
    rows, first = greedy_by_variance(points, points[:0], 1.0, 3, rng(0, "t"))
    assert rows.tolist() == [1, 2, 0]
    assert first == pytest.approx([9.0, 9.01, 4.0])


def test_posterior_updates_equal_a_new_solution() -> None:
    draw = rng(0, "points")
    points, labelled = draw.standard_normal((12, 5)), draw.standard_normal((4, 5))
    rows, _ = greedy_by_variance(points, labelled, 0.5, 4, rng(0, "t"))
    for at in range(1, 4):
        known = np.concatenate([labelled, points[rows[:at]]])
        inverse = np.linalg.inv(known.T @ known / 0.5 + np.eye(5)) / 0.5
        variance = np.einsum("ij,jk,ik->i", points, inverse, points)
        variance[rows[:at]] = -1.0
        assert int(variance.argmax()) == rows[at]


def test_the_posterior_strategy_centres_and_uses_what_is_labelled() -> None:
    """Centred at (5, 5) the candidates are (-4, 0), (4, 0), (0, -3), (0, 3); the label lies along axis one."""
    features = np.array([[1.0, 5.0], [9.0, 5.0], [5.0, 2.0], [5.0, 8.0]])
    without = Posterior().select(fake_pool(features=features), 1, rng(0, "t"))
    assert without.tolist() in ([0], [1])
    along = fake_pool(features=features, labeled_features=np.array([[12.0, 5.0]]))
    assert Posterior().select(along, 1, rng(0, "t")).tolist() in ([2], [3])


def test_coverage_is_gained_where_nothing_covers_yet() -> None:
    """Sample 0 is covered by 0.9 already: candidate 0 adds (0.1 + 0) / 3, candidate 1 adds (0 + 1 + 0.5) / 3."""
    kernel = np.array([[1.0, 0.0, 0.0], [0.2, 1.0, 0.5], [0.0, 0.5, 1.0]])
    rows, first = greedy_coverage(kernel, np.array([0.9, 0.0, 0.0]), 2, rng(0, "t"))
    assert first == pytest.approx([0.1 / 3, 1.5 / 3, 1.5 / 3])
    assert sorted(rows.tolist()) == [1, 2]


def test_typical_asks_the_middle_of_the_largest_group_first_and_needs_no_label() -> None:
    features = np.array([[-0.1], [0.0], [0.1], [10.0], [-10.0]])
    chosen = Typical().select(fake_pool(features=features), 2, rng(0, "t"))
    assert chosen[0] == 1
    assert chosen[1] in (3, 4)
    covered = fake_pool(features=features, labeled_features=np.array([[0.0]]))
    assert Typical().select(covered, 1, rng(0, "t"))[0] in (3, 4)


def test_balanced_takes_the_class_with_fewest_labels_and_counts_its_picks() -> None:
    """Labels 0, 1 and 5; predicted 2, 2, 0, 0, 1: class 0 first (twice, by score), then 1, then 2."""
    predicted, scores = np.array([2, 2, 0, 0, 1]), np.array([0.9, 0.8, 0.1, 0.3, 0.5])
    rows = balanced(predicted, scores, np.array([0, 2, 5]), 5, rng(0, "t"))
    assert rows.tolist() == [3, 2, 4, 0, 1]


def test_balanced_margin_reads_probabilities_and_counts() -> None:
    probs = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])
    pool = fake_pool(probs=probs, labeled_classes=np.array([0, 0]))
    assert BalancedMargin().select(pool, 2, rng(0, "t")).tolist() == [2, 0]
    assert pool.scores == pytest.approx([-0.2, -0.8, -0.6])
