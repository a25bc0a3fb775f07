"""``chase evaluate``: a run's model measured on labelled data that came later."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics

from chase.export.evaluating import evaluate
from chase.export.trained import read_trained


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


def rows(count, seed, first=0):
    draw = np.random.default_rng(seed)
    return [f"p{n};{draw.normal(1.5 * (n % 3)):.6f};{'mf'[n % 2]};{'abc'[n % 3]}" for n in range(first, first + count)]


@pytest.fixture
def table_run(chase, tmp_path):
    (tmp_path / "items.csv").write_text("patient;score;sex;label\n" + "\n".join(rows(150, 0)) + "\n")
    options = ["strategy=recommended", "clients=2", "partition=iid", "rounds=3", "engine=inprocess", "budget=10"]
    sets = [part for option in options for part in ("--set", option)]
    (tmp_path / "a.toml").write_text('data = "items.csv"\n')
    assert chase("run", tmp_path / "a.toml", "--out", tmp_path / "run", *sets).code == 0
    return tmp_path / "run"


def test_the_figures_are_those_of_scikit_learn(chase, table_run, tmp_path):
    new = [*rows(100, 1, first=200), "x1;0.3;m;", "x2;0.5;f;"]
    (tmp_path / "new.csv").write_text("patient;score;sex;label\n" + "\n".join(new) + "\n")
    done = chase("evaluate", table_run, tmp_path / "new.csv", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert (found["tested"], found["unlabeled"], found["errors"], found["in_training"]) == (100, 2, [], 0)
    truth = np.array(["abc".index(row[-1]) for row in new[:100]])
    lines = json.loads(chase("predict", table_run, tmp_path / "new.csv", "--top", "3", "--json").out)[:100]
    shares = np.array([[{t["class"]: t["probability"] for t in line["top"]}[c] for c in "abc"] for line in lines])
    said = shares.argmax(axis=1)
    assert found["accuracy"] == metrics.accuracy_score(truth, said)
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(truth, said))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(truth, shares, multi_class="ovr"))
    assert found["majority_accuracy"] == 0.34
    low, high = found["accuracy_interval"]
    assert low < found["accuracy"] < high
    second = found["classes"][1]
    assert second["sensitivity"] == pytest.approx(metrics.recall_score(truth == 1, said == 1))
    assert second["specificity"] == pytest.approx(metrics.recall_score(truth != 1, said != 1))
    shown = chase("evaluate", table_run, tmp_path / "new.csv").out
    for word in ("accuracy", "interval", "most frequent class", "balanced", "AUC", "ECE", "sensitivity", "specificity"):
        assert word in shown
    assert "2 samples without a label were left out" in shown


def test_what_the_model_may_have_learnt_from_is_said(chase, table_run, tmp_path):
    held_out = 30  # a fifth of the rows, which the run itself is tested on
    done = chase("evaluate", table_run, tmp_path / "items.csv")
    assert f"{150 - held_out} of 150 samples are equal to samples of the training part" in done.out
    shutil.copy(tmp_path / "items.csv", tmp_path / "copy.csv")
    (tmp_path / "items.csv").unlink()
    done = chase("evaluate", table_run, tmp_path / "copy.csv")
    assert "could not be checked" in done.out
    assert json.loads(chase("evaluate", table_run, tmp_path / "copy.csv", "--json").out)["in_training"] is None


def test_bad_input_is_one_sentence(chase, table_run, tmp_path):
    head = "patient;score;sex;"
    (tmp_path / "other.csv").write_text(f"{head}label\nx1;0.1;m;a\nx2;0.1;m;d\nx3;0.1;m;e\nx4;0.2;f;d\nx5;0.2;f;\n")
    (tmp_path / "none.csv").write_text(f"{head}verdict\nx1;0.1;m;a\nx2;0.9;f;b\n")
    (tmp_path / "worse.csv").write_text(f"{head}label\nx1;heavy;m;a\nx2;0.1;m;b\n")

    def said(name, *more):
        done = chase("evaluate", table_run, tmp_path / name, *more)
        assert "Traceback" not in done.err
        return done.code, done.err

    code, error = said("other.csv")
    assert code == 2
    assert "3 of 4 labelled samples have labels that the model does not know: 'd' (2), 'e' (1)" in error
    assert "its 3 classes are a, b, c" in error
    code, error = said("none.csv")
    assert code == 2
    assert "has a label to compare with" in error
    assert "label_column" in error
    assert said("none.csv", "--set", "label_column=verdict")[0] == 0
    assert said("none.csv", "--set", "label_column=nothing")[0] == 2
    assert said("none.csv", "--set", "lr=1")[0] == 2
    code, error = said("missing.csv")
    assert (code, "does not exist" in error, "predict" in error) == (2, True, False)
    code, error = said("worse.csv")
    assert code == 1
    assert "1 of 2 samples could not be read" in error
    assert "line 2" in error


def test_folders_are_measured_by_their_class_folders_and_of_two_parts_by_the_test_part(chase, tmp_path):
    def picture(file, level, n):
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(n).integers(0, 60, (8, 8)) + level
        Image.fromarray(pixels.astype(np.uint8)).save(file)

    for n in range(40):
        picture(tmp_path / "x" / "ab"[n % 2] / f"{n}.png", 100 * (n % 2), n)
        picture(tmp_path / "y" / "train" / "ab"[n % 2] / f"{n}.png", 100 * (n % 2), n)
    for n in range(10):
        picture(tmp_path / "y" / "test" / "ab"[n % 2] / f"{n}.png", 100 * (n % 2), 100 + n)
    (tmp_path / "a.toml").write_text(
        'data = "x"\nclients = 2\npartition = "iid"\nrounds = 1\nstrategy = "random"\ninitial_labels = 0.5\n'
    )
    assert chase("run", tmp_path / "a.toml", "--out", tmp_path / "run").code == 0
    trained = read_trained(tmp_path / "run")
    assert evaluate(trained, [tmp_path / "x"]).in_training == 32, "the other 8 are those that the run is tested on"
    parts = evaluate(trained, [tmp_path / "y"])
    assert (parts.quality["tested"], parts.in_training) == (10, 0)
    (tmp_path / "y" / "test" / "a" / "bad.png").write_bytes(b"no")
    assert len(evaluate(trained, [tmp_path / "y"]).errors) == 1
    done = chase("evaluate", tmp_path / "run", tmp_path / "x" / "a")
    assert (done.code, "a folder per class" in done.err) == (2, True)
