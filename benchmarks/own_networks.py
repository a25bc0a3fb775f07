"""Own networks by hand-written steps against autograd, in processor time: ``python -m benchmarks.own_networks``.

One turn of steps of ten for networks as users write them; both kinds take turns in one process, so a busy machine slows
both. The ratio is the median over pairs. Arguments: how many pairs, then ``fused`` for the steps without the compiled
kernel.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.common import generated
from benchmarks.steps import seconds
from chase.data.resident import Samples
from chase.learning.native.choice import Wanted
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


class NamesWidth(nn.Module):
    """For 28x28 grey images: the first LeNet's sizes, one pooling layer for both, and ``view`` that names the width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.pool = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(nn.functional.relu(self.conv1(x)))
        x = self.pool(nn.functional.relu(self.conv2(x))).view(-1, 400)
        out: Tensor = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))
        return out


def pooled(channels: int, out: int, kernel: int, pad: int, *dropout: nn.Module) -> list[nn.Module]:
    """A convolution with ReLU and pooling."""
    return [nn.Conv2d(channels, out, kernel, padding=pad), *dropout, nn.ReLU(), nn.MaxPool2d(2)]


def two_blocks(first: list[nn.Module], second: list[nn.Module], *widths: int, dropout: bool = False) -> nn.Module:
    """Two pooled convolutions, then linear layers."""
    linears = [nn.Linear(a, b) for a, b in pairwise((*widths, 10))]
    drop = [nn.Dropout()] if dropout else []
    hidden = [part for layer in linears[:-1] for part in (layer, nn.ReLU(), *drop)]
    return nn.Sequential(*first, *second, nn.Flatten(), *hidden, linears[-1])


def perceptron(*start: nn.Module, width: int = 64) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(*start, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def vectors(width: int) -> Samples:
    """Rows of numbers."""
    numbers = torch.randn(LABELED, width, generator=torch.Generator().manual_seed(0))
    return Samples(numbers, "vectors", (0.0,) * width, (1.0,) * width)


def networks() -> dict[str, tuple[nn.Module, Samples]]:
    """By name, with samples that fit."""
    grey = generated("own", LABELED, (1, 28, 28), 1).train
    found = {
        "LeNet, 28x28": (LeNet(), grey),
        "3x3 convolutions, 32x32": (small_convnet(), generated("own", LABELED, (3, 32, 32), 1).train),
        "LeNet, padded, view(-1, 400)": (NamesWidth(), grey),
        "3x3 without padding, 28x28": (two_blocks(pooled(1, 16, 3, 0), pooled(16, 32, 3, 0), 800, 64), grey),
        "5x5, then 3x3, 28x28": (two_blocks(pooled(1, 16, 5, 2), pooled(16, 32, 3, 1), 1568, 64), grey),
        "one linear layer, 28x28": (two_blocks(pooled(1, 16, 5, 2), pooled(16, 32, 5, 2), 1568), grey),
        "dropout of channels, 28x28": (
            two_blocks(pooled(1, 10, 5, 0), pooled(10, 20, 5, 0, nn.Dropout2d()), 320, 50, dropout=True),
            grey,
        ),
        "32 and 64 channels, 28x28": (two_blocks(pooled(1, 32, 5, 2), pooled(32, 64, 5, 2), 3136, 512), grey),
        "perceptron, 30 columns": (perceptron(nn.Linear(30, 64)), vectors(30)),
        "perceptron, 28x28": (perceptron(nn.Flatten(), nn.Linear(784, 200), width=200), grey),
    }
    for net, samples in found.values():
        setattr(net, SAMPLE_SHAPE, samples.shape)
    return found


def step_ms(net: nn.Module, samples: Samples, kernels: Wanted) -> float:
    """Processor milliseconds of a step of ten."""
    net.kernels = kernels  # type: ignore[assignment]
    rows = torch.arange(LABELED)
    job = TrainingTask(samples, rows, rows % 10, rows[:0], None, False, 0, ("bench",))
    plan = TrainingOptions(EPOCHS, 10, 0.01, 0.5, 0.0, 0.0)
    return seconds(lambda: train(net, job, plan)) / (EPOCHS * LABELED / 10) * 1e3


def run(repeats: int = 9, by_hand: Wanted = "auto") -> dict[str, dict[str, float]]:
    """Steps of both kinds and how many times as fast the hand-written one is."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {}
    for name, (net, samples) in networks().items():
        step_ms(net, samples, by_hand), step_ms(net, samples, "plain")
        pairs = [(step_ms(net, samples, by_hand), step_ms(net, samples, "plain")) for _ in range(repeats)]
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
    by_hand: Wanted = "fused" if sys.argv[2:] == ["fused"] else "auto"
    for name, row in run(int(sys.argv[1]) if sys.argv[1:] else 9, by_hand).items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("fused_ms", "autograd_ms", "ratio")))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
