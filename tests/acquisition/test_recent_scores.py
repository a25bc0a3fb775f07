"""FEAL, FairFAL and IFAL on numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from chase.acquisition.fairfal import (
    FairFal,
    balanced_prediction,
    gradient_k_centre,
    pseudo_classes,
    quotas,
    trust_in_global,
)
from chase.acquisition.feal import apart, dirichlet_entropy, evidence, expected_entropy, feal, minmax
from chase.acquisition.ifal import Ifal, distance, ifal, one_vote, otsu, shares, votes
from chase.core.randomness import rng
from chase.learning.distillation import Distillation
from chase.learning.training import Step


def test_evidence_is_the_positive_part_plus_one() -> None:
    assert evidence(np.array([[-3.0, 0.0, 2.0]])).tolist() == [[1.0, 1.0, 3.0]]


def test_expected_entropy_by_hand() -> None:
    """Dir(1, 1): psi(3) - psi(2) = 1/2. Dir(2, 1): 2/3 (psi(4) - psi(3)) + 1/3 (psi(4) - psi(2)) = 2/9 + 5/18."""
    assert expected_entropy(np.array([[1.0, 1.0], [2.0, 1.0]])) == pytest.approx([0.5, 2 / 9 + 5 / 18])


def test_dirichlet_entropy_by_hand() -> None:
    """Dir(1, 1) is uniform on [0, 1]: 0. Dir(1, 1, 1) on a triangle: -ln 2. Dir(2, 1) has density 2p: 1/2 - ln 2."""
    assert dirichlet_entropy(np.array([[1.0, 1.0], [2.0, 1.0]])) == pytest.approx([0.0, 0.5 - math.log(2)])
    assert dirichlet_entropy(np.ones((1, 3))) == pytest.approx([-math.log(2)])


def test_feal_is_global_ignorance_times_both_uncertainties() -> None:
    """Globally unknown (0, 0) is scaled to 1, (1, 0) to 0; the local model says (1, 0) and (0, 0)."""
    glob, local = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    assert feal(glob, local) == pytest.approx([0.5 + 0.5, 0.0])
    assert minmax(np.array([4.0, 4.0])).tolist() == [1.0, 1.0]


def test_near_neighbours_of_a_chosen_sample_are_passed_over_and_fill_up_in_the_end() -> None:
    """Rows 0 and 1 point almost the same way (cosine 0.995), row 2 another."""
    features = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    order = np.array([0, 1, 2])
    assert apart(order, features, 2).tolist() == [0, 2]
    assert apart(order, features, 3).tolist() == [0, 2, 1]
    assert apart(order, np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), 2).tolist() == [0, 1]  # cosine 0.71


def test_only_the_five_nearest_neighbours_count() -> None:
    """Row 0 is chosen; row 6 is near it (cosine 0.98), but five others are nearer to row 6. Row 7 is far from all."""
    angles = np.array([0.0, 0.20, 0.201, 0.202, 0.203, 0.204, 0.2, 2.0])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert apart(np.array([0, 6, 7, 1, 2, 3, 4, 5]), features, 2).tolist() == [0, 6]
    without_one = np.delete(features, 5, axis=0)  # now row 0 is among the five nearest of row 5, which was row 6
    assert apart(np.array([0, 5, 6, 1, 2, 3, 4]), without_one, 2).tolist() == [0, 6]


def test_pseudo_classes_by_cosine_to_class_means_without_absent_classes() -> None:
    """Class 0 lies along x, class 2 along y; (3, 1) is nearer in angle to x although far from both."""
    labelled, classes = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 2])
    assert pseudo_classes(np.array([[3.0, 1.0], [0.1, 0.2]]), labelled, classes).tolist() == [0, 2]
    assert pseudo_classes(np.ones((2, 2)), labelled[:0], classes[:0]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("sizes", "labels", "budget", "places"),
    [
        ([9, 9, 9], [0, 0, 0], 6, [2, 2, 2]),
        ([9, 9, 9], [5, 1, 3], 7, [2, 3, 2]),
        ([1, 9, 0], [0, 0, 0], 6, [1, 5, 0]),
        ([1, 2, 0], [0, 0, 0], 6, [1, 2, 0]),
    ],
)
def test_the_budget_is_split_equally_as_far_as_the_pool_allows(
    sizes: list[int], labels: list[int], budget: int, places: list[int]
) -> None:
    assert quotas(np.array(sizes), np.array(labels), budget, rng(0, "t")).tolist() == places


def test_odd_places_of_equal_classes_go_to_the_seed() -> None:
    equal = np.array([5, 5, 5])
    found = {tuple(quotas(equal, np.zeros(3, int), 4, rng(seed, "t"))) for seed in range(20)}
    assert found == {(2, 1, 1), (1, 2, 1), (1, 1, 2)}


def test_trust_by_hand() -> None:
    """Balanced: class 0 has two samples, class 2 one, each class counts half; class 1, without labels, is there too."""
    probs = np.array([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.2, 0.2, 0.6]])
    assert balanced_prediction(probs, np.array([0, 0, 2])) == pytest.approx([0.45, 0.175, 0.375])
    # d = ((0.6 - 0.2) / 0.8 + (0.4 - 0.4) / 0.8) / 2 = 1/4; g = 0.4 / 0.6
    both = np.array([0, 1])
    assert trust_in_global(np.array([0.6, 0.4]), np.array([0.2, 0.4]), both) == pytest.approx(1 - (0.25 + 2 / 3) / 2)
    assert trust_in_global(np.zeros(2), np.zeros(2), both) == 1.0


def test_trust_compares_the_models_in_all_classes_and_balance_in_the_labelled_ones() -> None:
    """Labels of classes 0 and 1 of four.

    d = (0 + 0 + (0.12 - 0.03) / 0.15 + (0.08 - 0.02) / 0.10) / 4 = 0.3, while the two labelled classes alone give 0;
    g = 0.1 / 0.7, while all four classes would give 0.08 / 0.7.
    """
    pi_global, pi_alone = np.array([0.7, 0.1, 0.12, 0.08]), np.array([0.7, 0.1, 0.03, 0.02])
    assert trust_in_global(pi_global, pi_alone, np.array([0, 1])) == pytest.approx(1 - (0.3 + 1 / 7) / 2)


def test_gradient_k_centre_equals_the_distances_of_whole_gradients() -> None:
    draw = rng(0, "t")
    a, h = draw.normal(size=(7, 3)), draw.normal(size=(7, 4))
    whole = np.einsum("nc,nd->ncd", a, h).reshape(7, 12)
    centres, points = whole[:2], whole[2:]
    distance_to = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
    first = int(distance_to.argmax())
    second = int(np.minimum(distance_to, ((points - points[first]) ** 2).sum(axis=1)).argmax())
    picked = gradient_k_centre(a[2:], h[2:], (a[:2], h[:2]), 2, rng(0, "t"))
    assert picked.tolist() == [first, second]


class Pool:
    """What FairFAL reads of a pool, by hand: two classes, features and probabilities the same for both models."""

    num_classes = 2
    judge: str | None = None

    def __init__(self, probs: list[float], features: list[list[float]], labeled: list[list[float]], classes: list[int]):
        self.ids = np.arange(10, 10 + len(probs))
        self.labeled_ids, self.labeled_classes = np.arange(len(classes)), np.array(classes, dtype=np.int64)
        self._probs = np.stack([np.array(probs), 1 - np.array(probs)], axis=1)
        self._features, self._labeled = np.array(features), np.array(labeled)
        self.of_labeled = {which: np.full((len(classes), 2), 0.5) for which in ("global", "alone")}

    def __len__(self) -> int:
        return self.ids.size

    @property
    def class_counts(self) -> np.ndarray:
        return np.bincount(self.labeled_classes, minlength=2)

    def probs(self, which: str) -> np.ndarray:
        return self._probs

    def features(self, which: str) -> np.ndarray:
        return self._features

    def labeled_probs(self, which: str) -> np.ndarray:
        return self.of_labeled[which].copy()

    def labeled_features(self, which: str) -> np.ndarray:
        return self._labeled


def test_fairfal_chooses_among_the_four_most_uncertain_per_place() -> None:
    """All of pseudo-class 0 and one place, so four are kept: 10 to 13, of the highest entropy.

    The gradient's length is (1 - p) * sqrt(2) * |feature|, the anchor's 0.5 * sqrt(2) in the same direction: 13 is the
    farthest of the four (0.45 * 8). 14, which is less uncertain, would be farther (0.2 * 100), and so would 15.
    """
    probs = [0.5, 0.52, 0.54, 0.55, 0.8, 0.9]
    features = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [8.0, 0.0], [100.0, 0.0], [300.0, 0.0]]
    pool = Pool(probs, features, [[1.0, 0.0]], [0])
    assert [FairFal().select(pool, 1, rng(seed, "t")).tolist() for seed in range(5)] == [[13]] * 5  # type: ignore[arg-type]
    pool = Pool([0.5, 0.52, 0.54, 0.8], [*features[:2], [1.0, 0.0], [9.0, 0.0]], [[1.0, 0.0]], [0])
    assert FairFal().select(pool, 1, rng(0, "t")).tolist() == [13], "more than the most uncertain one is kept"  # type: ignore[arg-type]


def test_fairfal_keeps_away_from_the_labelled_samples_of_the_class() -> None:
    """Both are equally uncertain and nearly equally long; the labelled one lies beside 10, so 11 is taken.

    Without that anchor the first would be drawn at random, so both would occur.
    """
    pool = Pool([0.5, 0.5], [[3.0, 0.1], [1.0, 3.0]], [[3.2, 0.1]], [0])
    assert {int(FairFal().select(pool, 1, rng(seed, "t"))[0]) for seed in range(20)} == {11}  # type: ignore[arg-type]


def test_fairfal_asks_the_global_model_where_classes_are_uneven_and_the_models_agree() -> None:
    """Both balanced: d = 0, g = 1, trust 0.5. Both see class 0 nearly alone: d = 0, g = 0.01 / 0.99, trust 0.99."""
    pool = Pool([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [0, 1])
    assert FairFal().judge(pool) == "alone"  # type: ignore[arg-type]
    pool.of_labeled = {which: np.array([[0.99, 0.01], [0.99, 0.01]]) for which in ("global", "alone")}
    assert FairFal().judge(pool) == "global"  # type: ignore[arg-type]


def test_votes_of_labelled_samples_for_their_nearest_candidates() -> None:
    """Each votes for half of the candidates 0, 1, 2, 9: labelled at 0 (class 0), 2.1 (class 1) and 2.4 (class 1)."""
    points, labelled = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([[0.0], [2.1], [2.4]])
    found = votes(points, labelled, np.array([0, 1, 1]), 2)
    assert found.tolist() == [[1.0, 0.0], [1.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
    assert shares(found).tolist() == [[1.0, 0.0], [1 / 3, 2 / 3], [0.0, 1.0], [0.5, 0.5]]


@pytest.mark.parametrize(("candidates", "reached"), [(1, 1), (2, 1), (24, 12), (250, 125), (498, 249), (900, 250)])
def test_a_labelled_sample_votes_for_250_candidates_but_never_for_more_than_half(candidates: int, reached: int) -> None:
    """With a vote for every candidate the three features would agree about all of them, whatever they are."""
    points = np.arange(candidates, dtype=np.float64)[:, None]
    assert votes(points, np.array([[0.0]]), np.array([0]), 1).sum() == reached


def test_candidates_at_the_same_distance_all_get_the_vote() -> None:
    """Two of four get a vote, but the second to fourth are equally far: no position in the array decides."""
    points = np.array([[0.0], [2.0], [2.0], [2.0]])
    assert votes(points, np.array([[0.0]]), np.array([1]), 2).tolist() == [[0.0, 1.0]] * 4
    assert votes(np.ones((5, 3)), np.ones((2, 3)), np.array([0, 1]), 2).tolist() == [[1.0, 1.0]] * 5


def test_ifal_by_hand() -> None:
    """D_l = 0.5, D_g = 0.25, both above the least: U1 = 2 * 0.75; U2 = 0.4. Where all agree the score is 0."""
    p_l, p_g, p_kd = np.array([[1.0, 0.0]]), np.array([[0.25, 0.75]]), np.array([[0.5, 0.5]])
    assert distance(p_l, p_kd) == pytest.approx([0.5])
    least = np.array([0.1])
    assert ifal(p_l, p_g, p_kd, np.array([[0.6, 0.4]]), least) == pytest.approx([2 * 0.75 * 0.4], rel=1e-12)
    assert ifal(p_g, p_l, p_kd, np.array([[0.6, 0.4]]), least) == pytest.approx([2 * 0.75 * 0.35], rel=1e-12)
    assert ifal(p_l, p_l, p_l, p_l, least).tolist() == [0.0]


def test_what_one_vote_changes_is_by_the_model_with_fewest_votes() -> None:
    """3, 1 and 9 votes: 1 / 2. No vote in one of them: 1. Nine in all: 1 / 10."""
    local, glob = np.array([[2.0, 1.0], [4.0, 0.0], [9.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0], [4.0, 5.0]])
    distilled = np.array([[9.0, 0.0], [1.0, 1.0], [8.0, 1.0]])
    assert one_vote(local, glob, distilled) == pytest.approx([1 / 2, 1.0, 1 / 10])


def test_a_distance_of_zero_counts_as_one_vote_in_the_ratio() -> None:
    """Row 0: D_l = 0, D_g = 0.6, nine votes: ratio 0.6 / 0.1, U1 = 6 * 0.6; U2 = 0.5.

    Row 1 has the same shares from one vote each: 0.6 / 0.5, U1 = 1.2 * 0.6. Row 2 has no vote in one of them: ratio 1.
    Row 3, D_l = 0.5, D_g = 0.3, asks after row 0, but before rows 1 and 2, whose zero says little: 5/3 * 0.8 * 0.5.
    """
    p_kd = np.array([[1.0, 0.0]] * 3 + [[0.5, 0.5]])
    p_l, p_g = np.array([[1.0, 0.0]] * 4), np.array([[0.4, 0.6]] * 3 + [[0.2, 0.8]])
    least = np.array([1 / 10, 1 / 2, 1.0, 1 / 10])
    found = ifal(p_l, p_g, p_kd, np.array([[0.5, 0.5]] * 4), least)
    assert found == pytest.approx([6 * 0.6 * 0.5, 1.2 * 0.6 * 0.5, 0.6 * 0.5, 5 / 3 * 0.8 * 0.5], rel=1e-12)
    assert np.argsort(-found).tolist() == [0, 3, 1, 2]


def test_the_ratio_has_no_jump_where_a_distance_becomes_zero() -> None:
    """D_g = 0.6 and D_l from 0.05 to 0, ten votes: all below what one vote changes, 1 / 11."""
    d_local = np.array([0.05, 0.01, 1e-3, 1e-9, 0.0])
    p_kd = np.tile([1.0, 0.0], (5, 1))
    p_l, p_g = np.stack([1 - d_local, d_local], axis=1), np.tile([0.4, 0.6], (5, 1))
    found = ifal(p_l, p_g, p_kd, np.tile([0.0, 1.0], (5, 1)), np.full(5, 1 / 11))
    # the ratio is 0.6 * 11 for all, so only the sum of distances and U2 = 1 - D_l differ
    assert found == pytest.approx(6.6 * (0.6 + d_local) * (1 - d_local), rel=1e-12)


def test_otsus_threshold_lies_between_two_groups() -> None:
    values = np.array([0.1, 5.0, 0.2, 5.2, 0.0])
    assert otsu(values) == 0.2
    assert (values > otsu(values)).tolist() == [False, True, False, True, False]
    assert otsu(np.zeros(4)) == -np.inf
    assert otsu(np.array([1.0])) == -np.inf


def test_ifal_takes_one_of_each_cluster_above_the_threshold() -> None:
    scores = np.array([0.0, 0.0, 9.0, 8.0, 7.0, 9.5])
    features = np.array([[0.0], [0.0], [1.0], [1.1], [5.0], [1.05]])
    rows, groups = Ifal().diverse(scores, features, 2, rng(0, "t"))
    assert sorted(rows.tolist()) == [4, 5]
    assert groups is not None
    assert groups[:2].tolist() == [-1, -1]
    assert groups[2] == groups[3] == groups[5] != groups[4]
    rows, groups = Ifal().diverse(scores, features, 5, rng(0, "t"))
    assert sorted(rows.tolist())[1:] == [2, 3, 4, 5]  # too few: by rank
    assert groups is None


def test_distillation_by_hand() -> None:
    """Student and teacher alike: only the labelled part is left; the positions of the batch pick the teacher's rows."""
    outputs, y = torch.tensor([[2.0, 0.0]]), torch.tensor([1])
    step = Step(0, 1, torch.tensor([1]))
    same = Distillation(torch.tensor([[9.0, 9.0], [2.0, 0.0]]), 0.9, 4.0).loss(torch.nn.Identity(), outputs, y, step)
    assert float(same) == pytest.approx(0.1 * math.log(1 + math.e**2), rel=1e-5)
    other = Distillation(torch.tensor([[9.0, 9.0], [0.0, 0.0]]), 0.9, 4.0).loss(torch.nn.Identity(), outputs, y, step)
    p = 1 / (1 + math.exp(-0.5))
    soft = 16 * (0.5 * math.log(0.5 / p) + 0.5 * math.log(0.5 / (1 - p)))
    assert float(other) == pytest.approx(0.1 * math.log(1 + math.e**2) + 0.9 * soft, rel=1e-5)
