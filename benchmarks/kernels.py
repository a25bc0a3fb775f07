"""Whole rounds by the compiled kernel and by the fused steps: ``python -m benchmarks.kernels [--out FILE]``.

Random, EV and CHASe on MNIST and CIFAR-10 (real where CHASE_DATA has them, else generated), ReCo, ten clients, in one
process. Both kernels take turns; processor seconds of the first round and of a typical later one, evaluation apart.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import cifar10, generated, measure
from chase.data import sources
from chase.data.resident import DataSet

KERNELS = ("compiled", "fused")
METHODS = ("random", "ev", "chase")
ROUNDS, REPEATS = 4, 2


def mnist() -> DataSet:
    """MNIST, or images of its shape and number."""
    if os.environ.get("CHASE_DATA"):
        return sources.load("mnist")
    return generated("mnist", 60_000, (1, 28, 28), test=10_000)


def processor(metrics: list[dict[str, Any]], first: bool) -> float:
    """Processor seconds of the first round, or of a typical one after it."""
    found = [m["seconds_processor"] for m in metrics if (m["round"] == 1) == first]
    return float(median(found))


def run() -> list[dict[str, Any]]:
    """A row for each data set and method."""
    torch.set_num_threads(1)
    rows = []
    for preset, data, labels in (("mnist", mnist(), 1200), ("cifar10", cifar10()[0], 2000)):
        for method in METHODS:
            runs: dict[str, list[list[dict[str, Any]]]] = {kernel: [] for kernel in KERNELS}
            for _ in range(REPEATS):
                for kernel in KERNELS:
                    changes = {"strategy": method, "kernels": kernel, "engine": "inprocess", "behaviour": "ReCo"}
                    share = labels / len(data.train)
                    runs[kernel].append(
                        measure(preset, data, rounds=ROUNDS, eval_every=ROUNDS, initial_labels=share, **changes)
                    )
            row: dict[str, Any] = {"data": preset, "labels": labels, "method": method}
            for kernel, found in runs.items():
                row[f"{kernel}_first"] = median(processor(metrics, True) for metrics in found)
                row[kernel] = median(processor(metrics, False) for metrics in found)
            rows.append(row)
    return rows


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = run()
    table = Table(title="processor seconds per round, ten clients, one process", title_justify="left")
    for column in ("data", "labels", "method", "compiled", "fused", "times", "first: compiled", "fused", "times"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = [f"{row[k]:.2f}" for k in KERNELS] + [f"{row['fused'] / row['compiled']:.2f}"]
        cells += [f"{row[f'{k}_first']:.2f}" for k in KERNELS]
        cells += [f"{row['fused_first'] / row['compiled_first']:.2f}"]
        table.add_row(row["data"], str(row["labels"]), row["method"], *cells)
    Console(highlight=False).print(table)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
