"""``head = "closed-form"``: a trained network whose last layer is solved from sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import final_weights, simulate, small_settings, timeless
from torch import nn

from chase.closed_form.feature_map import GRID
from chase.closed_form.ridge import solve
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError, UpdateError
from chase.core.messages import ClientUpdate
from chase.core.weights import prefixed
from chase.data.resident import DataSet
from chase.export.model_files import export
from chase.export.trained import read_trained
from chase.learning.inference import features, logits
from chase.models.net import Net, set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment, net_spec
from chase.run.record import Record
from chase.server.closed_form import make_server
from chase.server.intake import Intake
from chase.server.server import new_start
from chase.settings import Settings, load, presets
from chase.simulation.world import World, split_among_clients

HEAD = {"head": "closed-form", "strategy": "random"}


def settings_of(**changes: Any) -> Settings:
    return small_settings(**{**HEAD, **changes})


def run(out: Path, data: DataSet, **changes: Any) -> list[dict[str, Any]]:
    return Experiment(Record.create(out, settings_of(**changes)), data, []).run()


def saved(out: Path) -> dict[str, Any]:
    checkpoint = Checkpoint(out / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    return checkpoint.read_arrays(manifest.server)


def test_training_is_the_same_bit_for_bit_and_only_the_model_of_the_run_differs(
    digits: DataSet, tmp_path: Path
) -> None:
    """Random selection reads no model, so every client must train as it does without the head."""
    plain = Experiment(Record.create(tmp_path / "plain", settings_of(head="trained", rounds=4)), digits, []).run()
    lines = run(tmp_path / "head", digits, rounds=4)
    trained, arrays = saved(tmp_path / "plain"), saved(tmp_path / "head")
    assert all(np.array_equal(arrays[f"trained/{name}"], array) for name, array in trained.items() if "/" not in name)
    assert Record.open(tmp_path / "head").selections == Record.open(tmp_path / "plain").selections
    assert not np.array_equal(arrays["head.weight"], trained["head.weight"])
    assert lines[-1]["test_accuracy"] > plain[-1]["test_accuracy"] + 0.1
    assert lines[-1]["ridge"] > 0
    assert "ridge" not in plain[-1]


def test_the_head_is_the_ridge_solution_of_all_labels_on_the_features_that_were_sent_out(
    digits: DataSet, tmp_path: Path
) -> None:
    """After one round: the initial labels of all clients under the first weights, in one sum."""
    settings = settings_of(rounds=1)
    run(tmp_path / "run", digits, rounds=1)
    arrays, first = saved(tmp_path / "run"), new_start(net_spec(settings, digits), settings).weights
    world = World.of(settings, digits, split_among_clients(settings, digits))
    net = world.net()
    assert isinstance(net, Net)
    set_weights(net, first)
    starts = [world.start(client) for client in range(settings.clients)]
    rows = np.concatenate([start.pools.labeled for start in starts])
    labels = np.concatenate([start.labels_of(start.pools.labeled) for start in starts])
    values = features(net, digits.train, torch.from_numpy(rows)).numpy().astype(np.float64)
    head = solve(Sums.of(values / GRID, labels, digits.num_classes))
    assert all(np.array_equal(arrays[name], first[name]) for name in first if not name.startswith("head."))
    weights = {name: array for name, array in arrays.items() if "/" not in name}
    set_weights(net, weights)
    probs = logits(net, digits.train, torch.from_numpy(rows)).double().numpy()
    scores = head.scores(values)
    assert np.array_equal(probs.argmax(axis=1), scores.argmax(axis=1))
    ratio = (probs - probs.mean(axis=1, keepdims=True)) / (scores - scores.mean(axis=1, keepdims=True))
    assert np.median(ratio) > 1  # one over the temperature
    assert np.allclose(ratio, np.median(ratio), rtol=1e-2)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"strategy": "entropy", "model": "global"},
        {"strategy": "chase"},
        {"strategy": "ll4al"},
        {"take_part": 0.6, "answer_delay": 2},
        {"form": "reset"},
        {"form": "cycles", "cycle_rounds": 2},
        {"combine": "median"},
    ],
)
def test_the_same_bits_resumed_and_with_workers(
    case: dict[str, Any], digits: DataSet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if case:
        request.getfixturevalue("forked_workers")
    changes = case | {"rounds": 4}

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["round"] == 2:
            raise KeyboardInterrupt

    whole = run(tmp_path / "whole", digits, **changes)
    with pytest.raises(KeyboardInterrupt):
        Experiment(Record.create(tmp_path / "stopped", settings_of(**changes)), digits, []).run(stop)
    assert timeless(Experiment.resume(tmp_path / "stopped").run()) == timeless(whole)
    parallel = run(tmp_path / "workers", digits, **changes, engine="workers", workers=2)
    assert timeless(parallel) == timeless(whole)
    assert len({final_weights(tmp_path / name) for name in ("whole", "stopped", "workers")}) == 1


def test_the_order_in_which_clients_answer_changes_nothing(digits: DataSet, tmp_path: Path) -> None:
    settings = settings_of(rounds=3)
    stories = [simulate(settings, digits, tmp_path / str(n), shuffle=n) for n in (1, 2)]
    assert stories[0].weights == stories[1].weights


def test_selection_by_the_global_model_sees_the_solved_head(digits: DataSet, tmp_path: Path) -> None:
    asked = [
        simulate(settings_of(head=head, strategy="entropy", model="global", rounds=3), digits, tmp_path / head).asked
        for head in ("trained", "closed-form")
    ]
    assert {line["sample"] for line in asked[0]} != {line["sample"] for line in asked[1]}


def test_the_exported_model_is_the_one_that_was_scored(digits: DataSet, tmp_path: Path) -> None:
    experiment = Experiment.begin(settings_of(rounds=3), tmp_path / "run")
    line = experiment.run()[-1]
    trained = read_trained(tmp_path / "run")
    probs = trained.probabilities(digits.test.inputs)
    assert float((probs.argmax(1).numpy() == digits.test_labels).mean()) == pytest.approx(line["test_accuracy"])
    export(trained, tmp_path / "out", "torchscript")


def sums_of(labels: int, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(labels)
    values = rng.standard_normal((labels, 64)) * scale / GRID
    return prefixed("head_sum.", Sums.of(values, np.arange(labels) % 10, 10).to_arrays())


def test_sums_of_clients_that_sat_out_count_on_with_their_share(digits: DataSet) -> None:
    """Four clients, two of which answer: half of the earlier sums stays."""
    settings = settings_of(clients=4, rounds=2)
    spec = net_spec(settings, digits)
    server = make_server("run", settings, new_start(spec, settings), spec)
    for round, clients in ((1, range(4)), (2, range(2))):
        orders = server.orders(round)
        server.aggregate(orders, [ClientUpdate(c, round, orders[c].weights, 30, {}, sums_of(30)) for c in clients])
    counts = server.to_arrays()["head_sums/counts"]
    assert counts.tolist() == [4 * 3 * 0.5 + 2 * 3] * 10


def test_sums_that_do_not_fit_are_refused(digits: DataSet, tmp_path: Path) -> None:
    settings = settings_of(clients=2)
    spec = net_spec(settings, digits)
    orders = make_server("run", settings, new_start(spec, settings), spec).orders(1)
    weights = orders[0].weights
    with pytest.raises(UpdateError, match="its sums count 30 labels, it has 20"):
        Intake(settings, orders).take(ClientUpdate(0, 1, weights, 20, {}, sums_of(30)))
    bad = {**sums_of(30), "head_sum.features": np.zeros(3)}
    with pytest.raises(UpdateError, match=r"'features' is float64\[3\], the model has float64\[64\]"):
        Intake(settings, orders).take(ClientUpdate(0, 1, weights, 30, {}, bad))
    Intake(settings, orders).take(ClientUpdate(0, 1, weights, 0, {}))


def test_fewer_labels_than_min_labels_send_no_sums(digits: DataSet, tmp_path: Path) -> None:
    def sent(**changes: Any) -> int:
        story = simulate(settings_of(rounds=1, **changes), digits, tmp_path / str(len(changes)))
        return sum(any(name.startswith("head_sum.") for name in update.extras) for update in story.updates)

    assert sent() == 4
    assert sent(min_labels=10_000) == 0


def test_one_class_alone_is_said_and_does_not_stop_the_run(digits: DataSet, tmp_path: Path) -> None:
    experiment = Experiment(
        Record.create(tmp_path / "run", settings_of(initial_labels=0.0, rounds=2, budget=0)), digits, []
    )
    assert experiment.run()[-1]["round"] == 2


def test_a_head_that_cannot_be_solved_is_said_and_the_one_before_stays(digits: DataSet) -> None:
    settings = settings_of(clients=2, rounds=2)
    spec = net_spec(settings, digits)
    server = make_server("run", settings, new_start(spec, settings), spec)
    heads = []
    for round, scale in ((1, 1.0), (2, 0.0)):
        orders = server.orders(round)
        update = [ClientUpdate(c, round, orders[c].weights, 30, {}, sums_of(30, scale)) for c in range(2)]
        server.aggregate(orders, update)
        heads.append(server.weights["head.weight"])
    assert np.array_equal(*heads)
    assert server.notes == [
        "the head cannot be solved: all labelled samples have the same features: nothing can be learnt from them"
    ]


class NoHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.all(x)
        return out


def no_head(shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    return NoHead()


def test_what_does_not_go_together_is_said(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="form = 'isolated' keeps them apart"):
        settings_of(form="isolated")
    with pytest.raises(SettingsError, match="head = 'closed-form', but learner = 'closed-form' trains no network"):
        settings_of(learner="closed-form")
    with pytest.raises(SettingsError, match="`head` is a Linear layer with a bias"):
        run(tmp_path / "run", digits, net="test_solved_head:no_head")


def test_no_preset_uses_it() -> None:
    assert {load(name).head for name in presets()} == {"trained"}
