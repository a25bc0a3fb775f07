"""Rounds on CIFAR-10: methods against each other, workers, the bare loop and the typical script."""

from __future__ import annotations

from typing import Any

from benchmarks import bare, typical
from benchmarks.common import cifar10, measure, median_phase, median_seconds
from chase.data.resident import DataSet

METHODS = ("random", "entropy", "ev", "chase")
PHASES = ("select", "teachers", "train", "track")


def measure_at(data: DataSet, labels: int, rounds: int, **changes: Any) -> list[dict[str, Any]]:
    """A CIFAR-10 run that starts with ``labels`` labels and evaluates once, at its end."""
    share = labels / len(data.train)
    return measure("cifar10", data, initial_labels=share, rounds=rounds, eval_every=rounds, **changes)


def methods_at(data: DataSet, labels: int, repeats: int, rounds: int) -> dict[str, Any]:
    """Seconds per round and by phase for each method, the methods taking turns."""
    runs: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for _ in range(repeats):
        for method in METHODS:
            runs[method] += measure_at(data, labels, rounds, strategy=method)
    table = {
        method: {"seconds": median_seconds(found), **{phase: median_phase(found, phase) for phase in PHASES}}
        for method, found in runs.items()
    }
    for row in table.values():
        row["against_random"] = row["seconds"] / table["random"]["seconds"]
    return table


def workers(data: DataSet, labels: int, repeats: int, rounds: int) -> dict[str, float]:
    """One worker process against two, the same clients, taking turns."""
    found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(repeats):
        for count, runs in found.items():
            runs += measure_at(data, labels, rounds, strategy="random", engine="workers", workers=count)
    one, two = median_seconds(found[1]), median_seconds(found[2])
    return {"one": one, "two": two, "ratio": one / two}


def overhead(data: DataSet, labels: int, rounds: int) -> dict[str, float]:
    """A whole round in one process, evaluation apart, against the bare steps before and after it."""
    before = bare.seconds_per_round(data, labels)
    fixed = {"behaviour": "free", "budget": 0}  # the labelled sets stay as they are
    ours = median_seconds(measure_at(data, labels, rounds, strategy="random", engine="inprocess", **fixed))
    loop = (before + bare.seconds_per_round(data, labels)) / 2
    return {"bare": loop, "chase": ours, "overhead": ours / loop - 1}


def against_typical(data: DataSet, labels: int, rounds: int) -> dict[str, float]:
    """A CHASe round against the typical script's; ours before and after it."""
    runs = measure_at(data, labels, rounds, strategy="chase")
    script = typical.seconds_per_round(data, labels)
    ours = median_seconds(runs + measure_at(data, labels, rounds, strategy="chase"))
    return {"script": script, "chase": ours, "ratio": script / ours}


def run(quick: bool) -> dict[str, Any]:
    """All of it."""
    data, name = cifar10()
    repeats, rounds = (1, 3) if quick else (2, 4)
    return {
        "data": name,
        "methods": {str(n): methods_at(data, n, repeats, rounds) for n in (2000, 6000)},
        "workers": workers(data, 6000, repeats, rounds),
        "overhead": overhead(data, 6000, rounds),
        "typical": against_typical(data, 2000, rounds),
    }
