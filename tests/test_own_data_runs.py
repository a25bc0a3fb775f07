"""Runs on a user's own data: no label is asked of nobody, content is checked at resume, runs and data move."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chase.core.errors import DataError, RunDirectoryError
from chase.run.experiment import Experiment
from chase.settings import from_mapping


def table(path: Path, empty: int = 0) -> Path:
    draw = np.random.default_rng(0)
    rows = [
        f"case-{n},{draw.normal(n % 2):.3f},{draw.normal():.3f},{'' if n < empty else 'ab'[n % 2]}" for n in range(80)
    ]
    path.write_text("id,u,v,label\n" + "\n".join(rows) + "\n")
    return path


def settings(path: Path, **changes: object):
    values = {
        "data": str(path), "net": "mlp", "clients": 2, "partition": "iid", "rounds": 2, "local_epochs": 2,
        "strategy": "random", "initial_labels": 0.2, "lr": 0.05, "engine": "inprocess",
    }  # fmt: skip
    return from_mapping(values | changes).resolved()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


def test_a_simulation_refuses_samples_without_a_label_and_counts_them(tmp_path):
    path = table(tmp_path / "x.csv", empty=60)
    with pytest.raises(
        DataError, match=r"60 of \d+ training samples \(\d\d%\) .*--annotator page.*unlabeled=leave-out"
    ):
        Experiment.begin(settings(path), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    experiment = Experiment.begin(settings(path, unlabeled="leave-out", clients=1), tmp_path / "run")
    assert any("60 samples without a label are left out" in note for note in experiment.notes)
    last = experiment.run()[-1]
    assert last["pools"]["set_aside"] == 0
    assert last["labels"] > 0


def test_selections_have_the_users_own_names(tmp_path):
    experiment = Experiment.begin(settings(table(tmp_path / "x.csv")), tmp_path / "run")
    experiment.run()
    lines = [json.loads(line) for line in (tmp_path / "run" / "selections.jsonl").read_text().splitlines()]
    assert lines
    assert all(line["name"].startswith("case-") for line in lines)
    assert {line["name"] for line in lines} <= set(experiment.data.train_names)


def test_data_of_another_content_is_refused_at_resume_though_all_counts_agree(tmp_path):
    root = tmp_path / "pictures"
    for name, level in (("a", 40), ("b", 200)):
        (root / name).mkdir(parents=True)
        for n in range(20):
            Image.fromarray(np.full((8, 8), level + n, dtype=np.uint8)).save(root / name / f"{n}.png")
    Experiment.begin(settings(root, net="tiny-cnn"), tmp_path / "run").run()
    for file in (root / "a").iterdir():
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(file)
    with pytest.raises(RunDirectoryError, match="the content of 'pictures' is not what it was"):
        Experiment.resume(tmp_path / "run", {"rounds": 3})


def test_a_run_and_its_data_can_be_moved_together_or_apart(tmp_path, monkeypatch):
    old = tmp_path / "old"
    old.mkdir()
    monkeypatch.chdir(old)
    table(old / "x.csv")
    Experiment.begin(settings(Path("x.csv")), Path("run")).run()
    old.rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    assert len(Experiment.resume(tmp_path / "new" / "run", {"rounds": 3}).run()) == 3
    (tmp_path / "new" / "x.csv").rename(tmp_path / "x.csv")  # the name stays: it is part of the names of samples
    (tmp_path / "else").mkdir()
    (tmp_path / "x.csv").rename(tmp_path / "else" / "x.csv")
    with pytest.raises(DataError, match="--set data=PLACE"):
        Experiment.resume(tmp_path / "new" / "run", {"rounds": 4})
    moved = {"rounds": 4, "data": str(tmp_path / "else" / "x.csv")}
    assert len(Experiment.resume(tmp_path / "new" / "run", moved).run()) == 4


def test_a_resume_reads_the_data_of_the_run_and_not_what_has_its_name_here(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    table(tmp_path / "one" / "x.csv")
    (tmp_path / "two" / "x.csv").write_text(table(tmp_path / "two" / "x.csv").read_text().replace("case-7,", "case-x,"))
    monkeypatch.chdir(tmp_path / "one")
    Experiment.begin(settings(Path("x.csv")), Path("run")).run()
    monkeypatch.chdir(tmp_path / "two")
    assert len(Experiment.resume(Path("../one/run"), {"rounds": 3}).run()) == 3
    with pytest.raises(RunDirectoryError, match="is not what it was"):
        Experiment.resume(Path("../one/run"), {"rounds": 4, "data": "x.csv"})


def test_a_damaged_confusion_matrix_does_not_block_a_longer_run(tmp_path):
    path = table(tmp_path / "x.csv")
    Experiment.begin(settings(path), tmp_path / "run").run()
    (tmp_path / "run" / "confusion.json").write_text("")
    assert len(Experiment.resume(tmp_path / "run", {"rounds": 3}).run()) == 3
    assert json.loads((tmp_path / "run" / "confusion.json").read_text())["round"] == 3


def test_a_run_that_never_began_blocks_no_directory(tmp_path):
    path = table(tmp_path / "x.csv")
    Experiment.begin(settings(path), tmp_path / "run")
    again = Experiment.begin(settings(path, lr=0.01), tmp_path / "run")
    again.run()
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        Experiment.begin(settings(path), tmp_path / "run")


def test_a_run_on_a_folder_named_without_a_slash_moves_with_it(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    for n in range(40):
        (tmp_path / "old" / "shots" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), n, dtype=np.uint8)).save(tmp_path / "old" / "shots" / "ab"[n % 2] / f"{n}.png")
    monkeypatch.chdir(tmp_path / "old")
    small = {"clients": 2, "rounds": 1, "partition": "iid", "net": "tiny-cnn", "engine": "inprocess"}
    Experiment.begin(from_mapping({"data": "shots", **small}).resolved(), Path("run")).run()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")
    assert len(Experiment.resume(tmp_path / "new" / "run", {"rounds": 2}).run()) == 2
    (tmp_path / "new" / "shots").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"data = shots does not exist.*say where it is now with --set data=PLACE"):
        Experiment.resume(tmp_path / "new" / "run", {"rounds": 3})


def test_margin_on_a_table_with_few_labels_beats_a_ridge_of_nearly_nothing(tmp_path):
    """Cross-validation chose nearly no ridge, and probabilities were far off: the worst loss was 1.2."""
    draw = np.random.default_rng(0)
    age, bmi, habit = draw.integers(20, 90, 600), draw.normal(26, 4, 600), draw.integers(0, 3, 600)
    ill = (age - 55) / 15 + (bmi - 26) / 4 + np.array([1.5, -0.5, -0.5])[habit] > 0
    rows = [
        f"case-{n},{age[n]},{bmi[n]:.1f},{('yes', 'no', 'former')[habit[n]]},{'ill' if ill[n] else 'healthy'}"
        for n in range(600)
    ]
    (tmp_path / "x.csv").write_text("id,age,bmi,smoker,label\n" + "\n".join(rows) + "\n")
    few = {"learner": "closed-form", "strategy": "margin", "rounds": 4, "initial_labels": 0.02}
    few |= {"behaviour": "AbCo", "budget": 10}
    last = [
        Experiment.begin(settings(tmp_path / "x.csv", seed=seed, **few), tmp_path / f"run{seed}").run()[-1]
        for seed in range(3)
    ]
    assert np.mean([line["test_accuracy"] for line in last]) > 0.9
    assert max(line["test_loss"] for line in last) < 0.5
