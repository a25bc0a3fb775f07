"""Scores on numbers worked by hand, one trap a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fakes import fake_pool

from chase.acquisition.badge import gradient_seeding, residuals
from chase.acquisition.bald import bald
from chase.acquisition.coreset import CoreSet, k_centre_greedy, squared_distances
from chase.acquisition.epistemic import gev_score, number_class_score
from chase.acquisition.ksas import ksas
from chase.acquisition.logo import best_of_clusters, clusters, uncertain_embedding
from chase.acquisition.tod import discrepancy
from chase.acquisition.uncertainty import confidence, entropy, margin
from chase.core.randomness import rng

THREE = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])


def test_entropy_in_nats_and_zero_for_certainty() -> None:
    assert entropy(THREE) == pytest.approx([1.5 * math.log(2), 0.0, math.log(3)])


def test_margin_is_first_minus_second() -> None:
    assert margin(np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]])) == pytest.approx([0.2, 0.8])
    assert margin(np.ones((2, 1))) == pytest.approx([1.0, 1.0])


def test_confidence_is_the_largest_probability() -> None:
    assert confidence(THREE) == pytest.approx([0.5, 1.0, 1 / 3])


def test_ev_and_its_variants_for_dog_cat_cat_zebra_cat() -> None:
    assert number_class_score(np.array([3]), np.array([3])).tolist() == [6.0]
    sure, torn = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    assert gev_score(np.array([3]), sure, torn) == pytest.approx([3 + math.log(2)])
    assert gev_score(np.array([3]), torn, sure) == pytest.approx([3 + math.log(2)])


def test_core_set_starts_at_every_labelled_sample() -> None:
    """Labelled at 0 and at 10: the farthest of 1, 5, 9, 12 is 5, not 12 (as from 0 alone)."""
    points, labelled = np.array([[1.0], [5.0], [9.0], [12.0]]), np.array([[0.0], [10.0]])
    assert squared_distances(points, labelled).tolist() == [1.0, 25.0, 1.0, 4.0]
    assert k_centre_greedy(points, labelled, 3, rng(0, "t"))[:2].tolist() == [1, 3]


def test_core_set_picks_become_centres() -> None:
    """From 0: 10 first; then 9.5 is near 10, so 5 is next although 9.5 was second farthest from 0."""
    points = np.array([[10.0], [9.5], [5.0]])
    assert k_centre_greedy(points, np.array([[0.0]]), 3, rng(0, "t")).tolist() == [0, 2, 1]


def test_the_core_set_strategy_hands_over_the_labelled_features() -> None:
    """Labelled at 10: of 0, 6 and 9 the farthest is 0; without centres any could come first."""
    features = np.array([[9.0], [6.0], [0.0]])
    for seed in range(10):
        pool = fake_pool(features=features, labeled_features=np.array([[10.0]]))
        assert CoreSet().select(pool, 2, rng(seed, "t")).tolist() == [2, 1]


def test_core_set_without_labels_and_with_equal_points_still_gives_distinct_rows() -> None:
    points = np.zeros((5, 2))
    picked = k_centre_greedy(points, points[:0], 5, rng(0, "t"))
    assert sorted(picked.tolist()) == [0, 1, 2, 3, 4]
    first = {int(k_centre_greedy(points, points[:0], 1, rng(seed, "t"))[0]) for seed in range(50)}
    assert first == {0, 1, 2, 3, 4}


def test_core_set_in_chunks_equals_the_plain_distances() -> None:
    draw = rng(0, "points")
    points, centres = draw.normal(size=(2500, 3)), draw.normal(size=(1500, 3))
    plain = ((points[:50, None] - centres) ** 2).sum(axis=2).min(axis=1)
    assert squared_distances(points, centres)[:50] == pytest.approx(plain)


def test_bald_is_high_where_sure_passes_disagree_and_not_where_all_are_torn() -> None:
    """Passes (1,0) and (0,1): H of the mean is log 2, mean H is 0. Passes (.5,.5) twice: log 2 - log 2."""
    probs = np.array([[[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]])
    assert bald(probs) == pytest.approx([math.log(2), 0.0, 0.0])


def test_badge_residual() -> None:
    assert residuals(np.array([[0.7, 0.3], [0.2, 0.8]])) == pytest.approx(np.array([[-0.3, 0.3], [0.2, -0.2]]))


def test_badge_distances_equal_those_of_the_gradients_written_down() -> None:
    """The second pick is forced: all gradients but two are the same, so one squared distance is above 0."""
    residual = np.array([[-0.3, 0.3], [-0.1, 0.1], [-0.3, 0.3], [-0.3, 0.3]])
    features = np.array([[2.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 0.0]])
    for seed in range(20):
        picked = gradient_seeding(residual, features, 2, rng(seed, "t"))
        assert 1 in picked.tolist()
        assert picked[0] != 1  # the largest norm comes first


def test_badge_draws_in_proportion_to_the_squared_distance() -> None:
    """After row 0 (norm 16) rows 1 and 2 are at squared distances 1 and 9 in gradient space: 1 : 9."""
    residual = np.array([[2.0, 0.0], [1.5, 0.0], [0.5, 0.0]])
    features = np.array([[2.0], [2.0], [2.0]])
    second = [int(gradient_seeding(residual, features, 2, rng(seed, "t"))[1]) for seed in range(1000)]
    assert set(second) == {1, 2}
    assert 60 < second.count(1) < 140


def test_badge_with_certain_predictions_has_no_gradient_and_draws_evenly() -> None:
    residual = residuals(np.array([[1.0, 0.0]] * 4))
    picked = gradient_seeding(residual, np.ones((4, 3)), 4, rng(0, "t"))
    assert sorted(picked.tolist()) == [0, 1, 2, 3]


def test_tod_is_half_the_squared_distance_of_probabilities() -> None:
    now, before = np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    assert discrepancy(now, before) == pytest.approx([0.16, 0.0])


def test_ksas_by_hand() -> None:
    """Counts 1 and 3: local (0, 0) becomes (1/4, 3/4); global (log 3, 0) becomes (1/2, 1/2)."""
    local, global_ = np.array([[0.0, 0.0]]), np.array([[math.log(3), 0.0]])
    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    expected = 0.5 * ((q * np.log(q / p)).sum() + (p * np.log(p / q)).sum())
    assert ksas(local, global_, np.array([1, 3])) == pytest.approx([expected])
    assert ksas(global_, local, np.array([1, 3])) == pytest.approx([expected])


def test_ksas_masks_classes_that_the_client_has_no_label_of() -> None:
    """A huge disagreement in an absent class counts nothing; log 0 must not become NaN."""
    local, global_ = np.array([[0.0, 1.0, 50.0], [2.0, 0.0, 0.0]]), np.array([[0.0, 1.0, -50.0], [0.0, 0.0, 0.0]])
    counts = np.array([4, 4, 0])
    scores = ksas(local, global_, counts)
    assert np.isfinite(scores).all()
    assert scores[0] == pytest.approx(0.0)
    assert scores[1] == pytest.approx(ksas(local[1:, :2], global_[1:, :2], counts[:2])[0])
    assert scores[1] > 0.1


def test_ksas_with_one_class_or_no_label_is_finite() -> None:
    local, global_ = np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]])
    assert ksas(local, global_, np.array([0, 7])) == pytest.approx([0.0])
    assert ksas(local, global_, np.array([0, 0])) == pytest.approx(ksas(local, global_, np.array([1, 1])))


def test_logo_weighs_features_by_the_doubt_of_the_predicted_class() -> None:
    out = uncertain_embedding(np.array([[2.0, 4.0], [1.0, 1.0]]), np.array([[0.25, 0.75], [1.0, 0.0]]))
    assert out == pytest.approx(np.array([[0.5, 1.0], [0.0, 0.0]]))


def test_logo_takes_the_best_of_each_cluster_first() -> None:
    cluster = np.array([0, 0, 0, 1, 1, 2])
    score = np.array([0.9, 0.8, 0.1, 0.2, 0.3, 0.0])
    assert sorted(best_of_clusters(cluster, score, 3, rng(0, "t")).tolist()) == [0, 4, 5]


def test_logo_refills_with_the_second_of_each_cluster() -> None:
    """Two clusters, budget 4: the best of each, then the second of each, never the third of one."""
    cluster, score = np.array([0, 0, 0, 7, 7]), np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    assert best_of_clusters(cluster, score, 4, rng(0, "t")).tolist() == [0, 3, 1, 4]
    assert best_of_clusters(cluster, score, 5, rng(0, "t")).tolist() == [0, 3, 1, 4, 2]


def test_k_means_finds_blobs_is_seeded_and_survives_equal_points() -> None:
    points = np.concatenate([np.zeros((5, 2)), np.ones((5, 2)) * 9, np.ones((5, 2)) * [9, 0]]) + np.eye(15, 2) * 0.1
    found = clusters(points, 3, rng(0, "t"))
    assert [len(set(found[at : at + 5])) for at in (0, 5, 10)] == [1, 1, 1]
    assert len(set(found.tolist())) == 3
    assert clusters(points, 3, rng(0, "t")).tolist() == found.tolist()
    assert len(set(clusters(np.zeros((6, 2)), 4, rng(0, "t")).tolist())) == 1
