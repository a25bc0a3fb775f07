"""What is odd about a data set as a whole, for ``chase data inspect`` and for the start of a run."""

from __future__ import annotations

import numpy as np

from chase.data.assemble import row_keys
from chase.data.resident import DataSet

MISSING_WORDS = frozenset({"nan", "na", "n/a", "null", "none", "?", "unknown"})
UNEVEN = 20
"""A class with this many times the samples of another is worth a word."""


def findings(data: DataSet) -> list[str]:
    """One sentence per oddity."""
    return [*_classes(data), *_twins(data)]


def _classes(data: DataSet) -> list[str]:
    found = []
    if data.num_classes == 1:
        found.append(f"there is one class only ('{data.classes[0]}'): nothing can be learnt from it")
    odd = [name for name in data.classes if name.strip().lower() in MISSING_WORDS]
    if odd:
        found.append(
            f"{'a class is' if len(odd) == 1 else 'classes are'} called {', '.join(odd)}: where that means "
            "that there is no label, leave the cell empty"
        )
    counts = np.bincount(data.train_labels[data.train_labels >= 0], minlength=data.num_classes)
    if data.num_classes > 1 and counts.max() >= UNEVEN * max(1, counts.min()):
        most, least = int(counts.argmax()), int(counts.argmin())
        found.append(
            f"classes are very uneven: {counts[most]} training samples of '{data.classes[most]}', {counts[least]} of "
            f"'{data.classes[least]}'; see class_weights and main_metric=balanced-accuracy"
        )
    return found


def _twins(data: DataSet) -> list[str]:
    """Equal samples within the training part, and those of them whose labels differ."""
    keys = row_keys(data.train.inputs.numpy())
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    if not same.any():
        return []
    first, second = order[:-1][same], order[1:][same]
    found = [f"{first.size} training samples equal an earlier one (first: {_pair(data, first[0], second[0])})"]
    labels = data.train_labels
    apart = (labels[first] >= 0) & (labels[second] >= 0) & (labels[first] != labels[second])
    if apart.any():
        one, other = first[apart][0], second[apart][0]
        said = f"'{data.classes[labels[one]]}' and '{data.classes[labels[other]]}'"
        found.append(
            f"{int(apart.sum())} equal training samples have different labels "
            f"(first: {_pair(data, one, other)}, labelled {said})"
        )
    return found


def _pair(data: DataSet, one: np.int64, other: np.int64) -> str:
    return f"{data.name_of(int(one))} and {data.name_of(int(other))}"
