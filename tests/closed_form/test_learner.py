"""The closed-form learner in whole runs and in one client's turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import Memory, Person, blobs, final_weights, simulate, small_settings, timeless

from chase.acquisition.catalog import METHODS
from chase.annotation.annotator import Answer
from chase.annotation.behaviour import Behaviour
from chase.client.build import build_net
from chase.client.context import ClientContext
from chase.client.contribute import HISTORY, NEVER, RECEIVED
from chase.client.spec import net_spec
from chase.client.state import ClientState
from chase.client.turn import Client, Turn
from chase.closed_form.feature_map import decode
from chase.closed_form.ridge import solve
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError
from chase.core.messages import RoundOrder
from chase.core.weights import digest, read
from chase.data.resident import DataSet, Samples
from chase.export.trained import read_trained
from chase.learning import inference
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.server.closed_form import ClosedFormServer, make_server
from chase.server.intake import Intake
from chase.server.server import new_start
from chase.settings import Settings

CLOSED = {"learner": "closed-form", "strategy": "margin", "filters": 8, "fit_passes": 1, "local_epochs": 3}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHASE_CACHE", str(tmp_path_factory.getbasetemp() / "features-of-tests"))
        yield


def closed(**changes: Any) -> Settings:
    return small_settings(**{**CLOSED, **changes})


def run(out: Path, data: DataSet, **changes: Any) -> list[dict[str, Any]]:
    return Experiment(Record.create(out, closed(**changes)), data, []).run()


class Stop(Exception):
    pass


def stop_in_round_3(metrics: dict[str, Any]) -> None:
    if metrics["round"] == 3:
        raise Stop


@pytest.mark.parametrize("case", [{}, {"strategy": "ev"}, {"take_part": 0.6, "answer_delay": 2, "wrong_labels": 0.3}])
def test_the_same_bits_twice_resumed_and_with_workers(
    case: dict[str, Any], digits: DataSet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if case:
        request.getfixturevalue("forked_workers")
    changes = case | {"rounds": 5}
    whole = run(tmp_path / "whole", digits, **changes)
    assert whole[-1]["test_accuracy"] > 0.6
    with pytest.raises(Stop):
        Experiment(Record.create(tmp_path / "stopped", closed(**changes)), digits, []).run(stop_in_round_3)
    assert timeless(Experiment.resume(tmp_path / "stopped").run()) == timeless(whole)
    parallel = run(tmp_path / "workers", digits, **changes, engine="workers", workers=2)
    assert timeless(parallel) == timeless(whole)
    names = ("whole", "stopped", "workers")
    assert len({final_weights(tmp_path / name) for name in names}) == 1
    assert len({str(Record.open(tmp_path / name).selections) for name in names}) == 1


def test_every_partition_gives_the_same_model_bit_for_bit(digits: DataSet, tmp_path: Path) -> None:
    """All samples labelled: two clients with all classes each, or ten with two, cannot be told apart."""
    heads = []
    for name, changes in {"iid": {"partition": "iid", "clients": 2}, "classes": {"clients": 10}}.items():
        run(tmp_path / name, digits, rounds=1, initial_labels=1.0, **changes)
        checkpoint = Checkpoint(tmp_path / name / "checkpoint")
        manifest, _ = checkpoint.latest()
        assert manifest is not None
        arrays = checkpoint.read_arrays(manifest.server)
        heads.append({key: array for key, array in arrays.items() if "/" not in key or key.startswith("sums/")})
    assert heads[0].keys() == heads[1].keys()
    assert all(np.array_equal(heads[0][key], heads[1][key]) for key in heads[0])
    assert np.abs(heads[0]["head.weight"]).max() > 0


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"ll4al", "bald", "kafal"}))
def test_every_strategy_works_with_it(name: str, digits: DataSet, tmp_path: Path) -> None:
    settings = closed(strategy=name, clients=2, rounds=4, alone_epochs=2, data_share=0.15, initial_labels=0.1)
    story = simulate(settings, digits, tmp_path)
    asked = [line["sample"] for line in story.asked]
    assert len(asked) == len(set(asked)) == 2 * 5 * 3
    assert len(set(story.weights)) > 2


def test_a_first_request_works_with_no_label_at_all(digits: DataSet, tmp_path: Path) -> None:
    experiment = Experiment(
        Record.create(tmp_path / "run", closed(strategy="typical", initial_labels=0.0, rounds=3)), digits, []
    )
    lines = experiment.run()
    assert lines[0]["test_accuracy"] < 0.2
    assert lines[0]["labels"] == 0
    assert lines[-1]["labels"] == 40
    assert lines[-1]["test_accuracy"] > 0.4
    said = "labels of 0 classes are known so far"
    assert not any(said in note for note in experiment.notes), "no longer true at the end"
    short = closed(strategy="typical", initial_labels=0.0, rounds=1)
    ended = Experiment(Record.create(tmp_path / "short", short), digits, [])
    ended.run()
    assert any(said in note for note in ended.notes)


def test_metrics_say_which_ridge_and_temperature_and_how_calibrated(digits: DataSet, tmp_path: Path) -> None:
    line = run(tmp_path / "run", digits, rounds=2, initial_labels=0.1)[-1]
    assert line["ridge"] > 0
    assert 0.01 <= line["temperature"] <= 1.0
    assert 0.0 <= line["calibration_error"] < 0.3
    by_hand = run(tmp_path / "hand", digits, rounds=1, ridge=5.0)[-1]
    assert by_hand["ridge"] == 5.0


def test_an_exported_model_gives_the_same_answers(digits: DataSet, tmp_path: Path) -> None:
    Experiment.begin(closed(rounds=3, initial_labels=0.1), tmp_path / "run").run()
    trained = read_trained(tmp_path / "run")
    settings = closed(rounds=3, initial_labels=0.1)
    net = build_net(settings, digits.train, 10)
    set_weights(net, trained.weights)
    with torch.inference_mode():
        stored = net.head(net.stored_features(digits.test, torch.arange(len(digits.test))))
    plain = trained.model(digits.test.inputs)
    assert (stored.argmax(1) == plain.argmax(1)).float().mean() > 0.99
    assert torch.allclose(stored, plain, atol=0.15)


# one client


class Bench:
    """A client of the closed-form learner and its server, on blobs of two classes."""

    def __init__(self, at_once: bool = True, samples: Samples | None = None, **changes: Any) -> None:
        self.settings = closed(**{"clients": 1, "strategy": "random", **changes})
        self.samples, self.truth = blobs(40)
        self.samples = samples or self.samples
        spec = net_spec(self.settings, self.samples, 2)
        start = ClientState.start(np.arange(40), np.arange(6), self.truth[:6])
        self.store, self.person = Memory(start), Person(self.truth, at_once)
        self.context = ClientContext(
            0, self.settings, self.samples, build_net(self.settings, self.samples, 2), 2, Behaviour(5, 1)
        )
        self.client = Client(self.context, self.person, self.store)
        made = make_server("run", self.settings, new_start(spec, self.settings), spec)
        assert isinstance(made, ClosedFormServer)
        self.server = made
        for round in self.server.preparation:
            self.turn(round)

    def turn(self, round: int, arrives: bool = True) -> Turn:
        orders = self.server.orders(round)
        turn = self.client.take_turn(orders[0])
        self.server.aggregate(orders, [turn.update] if arrives else [])
        return turn

    def expected(self) -> Sums:
        """The sums of what the client has labelled now."""
        state = self.store.load()
        ids = state.pools.labeled
        set_weights(self.context.net, self.server.weights)
        codes = self.context.net.codes(self.samples, torch.from_numpy(ids))  # type: ignore[operator]
        return Sums.of(codes, state.labels_of(ids), 2)

    def holds(self) -> bool:
        """Whether the server has exactly the client's labels."""
        theirs = {name: array for name, array in self.server.to_arrays().items() if name.startswith("sums/")}
        ours = self.expected().to_arrays()
        return all(np.array_equal(theirs[f"sums/{name}"], array) for name, array in ours.items())


