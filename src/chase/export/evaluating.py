"""How good the model of a finished run is on labelled data that its user has: ``chase evaluate``.

It reads the data as ``chase predict`` does and measures as a run does on its test set (``server.quality``). What the
run itself is measured on stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.core.errors import ChaseError, DataError
from chase.data import folders, sources
from chase.data.assemble import row_keys
from chase.data.user_data import tables_in
from chase.export.predicting import CHUNK, answered, items_of, refuse_others
from chase.export.table_items import Item
from chase.export.trained import Trained
from chase.run import data_check
from chase.run.record import Record
from chase.server.quality import quality

SHOWN = 10
"""Labels and classes that a message names."""


@dataclass(frozen=True)
class Measured:
    """What was found, and on what."""

    quality: Mapping[str, Any]
    """See ``server.quality``."""
    unlabeled: int
    """Samples that were left out because they have no label."""
    errors: tuple[str, ...]
    """Samples that were left out because they cannot be read: why."""
    in_training: int | None
    """How many of those measured are in the training part of the run's data; None where that is not known."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        rest = {"unlabeled": self.unlabeled, "in_training": self.in_training, "errors": list(self.errors)}
        return {**self.quality, **rest}


def evaluate(trained: Trained, paths: Sequence[Path], changes: Mapping[str, Any] | None = None) -> Measured:
    """The quality of the model on all labelled samples at these paths."""
    refuse_others(trained, changes or {}, ("label_column",))
    numbers = {name: number for number, name in enumerate(trained.card.classes)}
    probabilities: list[NDArray[np.float64]] = []
    labels: list[int] = []
    keys, fresh = list[NDArray[np.uint64]](), list[Tensor]()
    unlabeled, errors, others = 0, [], Counter[str]()
    for item, shares in answered(trained, _labelled(trained, paths, changes or {})):
        if shares is None or item.inputs is None:
            errors.append(item.error)
        elif not item.truth:
            unlabeled += 1
        else:
            if item.truth not in numbers:
                others[item.truth] += 1
                continue
            labels.append(numbers[item.truth])
            probabilities.append(shares.double().numpy())
            fresh.append(item.inputs)
            if len(fresh) == CHUNK:
                keys.append(row_keys(torch.stack(fresh).numpy()))
                fresh = []
    if others:
        raise DataError(_unknown(others, len(labels), trained.card.classes))
    if not labels:
        raise DataError(_nothing(paths, unlabeled, errors))
    keys += [row_keys(torch.stack(fresh).numpy())] if fresh else []
    found = quality(np.stack(probabilities), np.array(labels, dtype=np.int64), trained.card.classes)
    return Measured(found, unlabeled, tuple(errors), _in_training(trained, np.concatenate(keys)))


def _labelled(trained: Trained, paths: Sequence[Path], changes: Mapping[str, Any]) -> Iterator[Item]:
    """The samples at the paths; of data with a training and a test part those of the test part."""
    return items_of(trained, [place for path in paths for place in _to_measure(path)], changes)


def _to_measure(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    tables = tables_in(path)[1]
    return tables.get("test") or tables.get("train") or [folders.parts_of(path)[1] or path]


def _unknown(others: Counter[str], known: int, classes: Sequence[str]) -> str:
    """Why data is refused of which ``others`` have labels that the model cannot give."""
    count, most = others.total(), others.most_common(SHOWN)
    labels = ", ".join(f"'{label}' ({times})" for label, times in most) + (", ..." if len(others) > SHOWN else "")
    shown = ", ".join(classes[:SHOWN]) + (", ..." if len(classes) > SHOWN else "")
    return (
        f"{count} of {count + known} labelled samples {'has a label' if count == 1 else 'have labels'} that the model "
        f"does not know: {labels}; its {len(classes)} classes are {shown}. Correct these labels, or leave out the "
        "samples to measure the model on the others"
    )


def _nothing(paths: Sequence[Path], unlabeled: int, errors: Sequence[str]) -> str:
    named = ", ".join(str(path) for path in paths)
    if not unlabeled:
        return errors[0] if len(errors) == 1 else f"no sample of {named} can be read; the first: {errors[0]}"
    return (
        f"none of the {unlabeled + len(errors)} samples of {named} has a label to compare with: put images into a "
        "folder per class, or name the column of a table with --set label_column=NAME"
    )


def _in_training(trained: Trained, keys: NDArray[np.uint64]) -> int | None:
    """How many samples, by their keys, the training part of the run's data has."""
    try:
        record = Record.open(trained.path)
        settings = data_check.locate(trained.path, record.settings)
        here = data_check.is_path(settings, "data") or settings.data == "digits"
        if record.kind != "simulation" or not (here or sources.find_local(settings.data, settings.data_dir)):
            return None
        known = sources.load(settings.data, settings.data_dir, settings.data_options).train
    except ChaseError:  # the data is elsewhere now: nothing can be said
        return None
    return int(np.isin(keys, row_keys(known.inputs.numpy())).sum())
