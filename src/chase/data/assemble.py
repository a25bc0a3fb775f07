"""From what a file or folder holds to a data set: agreed classes, a test part, normalisation, problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.data.decoded import DataPart, Decoded, Inputs, Labels
from chase.data.images import channel_statistics
from chase.data.pictures import BYTE, Scale
from chase.data.resident import Kind


@dataclass(frozen=True)
class Raw:
    """One part as it was read: labels and owners are still text."""

    kind: Kind
    inputs: Inputs
    labels: Sequence[str | None]
    """None or empty where nobody knows."""
    owners: Sequence[str] | None = None
    problems: tuple[str, ...] = ()
    vocabulary: int = 0
    scale: Scale = BYTE


def agree_classes(labels: Sequence[str | None], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The class list: the one given, else all labels found, in order (numbers by value)."""
    if wanted:
        if len(set(wanted)) != len(wanted):
            raise DataError(f"the class list names a class twice: {', '.join(wanted)}")
        return wanted
    found = {label for label in labels if label}
    if not found:
        raise DataError("no sample has a label, so the classes are unknown: give them with the setting `classes`")
    whole = all(label.lstrip("-").isdecimal() for label in found)
    return tuple(sorted(found, key=int) if whole else sorted(found))


def number_labels(labels: Sequence[str | None], classes: tuple[str, ...], where: str) -> Labels:
    """Class numbers, -1 where there is no label; a label outside the list is refused."""
    numbers = {name: number for number, name in enumerate(classes)}
    out = np.full(len(labels), -1, dtype=np.int64)
    for row, label in enumerate(labels):
        if label:
            if label not in numbers:
                shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
                raise DataError(
                    f"{where}: label '{label}' (row {row}) is not one of the {len(classes)} classes {shown}"
                )
            out[row] = numbers[label]
    return out


def hold_out(labels: Labels, share: float) -> NDArray[np.bool_]:
    """Which rows test: the same share of each class, at least one, among the labelled; fixed for all seeds."""
    test = np.zeros(labels.size, dtype=np.bool_)
    for c in np.unique(labels[labels >= 0]):
        rows = rng(0, "hold-out", int(c)).permutation(np.flatnonzero(labels == c))
        test[rows[: max(1, round(share * rows.size)) if rows.size > 1 else 0]] = True
    return test


def row_keys(inputs: Inputs) -> NDArray[np.uint64]:
    """A 64-bit key a row, the same for equal rows."""
    flat = inputs.reshape(inputs.shape[0], -1)
    if flat.dtype.kind == "f":
        flat = np.ascontiguousarray(flat, dtype=np.float32).view(np.uint32)
    odd = rng(0, "row-keys").integers(1, 2**63, size=flat.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty(flat.shape[0], dtype=np.uint64)
    for start in range(0, flat.shape[0], 2048):
        keys[start : start + 2048] = (flat[start : start + 2048].astype(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
    return keys


def duplicates(train: Inputs, test: Inputs) -> int:
    """How many test samples are also in the training part."""
    if train.shape[1:] != test.shape[1:]:
        return 0
    return int(np.isin(row_keys(test), row_keys(train)).sum())


def assemble(
    name: str,
    train: Raw,
    test: Raw | None,
    *,
    classes: tuple[str, ...] = (),
    test_share: float = 0.2,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Decoded:
    """A whole data set; without a test part a share of the labelled samples is held out."""
    classes = agree_classes(train.labels, classes)
    names, (train_owners, test_owners) = _number_owners(train, test)
    whole = DataPart(train.inputs, number_labels(train.labels, classes, f"{name}, training part"), train_owners)
    problems = train.problems
    if test is None:
        testing = hold_out(whole.labels, test_share)
        first, second = whole.take(np.flatnonzero(~testing)), whole.take(np.flatnonzero(testing))
    else:
        second = DataPart(test.inputs, number_labels(test.labels, classes, f"{name}, test part"), test_owners)
        first, problems = whole, problems + test.problems
        known = np.flatnonzero(second.labels >= 0)
        if known.size < second.labels.size:
            problems += (f"{second.labels.size - known.size} test samples without a label were left out",)
            second = second.take(known)
    if second.labels.size == 0:
        raise DataError(f"{name} has no labelled sample left to test on: label more, or give test_data")
    if first.labels.size == 0:
        raise DataError(f"{name} has no training sample")
    twice = duplicates(first.inputs, second.inputs)
    if twice:
        problems += (f"{twice} of {second.labels.size} test samples are also in the training part",)
    if train.kind == "image" and (mean is None or std is None):
        mean, std = channel_statistics(first.inputs)
    decoded = Decoded(
        name,
        train.kind,
        first,
        second,
        classes,
        problems=problems,
        vocabulary=train.vocabulary,
        scale=train.scale,
    )
    if train_owners is not None:
        sizes = np.bincount(train_owners, minlength=len(names))
        decoded = replace(decoded, owner_names=names, owner_sizes=tuple(int(n) for n in sizes))
    return replace(decoded, mean=mean or (0.0,), std=std or (1.0,))


def _number_owners(train: Raw, test: Raw | None) -> tuple[tuple[str, ...], tuple[Labels | None, Labels | None]]:
    if train.owners is None:
        return (), (None, None)
    parts = [part.owners if part is not None else None for part in (train, test)]
    names = tuple(sorted({owner for part in parts if part is not None for owner in part}))
    numbers = {owner: number for number, owner in enumerate(names)}
    found = [None if p is None else np.array([numbers[o] for o in p], dtype=np.int64) for p in parts]
    return names, (found[0], found[1])
