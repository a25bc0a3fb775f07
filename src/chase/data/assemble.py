"""From what a file or folder holds to a data set: agreed classes, a test part, normalisation, problems."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.data.decoded import DataPart, Decoded, Inputs, Labels
from chase.data.images import channel_statistics
from chase.data.names import Names
from chase.data.pictures import BYTE, Scale
from chase.data.resident import Column, Kind

Numbers = tuple[float, ...]
PAIRS = 3
"""Equal samples of both parts that are named."""
WHOLE = re.compile(r"-?\d{1,1000}")
"""A whole number as text; Python does not convert one of more than 4300 digits."""


@dataclass(frozen=True)
class Raw:
    """One part as it was read: labels and owners are still text, every sample has the user's own name."""

    kind: Kind
    inputs: Inputs
    labels: Sequence[str | None]
    """None or empty where nobody knows."""
    names: Sequence[str] = ()
    where: Sequence[str] = ()
    """The place of each sample for messages: a file, or a line of one."""
    owners: Sequence[str] | None = None
    problems: tuple[str, ...] = ()
    vocabulary: int = 0
    scale: Scale = BYTE
    seconds: float = 0.0
    """Recordings: their length."""
    columns: tuple[Column, ...] = ()
    texts: Sequence[str] = ()
    """Texts as people read them."""
    files: Sequence[str] = ()
    """The original file of each sample, relative to the folder of its table; empty where there is none."""

    def part(self, labels: Labels, owners: Labels | None) -> DataPart:
        """The same with numbers for labels and owners."""
        packed = (Names.of(texts) if texts else None for texts in (self.names, self.texts, self.files))
        return DataPart(self.inputs, labels, owners, *packed)


