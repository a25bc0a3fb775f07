"""The paper's own figures, to print beside ours: those that it gives as numbers."""

from __future__ import annotations

from collections.abc import Mapping

ROUNDS = (50, 75, 100, 125, 150, 175, 200)

_TABLES = """
mnist     | FedRandom      | 75.0 78.7 80.6 82.5 83.6 85.6 86.5
mnist     | EV             | 78.9 82.2 83.8 85.0 86.5 87.6 87.8
mnist     | CHASe          | 79.6 82.2 84.0 86.6 86.9 87.7 88.3
mnist     | w/o S          | 78.4 83.9 85.3 86.1 86.8 86.9 87.7
mnist     | w/o FAm        | 78.3 82.2 85.4 86.7 87.1 87.5 88.2
mnist     | isolated       | 31.5 32.3 33.0 34.0 35.0 35.0 35.0
emnist    | FedRandom      | 66.8 69.7 71.8 73.3 74.7 75.7 76.5
emnist    | EV             | 67.7 71.0 73.3 74.7 76.0 76.7 77.4
emnist    | CHASe          | 67.7 71.1 73.1 74.8 76.0 76.7 77.7
cifar10   | FedRandom      | 39.2 40.7 41.6 42.3 43.1 43.7 43.9
cifar10   | FedEntropy     | 38.0 38.7 40.0 41.0 42.0 42.5 42.8
cifar10   | FAL(Entropy)   | 39.0 40.1 41.0 41.8 43.1 43.4 43.8
cifar10   | FedCoreset     | 38.6 39.7 40.6 41.3 42.4 42.6 43.0
cifar10   | FAL(Coreset)   | 38.3 39.3 40.2 40.9 41.8 42.3 42.4
cifar10   | FedLL4AL       | 39.0 40.2 41.2 41.5 42.7 43.3 43.4
cifar10   | FAL(LL4AL)     | 39.2 40.3 41.2 41.9 42.8 43.1 43.4
cifar10   | EV             | 39.8 41.3 42.6 43.6 43.7 44.8 44.8
cifar10   | EV + GEV       | 39.7 41.9 42.9 43.3 44.3 44.4 44.8
cifar10   | CHASe          | 40.0 42.3 42.9 43.5 44.1 44.8 45.2
cifar10   | w/o S          | 40.5 42.4 43.6 44.2 44.3 45.0 45.2
cifar10   | w/o FAm        | 40.0 41.8 42.7 43.5 44.2 45.0 45.1
cifar10   | isolated       | 26.6 28.3 29.4 29.4 30.0 30.5 31.0
cifar100  | FedRandom      | 20.7 23.6 25.1 26.6 27.4 28.2 29.0
cifar100  | EV             | 21.1 23.8 25.6 26.9 28.1 29.0 30.0
cifar100  | EV (gev table) | 21.4 24.1 26.1 27.1 28.2 29.2 30.0
cifar100  | EV + GEV       | 21.3 24.0 26.0 27.2 28.1 29.2 29.9
cifar100  | CHASe          | 20.6 24.2 26.0 27.6 28.8 29.7 29.9
"""
"""Test accuracy in percent at ROUNDS, ReCo, non-IID, mean of three seeds."""


def _parse(text: str) -> dict[tuple[str, str], tuple[float, ...]]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return {(data, name): tuple(float(value) for value in values.split()) for data, name, values in rows}


ACCURACY: Mapping[tuple[str, str], tuple[float, ...]] = _parse(_TABLES)

MINUTES: Mapping[str, float] = {
    "FedRandom": 0.63,
    "FedEntropy": 1.0,
    "FAL(Entropy)": 1.16,
    "FedCoreset": 0.66,
    "FAL(Coreset)": 0.67,
    "FedLL4AL": 1.08,
    "FAL(LL4AL)": 0.99,
    "EV": 0.99,
    "CHASe": 2.0,
}
"""Minutes per round on CIFAR-10 with ReCo, on the GPU of the paper's authors."""

SAME_AS = {
    ("mnist", "mu = 0"): "EV",
    ("mnist", "mu = 0.1"): "CHASe",
    ("cifar10", "mu = 0"): "EV",
    ("cifar10", "mu = 1"): "CHASe",
}
"""Rows that the paper has under another name: CHASe without its loss is EV, and each data set has one mu."""

NUMBER_CLASS_MINUS_EV: Mapping[str, Mapping[int, float]] = {"cifar10": {125: -0.2, 150: 0.0, 175: 0.2, 200: -0.1}}
"""Accuracy of number-class minus that of EV in points, by data set and round."""

NOT_COMPARABLE = {("mnist", "isolated"): "above what two classes per client allow on the full test set (20 %)"}
"""Figures of the paper that cannot be set against ours, and why."""

LESS_DATA = {
    "emnist": "the paper used all of EMNIST byclass",
    "cifar100": "the paper used all of CIFAR-100",
}
"""Data sets of which a local copy may hold less than the paper used."""


def accuracy(data: str, name: str) -> dict[int, float]:
    """The paper's accuracies of a row by round; empty where it has none."""
    name = SAME_AS.get((data, name), name)
    row = ACCURACY.get((data, name)) or ACCURACY.get((data, name.partition(" (")[0]))
    return dict(zip(ROUNDS, row, strict=True)) if row else {}
