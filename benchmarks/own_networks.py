"""Own networks by hand-written steps against autograd, in processor time: ``python -m benchmarks.own_networks``.

One turn of steps of ten for networks as users write them; both kinds take turns in one process, so a busy machine slows
both. The ratio is the median over pairs.
"""

from __future__ import annotations

import sys
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.common import generated
from benchmarks.steps import seconds
from chase.data.resident import Samples
from chase.learning.training import TrainingOptions, TrainingTask, train
from chase.models.catalog import SAMPLE_SHAPE

LABELED, EPOCHS = 100, 4


class LeNet(nn.Module):
    """For 28x28 grey images, as in many tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        out: Tensor = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))
        return out


def small_convnet() -> nn.Module:
    """3x3 convolutions with padding for 32x32 colour images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def perceptron(*start: nn.Module, width: int = 64) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(*start, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def vectors(width: int) -> Samples:
    """Rows of numbers."""
    numbers = torch.randn(LABELED, width, generator=torch.Generator().manual_seed(0))
    return Samples(numbers, "vectors", (0.0,) * width, (1.0,) * width)


def networks() -> dict[str, tuple[nn.Module, Samples]]:
    """By name, with samples that fit."""
    found = {
        "LeNet, 28x28": (LeNet(), generated("own", LABELED, (1, 28, 28), 1).train),
        "3x3 convolutions, 32x32": (small_convnet(), generated("own", LABELED, (3, 32, 32), 1).train),
        "perceptron, 30 columns": (perceptron(nn.Linear(30, 64)), vectors(30)),
        "perceptron, 28x28": (
            perceptron(nn.Flatten(), nn.Linear(784, 200), width=200),
            generated("own", LABELED, (1, 28, 28), 1).train,
        ),
    }
    for net, samples in found.values():
        setattr(net, SAMPLE_SHAPE, samples.shape)
    return found


def step_ms(net: nn.Module, samples: Samples, plain: bool) -> float:
    """Processor milliseconds of a step of ten."""
    net.kernels = "plain" if plain else "auto"  # type: ignore[assignment]
    rows = torch.arange(LABELED)
    job = TrainingTask(samples, rows, rows % 10, rows[:0], None, False, 0, ("bench",))
    plan = TrainingOptions(EPOCHS, 10, 0.01, 0.5, 0.0, 0.0)
    return seconds(lambda: train(net, job, plan)) / (EPOCHS * LABELED / 10) * 1e3


def run(repeats: int = 9) -> dict[str, dict[str, float]]:
    """Steps of both kinds and how many times as fast the hand-written one is."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {}
    for name, (net, samples) in networks().items():
        step_ms(net, samples, False), step_ms(net, samples, True)
        pairs = [(step_ms(net, samples, False), step_ms(net, samples, True)) for _ in range(repeats)]
        found[name] = {
            "fused_ms": median(c for c, _ in pairs),
            "autograd_ms": median(p for _, p in pairs),
            "ratio": median(p / c for c, p in pairs),
        }
    return found


def main() -> None:
    """Measure and show."""
    table = Table(title="processor time of a step of ten on one core", title_justify="left")
    for column in ("network", "by hand, ms", "autograd, ms", "ratio"):
        table.add_column(column)
    for name, row in run(int(sys.argv[1]) if sys.argv[1:] else 9).items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("fused_ms", "autograd_ms", "ratio")))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
