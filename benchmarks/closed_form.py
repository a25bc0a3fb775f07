"""The closed-form learner: accuracy over labels on whole data sets, and a round against one of the network learner.

    python -m benchmarks.closed_form curves [--seeds 3] [--out FILE]    MNIST and CIFAR-10, random and chosen labels
    python -m benchmarks.closed_form round                              CIFAR-10, 10 clients, 2,000 labels

Both need CHASE_DATA. Curves use all training samples as the clients' pools and all test samples; clients have the
classes that the presets give them (two of MNIST, five of CIFAR-10) and buy the same number of labels per round.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.common import cifar10, measure, median_phase, median_seconds
from chase.data import sources
from chase.data.resident import DataSet

CURVES: tuple[tuple[str, dict[str, Any], tuple[int, ...]], ...] = (
    ("mnist", {"strategy": "random", "budget": 4, "rounds": 16}, (40, 120, 240, 640)),
    ("mnist", {"strategy": "margin", "budget": 4, "rounds": 16}, (40, 120, 240, 440, 640)),
    ("mnist", {"strategy": "balanced-margin", "budget": 4, "rounds": 16}, (40, 120, 240, 440, 640)),
    ("cifar10", {"strategy": "random", "budget": 20, "rounds": 6}, (200, 400, 600)),
    ("cifar10", {"strategy": "random", "budget": 50, "rounds": 9}, (200, 700, 1200, 2200, 4200)),
    ("cifar10", {"strategy": "balanced-margin", "budget": 20, "rounds": 3}, (200, 400, 600)),
    ("cifar10", {"strategy": "random", "budget": 50, "rounds": 1, "filters": 800}, (4140,)),
)
"""Preset, settings, and the numbers of labels at which the accuracy is shown; the first is what clients start with."""


def curve(data: DataSet, preset: str, changes: dict[str, Any], marks: tuple[int, ...], seed: int) -> dict[int, float]:
    """Test accuracy in per cent by number of labels."""
    share = marks[0] / len(data.train)
    run = measure(
        preset, data, learner="closed-form", behaviour="AbCo", initial_labels=share, eval_every=1, seed=seed, **changes
    )
    found = {m["pools"]["labeled"]: 100 * m["test_accuracy"] for m in run}
    return {mark: found[min(found, key=lambda labels: abs(labels - mark))] for mark in marks}


def curves(seeds: int) -> list[dict[str, Any]]:
    """All curves, one seed after the other, so that the features of a seed serve all of its runs."""
    data = {name: sources.load(name) for name in dict.fromkeys(preset for preset, _, _ in CURVES)}
    rows: list[dict[str, Any]] = [{"data": preset, **changes, "accuracy": {}} for preset, changes, _ in CURVES]
    for seed in range(seeds):
        for row, (preset, changes, marks) in zip(rows, CURVES, strict=True):
            for mark, value in curve(data[preset], preset, changes, marks, seed).items():
                row["accuracy"].setdefault(mark, []).append(round(value, 2))
            print(json.dumps({"seed": seed, **row}), flush=True)
    return rows


def one_round(labels: int = 2000, rounds: int = 5, repeats: int = 3) -> dict[str, Any]:
    """Median seconds of a round once features are cached: closed-form and network learner taking turns."""
    data, name = cifar10()
    arms = {
        "network, random": {"strategy": "random"},
        "closed-form, random": {"learner": "closed-form", "strategy": "random"},
        "closed-form, balanced-margin": {"learner": "closed-form", "strategy": "balanced-margin"},
    }
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    common = {"initial_labels": labels / len(data.train), "rounds": rounds, "eval_every": rounds}
    for _ in range(repeats):
        for arm, changes in arms.items():
            runs[arm] += measure("cifar10", data, **common, **changes)
    found: dict[str, Any] = {"data": name, "labels": labels}
    for arm, metrics in runs.items():
        phases = {phase: median_phase(metrics, phase) for phase in metrics[-1]["seconds_by_phase"]}
        found[arm] = {"seconds": median_seconds(metrics), **phases}
    found["ratio"] = found["closed-form, balanced-margin"]["seconds"] / found["network, random"]["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("curves", "round"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: Any = curves(given.seeds) if given.what == "curves" else one_round()
    if given.out:
        given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if given.what == "round":
        print(json.dumps(found, indent=1))
        return
    for row in found:
        cells = "  ".join(f"{mark}: {statistics.mean(values):.1f}" for mark, values in row["accuracy"].items())
        print(f"{row['data']}, {row['strategy']}, {row.get('filters', 200)} filters: {cells}")


if __name__ == "__main__":
    main()