def test_only_new_labels_go_up_and_the_server_has_all_of_them() -> None:
    bench = Bench()
    first, second = bench.turn(1), bench.turn(2)
    assert first.update.extras["sum.counts"].sum() == 6
    assert second.update.extras["sum.counts"].sum() == 5
    assert first.update.weights == {}
    assert bench.holds()
    head = solve(bench.expected())
    scores = decode(bench.context.net.codes(bench.samples, torch.arange(40))) @ head.weight  # type: ignore[operator]
    assert ((scores + head.bias).argmax(1) == bench.truth).mean() > 0.9


def test_a_revised_and_a_withdrawn_label_are_taken_out_exactly() -> None:
    bench = Bench()
    bench.turn(1)
    bench.person.ready = [Answer(0, 1 - int(bench.truth[0]), "test"), Answer(1, None, "test")]
    turn = bench.turn(2)
    assert turn.update.extras["sum.counts"].sum() == 5 - 1
    assert bench.holds()


def test_a_message_that_did_not_arrive_is_sent_again() -> None:
    bench = Bench()
    bench.turn(1)
    bench.turn(2, arrives=False)
    assert not bench.holds()
    third = bench.turn(3)
    assert third.update.extras["sum.counts"].sum() == 5 + 5
    assert bench.holds()


