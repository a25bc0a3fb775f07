"""chase data list, get, inspect; the coverage table of chase run; one sentence and code 2 for what is wrong."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from PIL import Image

from chase.cli import main


@pytest.fixture
def chase(monkeypatch, capsys):
    """Run the command line; returns exit code, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["chase", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return int(end.value.code or 0), shown.out, shown.err

    return run


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    lines = [f"this is {'good' if n % 2 else 'bad'} {n},{'yes' if n % 2 else 'no'},site {n % 3}" for n in range(60)]
    path.write_text("\n".join(["comment,verdict,place", *lines, "who knows,,site 1"]))
    return path


SETS = ("--set", "text_column=comment", "--set", "label_column=verdict", "--set", "site_column=place")


def test_list(chase, tmp_path):
    code, out, _ = chase("data", "list", "--json")
    assert code == 0
    names = [row["name"] for row in json.loads(out)]
    assert names == [
        "digits", "mnist", "fashion-mnist", "emnist", "femnist", "cifar10", "cifar100", "shakespeare",
    ]  # fmt: skip
    assert "hub: uoft-cs/cifar10, local copy: none" in chase("data", "list")[1]


def test_inspect(chase, reviews):
    code, out, _ = chase("data", "inspect", str(reviews), *SETS)
    assert code == 0
    assert "texts of up to 3200 bytes, 2 classes" in out
    assert "1 without a label" in out
    assert "site 2" in out
    found = json.loads(chase("data", "inspect", str(reviews), *SETS, "--json")[1])
    assert found["unlabeled"] == 1
    assert sum(sum(counts) for counts in found["classes"].values()) == 60


def test_inspect_shows_problems(chase, reviews):
    out = chase("data", "inspect", str(reviews), *SETS, "--set", "classes=no,yes,perhaps")[1]
    assert "warning: 1 class has no labelled training sample: perhaps" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("data", "inspect", "mnits"), "did you mean 'mnist'"),
        (("data", "inspect", "x.csv"), "x.csv does not exist"),
        (("data", "get", "nonsense"), "unknown data set 'nonsense'"),
        (("run", "digits", "--set", "alpha=0", "--set", "partition=dirichlet"), "alpha = 0 is invalid"),
        (("run", "digits", "--set", "classes_per_client=11"), "give at most 10"),
        (("run", "digits", "--set", "clients=1000", "--set", "partition=dirichlet"), "use fewer clients"),
        (("run", "digits", "--set", "partition=natural"), "has no owners"),
        (("run", "digits", "--set", "net=char-lstm"), "does not take images"),
        (("run", "digits", "--set", "net=mnist-cnn"), "does not take samples"),
        (("run", "digits", "--set", "init_weights=no.safetensors"), "no.safetensors does not exist"),
        (("data", "inspect", "digits", "--set", "channel_mean=x"), "numbers separated by commas"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(chase, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, _, err = chase(*words)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_own_texts_run_from_a_file_of_settings(chase, reviews, tmp_path):
    (tmp_path / "reviews.toml").write_text(
        f"""data = {json.dumps(str(reviews))}
text_column = "comment"
label_column = "verdict"
site_column = "place"
partition = "natural"
clients = 3
unlabeled = "leave-out"
net = "text-bag"
lr = 0.5
initial_labels = 0.3
rounds = 3
local_epochs = 4
engine = "inprocess"
"""
    )
    code, out, err = chase("run", str(tmp_path / "reviews.toml"), "--out", str(tmp_path / "run"))
    assert (code, err) == (0, "")
    assert "site 0" in out
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["test_accuracy"] > 0.7
    code, _, _ = chase("resume", str(tmp_path / "run"), "--set", "rounds=4")
    assert code == 0
    reviews.write_text(reviews.read_text() + "\none more,yes,site 2")
    code, _, err = chase("resume", str(tmp_path / "run"), "--set", "rounds=5")
    assert code == 2
    assert "is not what it was when" in err


def test_augmenting_texts_is_refused(chase, reviews, tmp_path):
    (tmp_path / "t.toml").write_text(
        f'data = {json.dumps(str(reviews))}\nnet = "text-bag"\naugment = true\nclients = 2\n'
    )
    code, _, err = chase("run", str(tmp_path / "t.toml"), *SETS, "--set", "classes_per_client=2")
    assert code == 2
    assert "crops and flips are for images" in err


def test_inspect_lists_every_picture_that_cannot_be_read(chase, tmp_path):
    for name, level in (("a", 40), ("b", 200)):
        (tmp_path / "x" / name).mkdir(parents=True)
        for n in range(4):
            Image.fromarray(np.full((8, 8), level + n, dtype=np.uint8)).save(tmp_path / "x" / name / f"{n}.png")
    for bad in ("a/broken.png", "b/broken.png"):
        (tmp_path / "x" / bad).write_text("no picture")
    code, out, _ = chase("data", "inspect", str(tmp_path / "x"))
    assert code == 0
    for bad in ("a/broken.png", "b/broken.png"):
        assert f"warning: cannot read image {bad}: it is not an image (skipped)" in out
    assert "warning: a run refuses unreadable pictures: repair or remove them, or set bad_images=skip" in out
    assert "a run refuses" not in chase("data", "inspect", str(tmp_path / "x"), "--set", "bad_images=skip")[1]
    assert chase("data", "inspect", str(tmp_path / "x"), "--set", "bad_images=fail")[0] == 2
