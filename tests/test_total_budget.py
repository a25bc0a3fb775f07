"""``total_budget`` is spent at most, whoever asks and however late people answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import small_settings

from chase.core.messages import ClientUpdate, RoundOrder
from chase.run.allotment import Allotment, share_out
from chase.run.client_counts import ClientCounts
from chase.run.experiment import Experiment
from chase.run.metrics import stop_reason


def test_shares_are_even_and_the_odd_ones_go_round() -> None:
    assert share_out(60, range(10), 1) == dict.fromkeys(range(10), 6)
    assert share_out(5, [2, 4, 9], 0) == {2: 2, 4: 2, 9: 1}
    assert share_out(1, [0, 1, 2], 1) == {0: 0, 1: 1, 2: 0}
    assert share_out(1, [0, 1, 2], 2) == {0: 0, 1: 0, 2: 1}
    assert share_out(-3, [0, 1], 5) == {0: 0, 1: 0}
    for left in range(20):
        for round in range(7):
            assert sum(share_out(left, range(6), round).values()) == left


def update(client: int, labels: int, asked: int) -> ClientUpdate:
    pools = {"pool_labeled": 0.0, "pool_unlabeled": 0.0, "pool_dormant": 0.0, "pool_set_aside": 0.0}
    return ClientUpdate(client, 1, {}, 0, {"labels": float(labels), "pool_asked": float(asked), **pools})


def test_open_questions_and_unanswered_orders_are_reserved() -> None:
    """Of 10: client 0 has 3 labels and 1 open question, client 1 has not answered an order of 5: 1 is left."""
    counts = ClientCounts(2, {})
    allotment, order = Allotment(10, counts), RoundOrder("r", 1, 0, {})
    first = allotment.limit({0: order, 1: order})
    assert first[0] is first[1]  # engines send one order to many clients
    assert first[0].allowances == {0: 5, 1: 5}
    answers = [update(0, 3, 1)]
    counts.take(answers)
    allotment.answered(answers)
    assert allotment.limit({0: order})[0].allowances == {0: 1}
    late = [update(0, 5, 0), update(1, 2, 0)]
    counts.take(late)
    allotment.answered(late)
    assert allotment.limit({0: order, 1: order})[0].allowances == {0: 1, 1: 2}


def summed(sites: tuple[int, ...], labels: int, asked: int) -> ClientUpdate:
    return replace(update(sites[0], labels, asked), joint=sites)


def test_a_secure_sum_stands_for_all_its_sites_and_counts_none_of_them_twice() -> None:
    counts = ClientCounts(3, {0: (3, 0, 0, 1, 0, 0), 1: (7, 0, 0, 0, 0, 0)})
    assert (counts.metrics()["labels"], counts.spent) == (10, 11)
    counts.take([summed((0, 1, 2), 12, 2)])
    line = counts.metrics()
    assert (line["labels"], line["clients"], counts.spent) == (12, {}, 14)
    again = ClientCounts.resume(3, {}, line)
    assert (again.metrics(), again.spent) == (line, 14)
    counts.take([summed((1, 2), 9, 0)])  # client 0 dropped out of the sum: its labels are spent all the same
    assert (counts.metrics()["labels"], counts.spent) == (9, 14)
    counts.take([])  # no sum
    assert (counts.metrics()["labels"], counts.metrics()["clients"]) == (9, {})
    counts.take([update(1, 8, 0)])
    assert counts.metrics()["labels"] == 8
    assert list(counts.metrics()["clients"]) == ["1"]


def test_after_a_secure_sum_nothing_stays_reserved_for_its_sites() -> None:
    counts = ClientCounts(3, {})
    allotment, order = Allotment(20, counts), RoundOrder("r", 3, 0, {})
    assert allotment.limit(dict.fromkeys(range(3), order))[0].allowances == {0: 7, 1: 7, 2: 6}
    answers = [summed((0, 1), 6, 1)]
    counts.take(answers)
    allotment.answered(answers)
    assert allotment.limit(dict.fromkeys(range(2), order))[0].allowances == {0: 3, 1: 4}  # 20 - 7 - 6 of client 2


def test_without_a_total_budget_orders_stay_as_they_are() -> None:
    orders = {0: RoundOrder("r", 1, 0, {})}
    assert Allotment(0, ClientCounts(1, {})).limit(orders) is orders
    assert orders[0].allowance(0, 7) == 7


@pytest.mark.parametrize(
    "changes", [{}, {"answer_delay": 2}, {"behaviour": "ReCo"}, {"engine": "workers", "workers": 2}]
)
def test_a_run_spends_at_most_its_total_budget(tmp_path, changes, forked_workers) -> None:
    settings = small_settings(strategy="random", clients=4, rounds=30, total_budget=27, **changes)
    lines = Experiment.begin(settings, tmp_path / "run").run()
    labels = [line["labels"] for line in lines]
    assert max(labels) == labels[-1] == 27
    assert len(lines) < 30
    assert stop_reason(settings, lines) == "total budget of 27 labels spent"
