"""Predictions for own data: folders, rows of tables with their ids, a bad file among good ones; exports and cards."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from chase.export.trained import read_trained


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table_run(chase, tmp_path):
    draw = np.random.default_rng(0)
    rows = [f"p{n};{draw.normal(3 * (n % 2)):.3f};{'mf'[n % 2]};{'ab'[n % 2]}" for n in range(120)]
    (tmp_path / "items.csv").write_text("patient;score;sex;label\n" + "\n".join(rows) + "\n")
    options = ["net=mlp", "clients=2", "partition=iid", "rounds=3", "strategy=random", "lr=0.1", "local_epochs=3"]
    sets = [part for option in options for part in ("--set", option)]
    toml = tmp_path / "a.toml"
    toml.write_text('data = "items.csv"\n')
    assert chase("run", toml, "--out", tmp_path / "run", *sets).code == 0
    return tmp_path / "run"


def test_rows_of_a_table_are_predicted_by_their_ids(chase, table_run, tmp_path):
    (tmp_path / "new.csv").write_text("patient,sex,score,label\nx1,m,0.0,\nx2,f,3.0,\nx3,,,\n")
    found = json.loads(chase("predict", table_run, tmp_path / "new.csv", "--top", "2", "--json").out)
    assert [p["id"] for p in found] == ["x1", "x2", "x3"]
    assert all(sum(t["probability"] for t in p["top"]) == pytest.approx(1) for p in found)
    rows = chase("predict", table_run, tmp_path / "new.csv", "--csv", "--top", "2").out.splitlines()
    assert rows[0] == "id,class,probability,note,error,class_2,probability_2"


def test_the_exported_programs_and_the_card_agree_with_the_run(chase, table_run, tmp_path):
    assert chase("export", table_run, "--format", "onnx", "--which", "best").code == 0  # executed before it counts
    assert chase("export", table_run).code == 0
    card = (table_run / "export" / "MODEL_CARD.md").read_text()
    assert "balanced accuracy: " in card
    assert "| class | sensitivity | specificity | AUC | test samples |" in card
    assert "| site | samples | initial labels | accuracy on its classes |" in card
    assert "to be filled in" in card
    assert "| a |" in card
    best = read_trained(table_run, "best")
    scores = [line["test_accuracy"] for line in best.metrics]
    assert best.test_accuracy == max(scores)
    assert best.round == scores.index(max(scores)) + 1


def test_a_folder_goes_on_past_a_bad_file_and_says_so(chase, tmp_path):
    for name, level in (("a", 40), ("b", 200)):
        (tmp_path / "x" / name).mkdir(parents=True)
        for n in range(20):
            Image.fromarray(np.full((8, 8), level + n, dtype=np.uint8)).save(tmp_path / "x" / name / f"{n}.png")
    (tmp_path / "a.toml").write_text(
        'data = "x"\nclients = 2\npartition = "iid"\nrounds = 1\nstrategy = "random"\ninitial_labels = 0.5\n'
    )
    assert chase("run", tmp_path / "a.toml", "--out", tmp_path / "run").code == 0
    Image.new("L", (20_000, 10_000)).save(tmp_path / "x" / "a" / "3.png")
    done = chase("predict", tmp_path / "run", tmp_path / "x", "--json")
    assert done.code == 1
    assert "1 of 40 samples could not be read" in done.err
    assert "more than 100,000,000" in done.err  # the reason, not just "it is not an image"
    assert "Warning" not in done.err
    found = json.loads(done.out)
    assert sum(bool(p["error"]) for p in found) == 1
    assert sum(p["class"] is not None for p in found) == 39
    report = (tmp_path / "run" / "report.html").read_text()
    assert "What was asked" not in report  # own samples stay out of reports unless gallery=true
