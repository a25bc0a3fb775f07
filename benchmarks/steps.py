"""Steps and passes by the compiled kernel, the fused steps and autograd, in processor time.

``python -m benchmarks.steps``: one turn of five epochs on 600 random images, batches of ten, for each labelled loss
that has a fused form; then passes over 2,000 images. All kinds alternate in one process, so a busy machine slows all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import generated
from chase.data.resident import Samples
from chase.learning.inference import features, logits
from chase.learning.loss_prediction import WithLossPrediction, new_predictor, predict, tapped, with_taps
from chase.learning.training import TrainingOptions, TrainingTask, train
from chase.models.catalog import NetSpec, build
from chase.models.net import Net

SHAPES = {"mnist-cnn": (1, 28, 28), "cifar-cnn": (3, 32, 32)}
LABELED, EPOCHS, POOL, REPEATS = 600, 5, 2000, 3
KINDS = ("compiled", "fused", "plain")


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def turn(net: Net, samples: Samples, ranked: bool) -> float:
    """Milliseconds a step of ten."""
    rows = torch.arange(LABELED)
    job = TrainingTask(samples, rows, rows % 10, rows[:0], None, False, 0, ("bench",))
    plan = TrainingOptions(EPOCHS, 10, 0.01, 0.5, 0.0, 0.0)
    with tapped(net) as seen:
        predictor = new_predictor(net, samples.inputs.shape[1:], 0)
        loss = WithLossPrediction(predictor, net.taps, seen) if ranked else None
        return seconds(lambda: train(net, job, plan, loss)) / (EPOCHS * LABELED / 10) * 1e3


def passes(net: Net, samples: Samples) -> dict[str, float]:
    """Microseconds a sample of each kind of pass."""
    rows = torch.arange(POOL)
    predictor = new_predictor(net, samples.inputs.shape[1:], 0)
    kinds: dict[str, Callable[[], object]] = {
        "logits, us a sample": lambda: logits(net, samples, rows),
        "features, us a sample": lambda: features(net, samples, rows),
        "predicted losses, us a sample": lambda: predict(net, predictor, samples, rows),
    }
    return {name: seconds(work) / POOL * 1e6 for name, work in kinds.items()}


def measure(name: str) -> dict[str, dict[str, float]]:
    """What -> the median of each kind over the repeats."""
    samples = generated(name, POOL, SHAPES[name]).train
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(REPEATS):
        for kind in KINDS:
            net = with_taps(build(NetSpec(name, SHAPES[name], 10, 0.5), 0))
            net.kernels = kind
            figures = {
                "step, ms": turn(net, samples, False),
                "step with loss prediction, ms": turn(net, samples, True),
                **passes(net, samples),
            }
            for what, value in figures.items():
                found.setdefault(what, {}).setdefault(kind, []).append(value)
    return {what: {kind: median(values) for kind, values in row.items()} for what, row in found.items()}


def main() -> None:
    """Measure and show."""
    torch.set_num_threads(1)
    table = Table(title="processor time on one core", title_justify="left")
    for column in ("network", "what", *KINDS, "fused", "plain"):
        table.add_column(column, justify="left" if column in ("network", "what") else "right")
    for name in SHAPES:
        for what, row in measure(name).items():
            times = [row[kind] / row["compiled"] for kind in ("fused", "plain")]
            table.add_row(name, what, *(f"{row[kind]:.2f}" for kind in KINDS), *(f"{t:.1f} x" for t in times))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
