"""Forms of federated active learning: cycles, resets, isolation; who takes part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support import Site, final_weights, simulate, small_settings, timeless

from chase.annotation.behaviour import per_cycle
from chase.core.weights import Weights
from chase.data.resident import DataSet
from chase.run.experiment import Experiment, net_spec
from chase.server.server import Server, new_start, participants


def near(a: Weights, b: Weights) -> bool:
    return all(np.allclose(a[name], b[name], atol=1e-3) for name in a)


def test_a_cycle_starts_afresh_asks_once_and_tracks_its_last_round(digits: DataSet) -> None:
    settings = small_settings(form="cycles", cycle_rounds=3, strategy="ev")
    spec = net_spec(settings, digits)
    server = Server("run", settings, new_start(spec, settings).weights, spec=spec)
    orders = {round: server.orders(round)[0] for round in range(1, 8)}
    assert [orders[r].phase for r in range(1, 8)] == ["train", "train", "train", "select", "train", "train", "select"]
    assert [orders[r].fresh for r in range(1, 8)] == [False, False, False, True, False, False, True]
    assert [orders[r].track for r in range(1, 8)] == [False, False, True, False, False, True, False]
    # Selection sees the model that was learnt; training begins elsewhere, each cycle at another place.
    assert near(orders[4].weights, server.weights)
    assert not near(orders[4].origin, server.weights)
    assert not near(orders[4].origin, orders[7].origin)


@pytest.mark.parametrize("changes", [{"behaviour": "ReCo"}, {"form": "cycles", "cycle_rounds": 2}])
def test_a_budget_of_zero_buys_no_label(digits: DataSet, tmp_path: Path, changes: dict[str, object]) -> None:
    story = simulate(small_settings(**changes, budget=0, strategy="chase"), digits, tmp_path)
    assert story.asked == []
    assert {u.metrics["labels"] for u in story.updates} == {0}
    assert {u.metrics["pool_asked"] for u in story.updates} == {0}
    assert len(set(story.weights)) == 4  # it trains all the same


def test_cycles_end_to_end(digits: DataSet, tmp_path: Path) -> None:
    cycles = {"form": "cycles", "cycle_rounds": 2, "cycle_budget": "fixed"}
    settings = small_settings(**cycles, strategy="chase", align="none", rounds=5)
    assert (settings.freeze, settings.awaken, settings.subset) == (False, False, False)
    story = simulate(settings, digits, tmp_path)
    by_round = {r: [u for u in story.updates if u.round == r] for r in range(1, 6)}
    assert [len({q["sample"] for q in story.asked if q["round"] == r}) > 0 for r in range(1, 6)] == [0, 0, 1, 0, 1]
    for r, updates in by_round.items():
        assert all(("ev_count" in u.metrics) == (r % 2 == 0) for u in updates)
        assert all(u.metrics["pool_dormant"] == 0 for u in updates)
        assert all(u.metrics["inferences"] == 3 * u.metrics.get("ev_count", 0) for u in updates)
    first = by_round[1][0].metrics
    a_cycle = round(0.025 * first["pool_unlabeled"])
    assert [by_round[r][0].metrics["labels"] for r in range(1, 6)] == [0, 0, a_cycle, a_cycle, 2 * a_cycle]


def test_budgets_of_a_cycle() -> None:
    assert [per_cycle(4000, rounds, "adaptive").budget for rounds in (25, 50, 75, 100)] == [50, 100, 150, 200]
    assert [per_cycle(4000, rounds, "fixed").budget for rounds in (25, 100)] == [100, 100]
    assert per_cycle(3, 25, "adaptive").budget == 1


def test_a_cycle_without_anyone_still_starts_afresh(digits: DataSet) -> None:
    settings = small_settings(form="cycles", cycle_rounds=1, strategy="random")
    spec = net_spec(settings, digits)
    server = Server("run", settings, new_start(spec, settings).weights, spec=spec)
    before = server.weights
    server.orders(1)
    server.aggregate({}, [])
    assert server.weights is before
    order = server.orders(2)[0]
    server.aggregate({}, [])
    assert near(server.weights, order.origin)
    assert not near(server.weights, before)


def test_reset_begins_every_round_at_another_random_model(digits: DataSet, tmp_path: Path) -> None:
    """With a learning rate of nearly nothing an update is the model that training began at."""
    settings = small_settings(form="reset", strategy="ev", lr=1e-9, rounds=3)
    spec = net_spec(settings, digits)
    story = simulate(settings, digits, tmp_path)
    for update in story.updates:
        assert near(update.weights, new_start(spec, settings, update.round - 1).weights)
    assert not near(story.updates[0].weights, story.updates[-1].weights)
    assert len(story.asked) == 2 * 4 * 5


def test_in_isolation_a_client_goes_on_from_its_own_model() -> None:
    """Whatever the server sends after the first turn changes nothing."""
    settings = small_settings(form="isolated")
    own, told = Site(settings), Site(settings)
    for round in (1, 2, 3):
        a = own.turn(round)
        if round > 1:
            told.weights = {name: np.zeros_like(array) for name, array in told.weights.items()}
        b = told.turn(round)
        assert all(np.array_equal(a.update.weights[name], b.update.weights[name]) for name in a.update.weights)
        assert a.questions == b.questions


def test_isolated_accuracy_is_the_plain_mean_over_all_clients(digits: DataSet, tmp_path: Path) -> None:
    settings = small_settings(form="isolated", strategy="random", take_part=0.5, rounds=3, engine="inprocess")
    metrics = Experiment.begin(settings, tmp_path / "run").run()
    for line in metrics:
        scores = [line["client_scores"][str(c)]["test_accuracy"] for c in range(4)]
        assert line["test_accuracy"] == pytest.approx(sum(scores) / 4)
        assert max(scores) <= 0.25  # two of ten classes a client
    took = [set(participants(settings, r)) for r in (1, 2, 3)]
    assert any(len(t) < 4 for t in took)
    for before, line, taken in zip(metrics, metrics[1:], took[1:], strict=False):
        for client in set(range(4)) - taken:
            assert line["client_scores"][str(client)] == before["client_scores"][str(client)]


def test_an_exact_share_of_the_clients_takes_part() -> None:
    settings = small_settings(clients=10, share_of_clients=0.3)
    rounds = [participants(settings, r) for r in range(1, 201)]
    assert {len(taken) for taken in rounds} == {3}
    assert all(taken == sorted(set(taken)) for taken in rounds)
    often = Counter(client for taken in rounds for client in taken)
    assert min(often[c] for c in range(10)) > 35
    assert participants(settings, 7) == participants(settings, 7)
    assert len(participants(small_settings(clients=10, share_of_clients=0.01), 1)) == 1


def test_share_and_chance_go_together() -> None:
    settings = small_settings(clients=10, share_of_clients=0.5, take_part=0.5)
    sizes = [len(participants(settings, r)) for r in range(1, 101)]
    assert max(sizes) <= 5
    assert 2.0 < sum(sizes) / 100 < 3.0


HARD = [
    {"strategy": "ll4al", "form": "reset"},
    {"strategy": "ll4al", "model": "global", "server": "fedavgm"},
    {"strategy": "tod", "take_part": 0.7},
    {"strategy": "kafal", "form": "cycles", "cycle_rounds": 2},
    {"strategy": "chase", "form": "isolated", "server": "fedadam", "share_of_clients": 0.75},
]


@pytest.mark.parametrize("changes", HARD, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_stopped_and_gone_on_with_the_same(changes: dict, tmp_path: Path) -> None:
    settings = small_settings(**changes, clients=3, rounds=4, local_epochs=2, engine="inprocess")
    straight = Experiment.begin(settings, tmp_path / "straight").run()
    Experiment.begin(settings.model_copy(update={"rounds": 2}), tmp_path / "stopped").run()
    gone_on = Experiment.resume(tmp_path / "stopped", {"rounds": 4}).run()
    assert timeless(gone_on) == timeless(straight)
    assert final_weights(tmp_path / "stopped") == final_weights(tmp_path / "straight")


def test_fresh_starts_and_modules_reach_the_workers(tmp_path: Path) -> None:
    settings = small_settings(**HARD[0], clients=3, rounds=3, local_epochs=2, engine="inprocess")
    here = Experiment.begin(settings, tmp_path / "here").run()
    workers = settings.model_copy(update={"engine": "workers", "workers": 2})
    there = Experiment.begin(workers, tmp_path / "there").run()
    assert timeless(there) == timeless(here)
    assert final_weights(tmp_path / "there") == final_weights(tmp_path / "here")
