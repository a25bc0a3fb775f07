"""What the benchmarks share: data, one measured run, and reading the clock of its rounds."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chase.data import sources
from chase.data.resident import DataSet, Samples
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.settings import load


def generated(name: str, count: int, shape: tuple[int, ...], test: int = 1000, classes: int = 10) -> DataSet:
    """Random pixels of a given shape: as dear to train on as real ones."""
    draw = np.random.default_rng(0)
    channels = shape[0]

    def samples(n: int) -> Samples:
        pixels = draw.integers(0, 256, (n, *shape), dtype=np.uint8)
        return Samples(torch.from_numpy(pixels), mean=(0.5,) * channels, std=(0.25,) * channels)

    labels = np.arange(count) % classes
    test_labels = np.arange(test) % classes
    names = tuple(str(c) for c in range(classes))
    return DataSet(name, samples(count), labels.astype(np.int64), samples(test), test_labels.astype(np.int64), names)


def cifar10() -> tuple[DataSet, str]:
    """CIFAR-10 where CHASE_DATA has it, else generated images of its shape and number."""
    if os.environ.get("CHASE_DATA"):
        return sources.load("cifar10"), "CIFAR-10"
    return generated("cifar10", 50_000, (3, 32, 32), test=10_000), "generated images of CIFAR-10's shape and number"


def measure(preset: str, data: DataSet, **changes: Any) -> list[dict[str, Any]]:
    """The metrics of a real run in a directory that is thrown away."""
    settings = load(preset, changes)
    with tempfile.TemporaryDirectory(prefix="chase-bench-") as place:
        return Experiment(Record.create(Path(place) / "run", settings), data, []).run()


def settled(metrics: list[dict[str, Any]], first: int = 2) -> list[dict[str, Any]]:
    """The rounds from ``first`` on: the first turn watches everything and is not typical."""
    return [m for m in metrics if m["round"] >= first]


def median_seconds(metrics: list[dict[str, Any]]) -> float:
    """Seconds of a typical round, evaluation apart."""
    return statistics.median(m["seconds"] - m["seconds_by_phase"]["evaluate"] for m in settled(metrics))


def median_phase(metrics: list[dict[str, Any]], phase: str) -> float:
    """Seconds of a phase in a typical round, added up over the clients."""
    return statistics.median(m["seconds_by_phase"].get(phase, 0.0) for m in settled(metrics))
