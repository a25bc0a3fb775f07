"""Sums, the ridge head, its weight by cross-validation, rank-one updates and calibration."""

from __future__ import annotations

import numpy as np
import pytest

from chase.closed_form import calibration
from chase.closed_form.feature_map import GRID, decode, encode
from chase.closed_form.ridge import Centred, _exact, _probed, best_ridge, solve, validation
from chase.closed_form.sums import Sums
from chase.closed_form.updates import LiveScores
from chase.core.errors import DataError
from chase.core.randomness import rng


def problem(count: int, width: int = 20, classes: int = 3, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    draw = rng(0, "problem")
    labels = np.arange(count) % classes
    centres = draw.standard_normal((classes, width))
    return encode(centres[labels] + noise * draw.standard_normal((count, width))), labels


def same(a: Sums, b: Sums) -> bool:
    return all(np.array_equal(x, b.to_arrays()[name]) for name, x in a.to_arrays().items())


def test_sums_by_hand() -> None:
    sums = Sums.of(np.array([[1, 2], [3, -1]], dtype=np.int16), np.array([0, 2]), 3)
    assert sums.outer.tolist() == [[10.0, -1.0], [-1.0, 5.0]]
    assert sums.cross.tolist() == [[1.0, 0.0, 3.0], [2.0, 0.0, -1.0]]
    assert sums.counts.tolist() == [1.0, 0.0, 1.0]
    assert sums.samples == 2


def test_any_partition_and_any_order_gives_the_same_bits_and_removal_leaves_no_trace() -> None:
    codes, labels = problem(300)
    whole = Sums.of(codes, labels, 3)
    order = rng(1, "order").permutation(300)
    parts = [Sums.of(codes[part], labels[part], 3) for part in np.split(order, [7, 100, 250])]
    total = parts[3].plus(parts[1]).plus(parts[0]).plus(parts[2])
    assert same(total, whole)
    assert same(whole.minus_any(parts[1]).plus(parts[1]), whole)
    assert same(whole.minus_any(whole), Sums.empty(20, 3))
    assert same(Sums.from_arrays(whole.to_arrays()), whole)


def test_the_head_equals_ridge_regression_with_a_free_intercept() -> None:
    codes, labels = problem(50)
    head = solve(Sums.of(codes, labels, 3), ridge=2.5)
    x, y = decode(codes).astype(np.float64), np.eye(3)[labels]
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    weight = np.linalg.solve(xc.T @ xc + 2.5 * np.eye(20), xc.T @ yc)
    assert head.weight == pytest.approx(weight)
    assert head.scores(x) == pytest.approx(xc @ weight + y.mean(axis=0))
    assert head.scores(x).sum(axis=1) == pytest.approx(np.ones(50))


@pytest.mark.parametrize("count", [15, 400])
def test_cross_validation_from_sums_equals_the_definition(count: int) -> None:
    """GCV = n RSS / (n - df)^2 of the hat matrix, intercept included."""
    codes, labels = problem(count, width=30)
    centred = Centred.of(Sums.of(codes, labels, 3))
    x, y = decode(codes).astype(np.float64), np.eye(3)[labels]
    xc = x - x.mean(axis=0)
    hat = xc @ np.linalg.inv(xc.T @ xc + 3.0 * np.eye(30)) @ xc.T + 1.0 / count
    expected = count * ((y - hat @ y) ** 2).sum() / (count - np.trace(hat)) ** 2
    assert _exact(centred)(3.0) == pytest.approx(expected, rel=1e-6)
    if count > 30:  # with fewer samples than features the eigenvalues are used
        assert _probed(centred)(3.0) == pytest.approx(expected, rel=0.02)


def test_the_chosen_weight_is_near_the_best_of_a_fine_grid() -> None:
    for noise in (0.3, 4.0):
        codes, labels = problem(25, width=60, noise=noise)
        centred = Centred.of(Sums.of(codes, labels, 3))
        error = validation(centred)
        chosen = best_ridge(error, centred)
        unit = np.trace(centred.scatter) / 24
        assert error(chosen) <= 1.02 * min(error(unit * r) for r in np.geomspace(1e-5, 1e2, 60))


def test_what_cannot_be_solved_is_refused_in_one_sentence() -> None:
    codes, labels = problem(12)
    with pytest.raises(DataError, match="labels of 1 class are known"):
        solve(Sums.of(codes, np.zeros(12, dtype=np.int64), 3))
    with pytest.raises(DataError, match="labels of 0 classes are known"):
        solve(Sums.empty(4, 3))
    with pytest.raises(DataError, match="system of 20 features is singular at ridge = 0"):
        solve(Sums.of(codes, labels, 3), ridge=0.0)
    with pytest.raises(DataError, match="same features"):
        solve(Sums.of(np.ones((12, 4), dtype=np.int16), labels, 3))


def test_rank_one_updates_equal_a_new_solution() -> None:
    """With the same ridge weight; the intercept and the centre move along."""
    codes, labels = problem(30)
    points = decode(codes).astype(np.float64)
    before, centred = (
        solve(Sums.of(codes[:25], labels[:25], 3), ridge=2.0),
        Centred.of(Sums.of(codes[:25], labels[:25], 3)),
    )
    apart = points - centred.mean
    live = LiveScores(
        apart @ np.linalg.inv(centred.scatter + 2.0 * np.eye(20)) @ apart.T + 1.0 / 25, before.scores(points)
    )
    for row in range(25, 30):
        live.learn(row, int(labels[row]))
    after, moved = solve(Sums.of(codes, labels, 3), ridge=2.0), Centred.of(Sums.of(codes, labels, 3))
    assert live.scores == pytest.approx(after.scores(points), abs=1e-9)
    apart = points - moved.mean
    variances = np.einsum("ij,jk,ik->i", apart, np.linalg.inv(moved.scatter + 2.0 * np.eye(20)), apart) + 1.0 / 30
    assert np.diagonal(live.kernel) == pytest.approx(variances, abs=1e-9)


def test_left_out_scores_equal_solving_without_the_sample() -> None:
    codes, labels = problem(30)
    head, centred = solve(Sums.of(codes, labels, 3), ridge=2.0), Centred.of(Sums.of(codes, labels, 3))
    x = decode(codes).astype(np.float64)
    xc = x - centred.mean
    leverage = np.einsum("ij,jk,ik->i", xc, np.linalg.inv(centred.scatter + 2.0 * np.eye(20)), xc) + 1.0 / 30
    without = solve(Sums.of(codes[1:], labels[1:], 3), ridge=2.0)
    found = calibration.left_out(head.scores(x), labels, leverage)
    assert found[0] == pytest.approx(without.scores(x[:1])[0], abs=2e-2)


def test_temperature_of_least_loss_and_in_closed_form() -> None:
    draw = rng(0, "scores")
    truth = draw.integers(0, 3, 4000)
    scores = np.eye(3)[truth] + 0.5 * draw.standard_normal((4000, 3))
    found = calibration.by_leave_one_out(calibration.log_losses(scores, truth))
    # Of isotropic noise with variance v about one-hot centres the posterior is softmax(scores / v).
    assert found == pytest.approx(0.25, rel=0.15)
    assert calibration.closed_form(0.04) == pytest.approx(0.1)


def test_reliability_by_hand() -> None:
    """0.9 and 0.95 sure, one of two right: bin error 0.425; 0.6 sure and right: 0.4; weighted 2 to 1."""
    probs = np.array([[0.9, 0.1], [0.05, 0.95], [0.6, 0.4]])
    found = calibration.reliability(probs, np.array([0, 0, 0]), bins=5)
    assert found.counts.tolist() == [0.0, 0.0, 0.0, 1.0, 2.0]
    assert found.error == pytest.approx((2 * 0.425 + 1 * 0.4) / 3)


def test_sums_of_a_large_client_stay_exact() -> None:
    """The largest codes there are, a million times: still an integer that float64 holds."""
    assert float(32767**2) * 1e6 < 2**53
    assert GRID == 2.0**-9