def agree_classes(labels: Sequence[str | None], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The class list: the one given, else all labels found, in order (numbers by value)."""
    if wanted:
        if len(set(wanted)) != len(wanted):
            raise DataError(f"the class list names a class twice: {', '.join(wanted)}")
        return wanted
    found = {label for label in labels if label}
    if not found:
        raise DataError(
            "no sample has a label, so the classes are unknown: name them with the setting classes, for example "
            "--set classes=healthy,sick (and let people label: --annotator page)"
        )
    if all(WHOLE.fullmatch(label) for label in found):
        # "1" and "01" have one value: without the text the order would be that of the set, another in every process
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def number_labels(
    labels: Sequence[str | None], classes: tuple[str, ...], name: str, where: Sequence[str] = ()
) -> Labels:
    """Class numbers, -1 where there is no label; a label outside the list is refused."""
    numbers = {name: number for number, name in enumerate(classes)}
    out = np.full(len(labels), -1, dtype=np.int64)
    for row, label in enumerate(labels):
        if label:
            if label not in numbers:
                shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
                place = where[row] if where else f"{name}, sample {row}"
                raise DataError(f"{place}: label '{label}' is not one of the {len(classes)} classes {shown}")
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
    flat = inputs.reshape(inputs.shape[0], int(np.prod(inputs.shape[1:])))  # there may be no row
    if flat.dtype.kind == "f":
        flat = np.ascontiguousarray(flat, dtype=np.float32).view(np.uint32)
    odd = rng(0, "row-keys").integers(1, 2**63, size=flat.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty(flat.shape[0], dtype=np.uint64)
    for start in range(0, flat.shape[0], 2048):
        keys[start : start + 2048] = (flat[start : start + 2048].astype(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
    return keys


def sample_keys(inputs: Inputs, texts: Sequence[str] | None) -> NDArray[np.uint64]:
    """A 64-bit key per sample, the same for equal ones: by the texts themselves where they are known.

    Their words are hashed into few numbers and cut, so different texts can have equal ``inputs``.
    """
    if texts is None:
        return row_keys(inputs)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64)


def duplicates(train: DataPart, test: DataPart) -> NDArray[np.int64]:
    """Test samples that are also in the training part (pairs, 2): the row there, and the first equal one here."""
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        return np.zeros((0, 2), dtype=np.int64)
    keys, first = np.unique(sample_keys(train.inputs, train.texts), return_index=True)
    tested = sample_keys(test.inputs, test.texts)
    rows = np.flatnonzero(np.isin(tested, keys))
    return np.stack([rows, first[np.searchsorted(keys, tested[rows])]], axis=1)


def name_pairs(pairs: NDArray[np.int64], train: DataPart, test: DataPart) -> str:
    """The first of ``duplicates`` by their users' names; empty where samples have none."""
    if train.names is None or test.names is None:
        return ""
    shown = [f"test sample {test.names[there]} and {train.names[here]}" for there, here in pairs[:PAIRS].tolist()]
    return f" (first: {'; '.join(shown)})"


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
    """A whole data set; without a test part a share of the labelled samples is held out, if any can be spared."""
    classes = agree_classes(train.labels, classes)
    names, (train_owners, test_owners) = _number_owners(train, test)
    whole = train.part(number_labels(train.labels, classes, f"{name}, training part", train.where), train_owners)
    problems = train.problems
    if test is None:
        testing = hold_out(whole.labels, test_share)
        first, second = whole.take(np.flatnonzero(~testing)), whole.take(np.flatnonzero(testing))
    else:
        second = test.part(number_labels(test.labels, classes, f"{name}, test part", test.where), test_owners)
        first, problems = whole, problems + test.problems
        known = np.flatnonzero(second.labels >= 0)
        if known.size < second.labels.size:
            problems += (f"{second.labels.size - known.size} test samples without a label were left out",)
            second = second.take(known)
    if test is not None and second.labels.size == 0:
        raise DataError(f"no sample of the test part of {name} has a label: label it, or leave test_data out")
    if first.labels.size == 0:
        raise DataError(f"{name} has no training sample")
    twice = duplicates(first, second)
    if len(twice):
        named = name_pairs(twice, first, second)
        problems += (f"{len(twice)} of {second.labels.size} test samples are also in the training part{named}",)
    if mean is None or std is None:
        mean, std = statistics(train.kind, first.inputs, train.columns)
    decoded = Decoded(
        name,
        train.kind,
        first,
        second,
        classes,
        problems=problems,
        vocabulary=train.vocabulary,
        scale=train.scale,
        seconds=train.seconds,
        columns=train.columns,
    )
    if train_owners is not None:
        sizes = np.bincount(train_owners, minlength=len(names))
        decoded = replace(decoded, owner_names=names, owner_sizes=tuple(int(n) for n in sizes))
    return replace(decoded, mean=mean, std=std)


def statistics(kind: Kind, inputs: Inputs, columns: tuple[Column, ...] = ()) -> tuple[Numbers, Numbers]:
    """Mean and deviation that normalise samples: per channel, or per column of numbers; texts have none."""
    if kind == "text":
        return (0.0,), (1.0,)
    if kind == "image":
        return channel_statistics(inputs)
    values = inputs.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column that is empty in this part
        mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    coded = np.array([column.kind == "categorical" for column in columns] or [False] * values.shape[1])
    mean = np.where(coded | np.isnan(mean), 0.0, mean)
    std = np.where(coded | np.isnan(std) | (std < 1e-9), 1.0, std)
    return tuple(float(m) for m in mean), tuple(float(s) for s in std)


def _number_owners(train: Raw, test: Raw | None) -> tuple[tuple[str, ...], tuple[Labels | None, Labels | None]]:
    if train.owners is None:
        return (), (None, None)
    parts = [part.owners if part is not None else None for part in (train, test)]
    names = tuple(sorted({owner for part in parts if part is not None for owner in part}))
    numbers = {owner: number for number, owner in enumerate(names)}
    found = [None if p is None else np.array([numbers[o] for o in p], dtype=np.int64) for p in parts]
    return names, (found[0], found[1])
