"""The closed-form learner on table rows in a federation, and feature maps that differ."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation.test_engine import run, transport_of
from support import final_weights

from chase.export.predicting import predict
from chase.export.trained import read_trained
from chase.federation.ops.setup import Loopback
from chase.federation.rules import Rules
from chase.run.experiment import Experiment
from chase.settings import Settings, load
from chase.simulation.world import load_data
from chase.site import contract
from chase.site.contract import contract_of, differences


def table(path: Path, rows: int = 240) -> Path:
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "sex", "pulse", "label"])
        for _ in range(rows):
            age, sex, pulse = draw.normal(50, 10), "fm"[int(draw.integers(2))], draw.normal(70, 8)
            out.writerow([f"{age:.1f}", sex, f"{pulse:.1f}", "high" if age + pulse > 120 else "low"])
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "rows.toml"
    table(tmp_path / "rows.csv")
    file.write_text('data = "rows.csv"\n')
    changes = {"learner": "closed-form", "strategy": "margin", "clients": 3, "partition": "iid", "rounds": 3}
    changes |= {"behaviour": "AbCo", "budget": 10, "initial_labels": 0.2, "min_labels": 1, "net": "mlp"}
    return load(str(file), changes)


def test_rows_of_a_table_are_learnt_by_sites_as_in_a_simulation(tmp_path: Path, settings: Settings) -> None:
    loopback = Loopback.prepare(tmp_path / "fed", settings, Rules(quorum=3), secure=False)
    line = run(loopback, transport_of(loopback))[-1]
    Experiment.begin(settings, tmp_path / "sim").run()
    assert line["test_accuracy"] > 0.85
    assert final_weights(loopback.federation.run) == final_weights(tmp_path / "sim")
    found = predict(read_trained(loopback.federation.run), [tmp_path / "rows.csv"])
    assert len(found) == 240
    assert {p.label for p in found} == {"high", "low"}


def test_features_that_differ_by_a_bit_are_refused_in_the_handshake(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load_data(settings)
    ours = contract_of(settings, data.train, data.classes)
    assert ours.features
    assert differences(ours, contract_of(settings, data.train, data.classes)) == []
    plain = contract.transform

    def off(*arguments: object) -> np.ndarray:
        codes = plain(*arguments)  # type: ignore[arg-type]
        codes[0, 0] += 1
        return codes

    monkeypatch.setattr(contract, "transform", off)
    contract._probed.cache_clear()
    theirs = contract_of(settings, data.train, data.classes)
    contract._probed.cache_clear()
    (said,) = differences(ours, theirs)
    assert said.startswith("features of drawn samples, bit for bit")
    assert differences(ours, replace(theirs, features=ours.features)) == []


def test_a_network_has_no_features_to_compare(settings: Settings) -> None:
    data = load_data(settings)
    trained = settings.model_copy(update={"learner": "network"})
    assert contract_of(trained, data.train, data.classes).features == ""