def test_nothing_is_sent_before_there_are_min_labels_new_ones() -> None:
    bench = Bench(min_labels=8)
    assert bench.turn(1).update.extras == {}  # 6 labels
    assert bench.turn(2).update.extras["sum.counts"].sum() == 11
    assert bench.turn(3).update.extras == {}  # 5 new ones
    assert bench.turn(4).update.extras["sum.counts"].sum() == 10


def test_a_corrected_label_is_one_new_label_of_min_labels() -> None:
    bench = Bench(min_labels=8)
    bench.turn(1)
    assert bench.turn(2).update.extras["sum.counts"].sum() == 11
    bench.person.ready = [Answer(n, 1 - int(bench.truth[n]), "test") for n in range(2)]
    assert bench.turn(3).update.extras == {}  # five new samples and two corrected ones, though two labels also go
    assert bench.turn(4).update.extras["sum.counts"].sum() == 10
    assert bench.holds()


def test_labels_that_cannot_be_told_apart_are_said_and_more_labels_solve_it() -> None:
    """The first samples may all be blank: the run asks for more."""
    inputs = blobs(40)[0].inputs.clone()
    inputs[:6] = 0
    bench = Bench(samples=Samples(inputs))
    bench.turn(1)
    assert bench.server.notes == [
        "the head cannot be solved: all labelled samples have the same features: nothing can be learnt from them"
    ]
    assert not bench.server.weights["head.weight"].any()
    bench.turn(2)
    assert bench.server.weights["head.weight"].any()


def test_a_large_pool_is_scored_in_parts_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.turn(1)
    net = bench.context.net
    set_weights(net, bench.server.weights)
    asked: list[int] = []
    stored = net.stored_features

    def counted(samples: Samples, rows: torch.Tensor) -> torch.Tensor:
        asked.append(rows.numel())
        found: torch.Tensor = stored(samples, rows)  # type: ignore[operator]
        return found

    monkeypatch.setattr(net, "stored_features", counted)
    monkeypatch.setattr(inference, "CHUNK", 4)
    whole = inference.logits(net, bench.samples, torch.arange(40))
    monkeypatch.setattr(inference, "STORED", 8)
    asked.clear()
    assert torch.equal(inference.logits(net, bench.samples, torch.arange(40)), whole)
    assert max(asked) == 8
    assert inference.logits(net, bench.samples, torch.arange(0)).shape == (0, 2)


def test_ev_is_counted_over_the_last_global_models() -> None:
    bench = Bench(track_ev=True, local_epochs=3)
    bench.turn(1)
    weights = dict(bench.server.weights)
    for round, sign in ((2, 1.0), (3, -1.0), (4, 1.0), (5, 1.0)):
        bench.server.weights = {**weights, "head.weight": weights["head.weight"] * np.float32(sign)}
        bench.server.weights["head.bias"] = weights["head.bias"] * np.float32(sign)
        order = bench.server.orders(round)[0]
        bench.client.take_turn(replace(order, weights=bench.server.weights))
    state = bench.store.load()
    assert state.extras[HISTORY].shape == (3, 40)
    assert state.ev.max() == 1  # of the last three models only one change is left
    assert state.seen.max() == 2


