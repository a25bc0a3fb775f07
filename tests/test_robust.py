from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import small_settings

from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.server.robust import capped_shares, change_norm, median, scaled_change, sort_norms, trimmed_mean
from chase.server.server import Server

START = {"w": np.array([1.0, 1.0], dtype=np.float32), "count": np.array(3, dtype=np.int64)}


def moved(x: float, y: float, count: int = 4) -> dict[str, np.ndarray]:
    return {"w": START["w"] + np.array([x, y], dtype=np.float32), "count": np.array(count, dtype=np.int64)}


def test_the_length_of_a_change_by_hand() -> None:
    assert change_norm(START, moved(3, 4)) == pytest.approx(5.0)
    assert scaled_change(START, moved(3, 4), 0.5)["w"].tolist() == [2.5, 3.0]


def test_an_update_times_a_thousand_is_refused_and_a_large_one_is_clipped() -> None:
    updates = {n: moved(1, 0) for n in range(3)} | {3: moved(0, 8), 4: moved(1000, 0)}
    norms = {n: change_norm(START, update) for n, update in updates.items()}
    clipped, refused, reference = sort_norms(norms, clip=5, refuse=50)
    assert reference == pytest.approx(1.0)
    assert refused == {4: pytest.approx(1000)}
    assert clipped == {3: pytest.approx(8)}
    bounded = scaled_change(START, updates[3], 5 / clipped[3])
    assert bounded["w"].tolist() == [1.0, 6.0]
    assert bounded["count"] == 4


def test_two_updates_are_measured_against_an_earlier_round_or_not_at_all() -> None:
    two = {0: 1.0, 1: 1000.0}
    assert sort_norms(two, 5, 50)[1] == {}
    assert list(sort_norms(two, 5, 50, reference=2.0)[1]) == [1]


def test_median_and_trimmed_mean_by_hand() -> None:
    parts = [moved(x, -x, count) for x, count in ((0, 1), (1, 9), (2, 2), (3, 3), (1000, 4))]
    assert median(parts)["w"].tolist() == [3.0, -1.0]
    assert trimmed_mean(parts, 0.2)["w"].tolist() == [3.0, -1.0]
    assert median(parts)["count"] == 9
    assert trimmed_mean(parts[:4], 0.1)["w"].tolist() == [2.5, -0.5]  # at least one at either end
    assert trimmed_mean(parts[:2], 0.4)["w"].tolist() == [1.5, 0.5]
    with pytest.raises(UpdateError):
        median([])


def test_a_site_that_claims_most_labels_gets_its_cap_and_no_more() -> None:
    assert capped_shares({0: 10, 1: 10, 2: 9_999_999}, 0.5) == {
        0: pytest.approx(10_000_019 / 4),
        1: pytest.approx(10_000_019 / 4),
        2: pytest.approx(10_000_019 / 2),
    }
    assert capped_shares({0: 1.0, 1: 3.0}, 0.0) == {0: 1.0, 1: 3.0}
    assert capped_shares({0: 1.0, 1: 3.0}, 0.3) == {0: 2.0, 1: 2.0}


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8), st.floats(0.05, 0.95))
def test_no_share_is_above_the_cap_and_the_total_stays(numbers: list[float], most: float) -> None:
    found = capped_shares(dict(enumerate(numbers)), most)
    assert sum(found.values()) == pytest.approx(sum(numbers))
    assert max(found.values()) <= sum(numbers) * max(most, 1 / len(numbers)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 750.25),
        ({"combine": "median"}, 1.0),
        ({"combine": "trimmed-mean"}, 1.0),
        ({"client_weights": "equal"}, 334.0),
        ({"most_share": 0.4}, 400.6),
    ],
)
def test_the_server_combines_as_it_is_told(changes: dict[str, object], wanted: float) -> None:
    server = Server("run", small_settings(**changes), {"w": np.zeros(2, dtype=np.float32)})
    order = RoundOrder("run", 1, 0, server.weights)
    sent = [(0, 1.0, 1), (1, 1.0, 1), (2, 1000.0, 6)]
    updates = [
        ClientUpdate(client, 1, {"w": np.full(2, value, dtype=np.float32)}, labels, {})
        for client, value, labels in sent
    ]
    server.aggregate(dict.fromkeys(range(3), order), updates)
    assert server.weights["w"].tolist() == pytest.approx([wanted] * 2)
