"""What is odd about a data set as a whole, for ``chase data inspect`` and for the start of a run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chase.core.randomness import rng
from chase.data.assemble import sample_keys
from chase.data.resident import DataSet

MISSING_WORDS = frozenset({"nan", "na", "n/a", "null", "none", "?", "unknown"})
NO_TEST = (
    "there are no labelled samples to test on, so the accuracy of a model cannot be measured: give test_data, or have "
    "people label some samples for it (--annotator page --page-client all --set test_answers=50)"
)
LEAST, MOST, BINS = 40, 5_000, 16
"""Labelled pictures whose brightness is looked at, at least and at most, and the levels that are told apart."""
UNEVEN = 20
"""A class with this many times the samples of another is worth a word."""


def oddities(data: DataSet, people: bool = False) -> list[str]:
    """One sentence per oddity; ``people`` label what has no label."""
    return [*_classes(data), *_twins(data), *_without_label(data, people), *_brightness(data)]


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
            f"'{data.classes[least]}'; set main_metric=balanced-accuracy to count every class the same (with "
            "learner=network, class_weights=balanced trains so too)"
        )
    return found


def _without_label(data: DataSet, people: bool) -> list[str]:
    unknown, total = int((data.train_labels < 0).sum()), data.train_labels.size
    if not unknown:
        return []
    untested = [] if data.test_labels.size else [NO_TEST]
    who = "" if people else ": a simulated annotator cannot label them, a person can (--annotator page)"
    return [*untested, f"{unknown} of {total} training samples ({unknown / total:.0%}) have no label{who}"]


def _brightness(data: DataSet) -> list[str]:
    """Classes that the mean of all pixels tells apart: half of the labelled pictures judge the other half."""
    rows = np.flatnonzero(data.train_labels >= 0)
    rows = rows[:: max(1, rows.size // MOST)]
    if data.train.kind != "image" or rows.size < LEAST or data.num_classes < 2:
        return []
    means = np.array([data.train.inputs[int(row)].double().mean().item() for row in rows])
    labels = data.train_labels[rows]
    bins = np.searchsorted(np.quantile(means, np.arange(1, BINS) / BINS), means)
    half = rng(0, "brightness").random(rows.size) < 0.5
    counts = np.zeros((BINS, data.num_classes))
    np.add.at(counts, (bins[half], labels[half]), 1.0)
    right = float((counts.argmax(axis=1)[bins[~half]] == labels[~half]).mean())
    most = float(np.bincount(labels).max()) / rows.size
    if 1.0 - right > (1.0 - most) / 5:
        return []
    return [
        f"the mean brightness of a picture alone tells the class of {right:.0%} of the labelled samples (the most "
        f"frequent class: {most:.0%}): check that the classes do not only differ in how pictures were taken; the "
        "closed-form learner makes little use of brightness: try levels=0.2 where its accuracy stays low"
    ]


def _twins(data: DataSet) -> list[str]:
    """Equal samples within the training part, and equal samples of either part whose labels differ."""
    keys = sample_keys(data.train.inputs.numpy(), data.train_texts)
    tested = sample_keys(data.test.inputs.numpy(), data.test_texts)
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    found = []
    if same.any():
        at = int(np.flatnonzero(same)[0])
        pair = f"{data.name_of(int(order[at]))} and {data.name_of(int(order[at + 1]))}"
        count = int(same.sum())
        equal = "1 training sample equals" if count == 1 else f"{count} training samples equal"
        found.append(f"{equal} an earlier one (first: {pair})")
    return found + _contradictions(data, np.concatenate([keys, tested]))


def _contradictions(data: DataSet, keys: NDArray[np.uint64]) -> list[str]:
    """Equal samples with different labels; ``keys`` are those of the training part, then of the test part."""
    labels = np.concatenate([data.train_labels, data.test_labels])
    rows = np.flatnonzero(labels >= 0)
    rows = rows[np.lexsort((rows, labels[rows], keys[rows]))]
    apart = (keys[rows][1:] == keys[rows][:-1]) & (labels[rows][1:] != labels[rows][:-1])
    if not apart.any():
        return []
    at = int(np.flatnonzero(apart)[0])
    said = [f"{_name(data, int(row))} ('{data.classes[labels[row]]}')" for row in rows[at : at + 2]]
    groups = np.unique(keys[rows][1:][apart]).size
    return [
        f"{groups} {'sample occurs' if groups == 1 else 'samples occur'} more than once with different labels (first: "
        f"{said[0]} and {said[1]})"
    ]


def _name(data: DataSet, row: int) -> str:
    """The user's name of a row, counted through the training part and then the test part."""
    if row < data.train_labels.size:
        return data.name_of(row)
    row -= data.train_labels.size
    return f"test sample {row if data.test_names is None else data.test_names[row]}"