def test_a_late_change_of_sums_that_were_dropped_since_is_refused() -> None:
    bench = Bench()
    bench.turn(1)
    orders = bench.server.orders(2)
    late = bench.client.take_turn(orders[0]).update
    assert bench.server.begin_anew()
    bench.server.aggregate(orders, [late])
    assert "a change of sums that the server has dropped since" in bench.server.refused[0]
    assert bench.server.received.tolist() == [NEVER]
    bench.turn(3)
    assert bench.server.refused == {}
    assert np.array_equal(bench.server.to_arrays()["sums/counts"], bench.expected().to_arrays()["counts"])


def test_a_server_whose_sums_were_dropped_leaves_no_samples_out_of_none() -> None:
    bench = Bench(temperature="leave-one-out")
    bench.turn(1)
    assert "loo.about" in bench.server.orders(2)[0].extras
    bench.server.begin_anew()
    saved = bench.server.to_arrays()
    bench.server.restore(saved)  # as after a start
    assert "loo.about" not in bench.server.orders(2)[0].extras
    bench.turn(2)
    assert "loo.about" in bench.server.orders(3)[0].extras


def test_the_server_refuses_what_does_not_fit() -> None:
    bench = Bench()
    orders = bench.server.orders(1)
    update = bench.client.take_turn(orders[0]).update
    short = {**update.extras, "sum.features": update.extras["sum.features"][:-1]}
    bench.server.aggregate(orders, [replace(update, extras=short)])
    assert "'features' is" in bench.server.refused[0]
    negative = {name: -array for name, array in update.extras.items()}
    bench.server.aggregate(orders, [replace(update, extras=negative)])
    assert "client 0 for round 1: it removes labels" in bench.server.refused[0]
    assert bench.server.to_arrays()["sums/counts"].sum() == 0


def test_sums_are_added_as_they_come_and_only_removals_wait() -> None:
    plain, merged = Bench(clients=4), Bench(clients=4)
    orders = plain.server.orders(1)
    first = plain.client.take_turn(orders[0]).update
    half = {name: array / 2 for name, array in first.extras.items()}
    removal = {name: -array for name, array in half.items()}
    changes = {0: first.extras, 1: half, 2: removal, 3: {}}
    updates = [replace(first, client=client, extras=extras) for client, extras in changes.items()]
    intake = Intake(merged.settings, merged.server.orders(1))
    for update in reversed(updates):
        intake.take(update)
    assert [len(update.extras) for update in intake.updates] == [0, 0, len(removal), 0]
    merged.server.aggregate(orders, intake.updates, intake.mean())
    plain.server.aggregate(orders, updates)
    assert digest(merged.server.to_arrays()) == digest(plain.server.to_arrays())
    assert merged.server.to_arrays()["server/received"].tolist()[:3] == [1, 1, 1]


def test_an_order_carries_no_label_and_says_what_arrived() -> None:
    bench = Bench()
    bench.turn(1)
    order: RoundOrder = bench.server.orders(2)[0]
    assert order.extras.keys() == {RECEIVED}
    assert order.extras[RECEIVED].tolist() == [1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"align": "both"}, "align = 'both', but learner = 'closed-form' trains no network"),
        ({"form": "cycles"}, "form = 'cycles'"),
        ({"class_weights": "balanced"}, "class_weights = 'balanced' changes how a network is trained"),
        ({"strategy": "ll4al"}, "needs a network that is trained"),
        ({"features": "net"}, "set init_weights"),
        ({"features": "patchs"}, "did you mean 'patches'"),
    ],
)
def test_choices_that_need_a_trained_network_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        closed(**changes)


def test_features_of_the_wrong_kind_are_refused_before_anything_is_written(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="are for texts, and these samples are of kind image"):
        Experiment.begin(closed(features="hashed-text"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_isolated_clients_solve_alone(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, rounds=2, form="isolated", initial_labels=0.1)
    assert 0.1 < lines[-1]["test_accuracy"] <= 0.25
    assert len(lines[-1]["client_scores"]) == 4


def test_features_of_a_trained_network(digits: DataSet, tmp_path: Path) -> None:
    network = small_settings(rounds=2, strategy="random", initial_labels=0.3)
    Experiment(Record.create(tmp_path / "network", network), digits, []).run()
    checkpoint = Checkpoint(tmp_path / "network" / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    path = checkpoint.path / manifest.server.name
    assert "head.weight" in read(path)
    lines = run(tmp_path / "run", digits, rounds=2, features="net", init_weights=str(path), initial_labels=0.3)
    assert lines[-1]["test_accuracy"] > 0.6
