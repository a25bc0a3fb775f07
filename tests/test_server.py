from __future__ import annotations

import itertools

import numpy as np
import pytest
from support import small_settings

from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate
from chase.core.weights import digest
from chase.server.server import Server, participants

START = {"w": np.array([1.0, 1.0], np.float32)}


def update(client: int, labeled: int, *values: float, round: int = 1) -> ClientUpdate:
    return ClientUpdate(client, round, {"w": np.array(values, np.float32)}, labeled, {})


def server(**changes: object) -> Server:
    return Server("run", small_settings(**changes), START)


UPDATES = [update(0, 1, 0.1, 8.0), update(1, 2, 0.7, -4.0), update(3, 5, 0.3, 2.0)]


def test_the_average_by_labelled_size_worked_by_hand() -> None:
    """Clients 0, 1 and 3 of four, with 1, 2 and 5 labels: (0.1 + 2 * 0.7 + 5 * 0.3) / 8, (8 - 8 + 10) / 8."""
    one = server()
    one.aggregate(one.orders(1), UPDATES)
    assert one.weights["w"] == pytest.approx([0.375, 1.25])


def test_the_order_of_the_updates_changes_not_a_bit() -> None:
    """Sums in client-id order: in any other, 3 is lost beside 1e30 before the large ones cancel."""
    updates = [update(0, 1, 1e30, 0.1), update(1, 1, -1e30, 0.7), update(2, 1, 3.0, 0.3)]
    found = set()
    for order in itertools.permutations(updates):
        one = server()
        one.aggregate(one.orders(1), order)
        assert one.weights["w"][0] == pytest.approx(1.0)
        found.add(digest(one.weights))
    assert len(found) == 1


def test_equal_weights_worked_by_hand() -> None:
    one = server(client_weights="equal")
    one.aggregate(one.orders(1), [*UPDATES, update(2, 0, 99.0, 99.0)])
    assert one.weights["w"] == pytest.approx([1.1 / 3, 2.0])
    assert one.largest_share == pytest.approx(1 / 3)
    assert one.notes == []


def test_a_client_with_more_than_twice_its_equal_share_is_warned_of_once() -> None:
    fair, uneven = server(), server()
    fair.aggregate(fair.orders(1), [update(0, 2, 0.0, 0.0), update(1, 1, 0.0, 0.0), update(2, 1, 0.0, 0.0)])
    assert fair.notes == []  # 50 % of three: not more than twice 33 %
    for round in (1, 2):
        updates = [update(c, 9 if c == 3 else 1, 0.0, 0.0, round=round) for c in range(4)]
        uneven.aggregate(uneven.orders(round), updates)
    assert uneven.largest_share == 0.75
    (note,) = uneven.notes
    assert "from round 1 on client 3 has 75% of the average of 4 clients" in note
    assert "client_weights=equal" in note
    named = server()
    named.names = ["ann", "ben", "eve", "dan"]
    named.aggregate(named.orders(1), [update(c, 9 if c == 3 else 1, 0.0, 0.0) for c in range(4)])
    assert "on client dan has 75%" in named.notes[0]


def test_no_client_keeps_a_share_that_is_shuffled() -> None:
    one = server(client_weights="shuffled")
    one.aggregate(one.orders(1), [update(c, 9 if c == 3 else 1, 0.0, 0.0) for c in range(4)])
    assert one.largest_share == 0.75
    assert one.notes == []


def test_a_round_without_updates_keeps_the_model() -> None:
    one = server()
    one.aggregate(one.orders(1), [])
    assert one.weights["w"].tolist() == [1.0, 1.0]


def test_a_client_without_labels_has_no_say() -> None:
    one = server()
    one.aggregate(one.orders(1), [update(0, 0, 99.0, 99.0), update(1, 3, 2.0, 4.0)])
    assert one.weights["w"].tolist() == [2.0, 4.0]
    one.aggregate(one.orders(1), [update(0, 0, 99.0, 99.0)])
    assert one.weights["w"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (update(1, 2, 1.0, float("nan")), "update of client 1 for round 1: 'w' holds NaN"),
        (update(1, 2, 1.0), r"update of client 1 for round 1: 'w' is float32\[1\], the model has float32\[2\]"),
        (update(1, -1, 1.0, 1.0), "its labelled count is -1"),
        (update(1, 2, 1.0, 1.0, round=3), "it answers round 3"),
        (update(9, 2, 1.0, 1.0), "client 9 .* no order"),
        (update(0, 1, 1.0, 1.0), "client 0 .* twice"),
    ],
)
def test_an_update_that_does_not_fit_is_refused_and_changes_nothing(bad: ClientUpdate, sentence: str) -> None:
    one = server()
    with pytest.raises(UpdateError, match=sentence):
        one.aggregate(one.orders(1), [UPDATES[0], bad])
    assert one.weights["w"].tolist() == [1.0, 1.0]


def test_every_client_gets_the_same_order() -> None:
    orders = server(clients=3, seed=8).orders(5)
    assert list(orders) == [0, 1, 2]
    assert all((o.run, o.round, o.seed, o.weights) == ("run", 5, 8, START) for o in orders.values())


def test_clients_take_part_by_chance_each_on_its_own() -> None:
    settings = small_settings(clients=50, take_part=0.3)
    rounds = [participants(settings, round) for round in range(1, 101)]
    assert rounds == [participants(settings, round) for round in range(1, 101)]
    counts = np.bincount(np.concatenate(rounds), minlength=50)
    assert counts.sum() / 5000 == pytest.approx(0.3, abs=0.03)
    assert counts.min() > 10
    assert all(sorted(clients) == clients for clients in rounds)
    assert participants(small_settings(), 1) == [0, 1, 2, 3]
    assert participants(small_settings(clients=50, take_part=0.3, seed=1), 1) != rounds[0]
