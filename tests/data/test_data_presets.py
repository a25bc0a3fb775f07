"""The presets say exactly what the paper's table says, and each runs for two rounds at a small scale."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import image_parquet, pixels

from chase import settings as settings_room
from chase.data.texts import LETTERS
from chase.run.experiment import Experiment

PAPER = ("mnist", "emnist", "cifar10", "cifar100", "shakespeare")
TABLE = {
    "clients": (10, 100, 10, 10, 100),
    "partition": ("classes", "classes", "classes", "dirichlet", "natural"),
    "initial_labels": (0.0133, 0.02, 0.04, 0.1, 0.04),
    "net": ("mnist-cnn", "emnist-cnn", "cifar-cnn", "vgg19", "char-lstm"),
    "lr": (1e-3, 1e-3, 1e-3, 1e-2, 1.47),
    "momentum": (0.5, 0.5, 0.5, 0.5, 0.0),
    "dropout": (0.5, 0.5, 0.5, 0.0, 0.2),
    "mu": (0.1, 0.1, 1.0, 1.0, 0.3),
    "normalisation": ("authors", "authors", "authors", "authors", "statistics"),
    "client_weights": ("labelled",) * 5,
    "align_on": ("logits",) * 5,
    "init": ("xavier",) * 5,
    "augment": (False, False, False, True, False),
}
ALL = {
    "rounds": 200,
    "local_epochs": 10,
    "batch_size": 10,
    "weight_decay": 0.0,
    "subset_size": 500,
    "beta": 0.4,
    "tau": 0.5,
    "initial_per_class": 0,
    "first_watch": 0,
    "test_limit": 0,
    "behaviour": "ReCo",
}
SMALL = {
    "rounds": 2,
    "local_epochs": 2,
    "first_watch": 8,
    "subset_size": 10,
    "behaviour": "AbCo",
    "engine": "inprocess",
}


@pytest.mark.parametrize(("name", "column"), [(name, n) for n, name in enumerate(PAPER)])
def test_presets_are_the_papers(name, column):
    chosen = settings_room.load(name)
    assert {key: getattr(chosen, key) for key in TABLE} == {key: values[column] for key, values in TABLE.items()}
    assert {key: getattr(chosen, key) for key in ALL} == ALL
    assert chosen.data == name


def test_what_only_one_partition_reads():
    chosen = {name: settings_room.load(name) for name in PAPER}
    assert [chosen[name].classes_per_client for name in ("mnist", "emnist", "cifar10")] == [2, 10, 5]
    assert chosen["cifar100"].alpha == 0.01
    assert chosen["shakespeare"].min_owned == 10_000
    digits = settings_room.load("digits")
    assert (digits.clients, digits.classes_per_client, digits.initial_labels, digits.mu) == (10, 2, 0.04, 0.1)


IMAGES = {
    "mnist": ((1, 28, 28), 10, "image", "label"),
    "emnist": ((1, 28, 28), 62, "image", "label"),
    "cifar10": ((3, 32, 32), 10, "img", "label"),
    "cifar100": ((3, 32, 32), 100, "img", "fine_label"),
}


def generate(name, place):
    """Files of the same layout and shape, two rows a class for testing and ``each`` for training."""
    if name == "shakespeare":
        draw = np.random.default_rng(0)
        letters = np.array(list(LETTERS))[draw.integers(1, 80, size=2000)]
        text = "".join(letters)
        rows = [(f"ROLE_{role}", text[at : at + 80], text[at + 80]) for role in range(3) for at in range(900)]
        roles, windows, following = zip(*rows, strict=True)
        table = pa.table({"character_id": pa.array(roles).dictionary_encode(), "x": windows, "y": following})
        (place / name).mkdir()
        pq.write_table(table, place / name / "train.parquet")
        return
    shape, classes, image, label = IMAGES[name]
    for part, each in (("train", 6 if classes > 60 else 24), ("test", 2)):
        labels = np.arange(classes * each) % classes
        images = pixels(labels.size, shape, labels, seed=each)
        names = [f"class {c}" for c in range(classes)]
        image_parquet(place / name / f"{part}.parquet", images, labels.tolist(), names, image, label)


def run_small(name, out, **changes):
    """Two rounds, checked."""
    chosen = settings_room.load(name, {**SMALL, **changes})
    metrics = Experiment.begin(chosen, out).run()
    assert [m["round"] for m in metrics] == [1, 2]
    assert metrics[-1]["labels"] > 0
    assert 0 <= metrics[-1]["test_accuracy"] <= 1
    assert np.isfinite(metrics[-1]["test_loss"])
    assert metrics[-1]["mean_ev"] is not None
    return metrics


@pytest.mark.parametrize("name", PAPER)
def test_two_rounds_on_generated_files(name, tmp_path):
    generate(name, tmp_path)
    small = {
        "emnist": {"clients": 5, "initial_labels": 0.1, "classes_per_client": 13},
        "cifar100": {"clients": 2, "initial_labels": 0.02, "alpha": 1.0, "test_limit": 20, "budget": 2},
        "shakespeare": {"clients": 2, "min_owned": 800, "initial_labels": 0.015, "test_limit": 20},
        "mnist": {"clients": 5, "initial_labels": 0.1},
        "cifar10": {"clients": 3, "initial_labels": 0.1},
    }[name]
    run_small(name, tmp_path / "run", data_dir=str(tmp_path), **small)


REAL = {
    "mnist": {"clients": 5, "initial_labels": 0.002, "test_limit": 1000},
    "emnist": {"clients": 10, "initial_labels": 0.002, "test_limit": 1000},
    "cifar10": {"clients": 4, "initial_labels": 0.002, "test_limit": 1000},
    "cifar100": {"clients": 2, "initial_labels": 0.002, "test_limit": 20, "alpha": 1.0, "budget": 2},
    "shakespeare": {"clients": 2, "initial_labels": 0.0005, "test_limit": 20},
}


@pytest.mark.parametrize("name", PAPER)
def test_two_rounds_on_real_files(name, tmp_path, real_data):
    run_small(name, tmp_path / "run", **REAL[name])
