"""Predictions of a trained model for images, folders of them, text files and rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from chase.core.errors import ChaseError, DataError, SettingsError
from chase.data import folders
from chase.data.pictures import PictureError, read_header
from chase.data.tabular_files import TABLE_SUFFIXES, is_table_name
from chase.export.load_model import read_file
from chase.export.table_items import Item, picture_input, row_items
from chase.export.trained import Trained

CHUNK = 200
READING = {"text": "text_column", "image": "image_column", "vectors": "columns"}
"""The setting that names what a model of each kind of data reads of a table."""
PICTURES_ONLY = (".dcm", ".wav")
"""Files that the exported loader does not read."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of one sample, or why it says nothing."""

    id: str
    """The user's own name: a path, an id, or a place in a table."""
    label: str = ""
    probability: float = 0.0
    top: tuple[tuple[str, float], ...] = ()
    """The most probable classes with their probabilities, best first."""
    note: str = ""
    """What had to be changed to fit the model's input."""
    error: str = ""


def predict(
    trained: Trained, paths: Sequence[Path], top: int = 1, changes: Mapping[str, Any] | None = None
) -> list[Prediction]:
    """A prediction per sample, in order; one that cannot be read has an error, and the others are predicted.

    ``changes`` are settings that say what the columns of tables are, where they are not as in the data of the run.
    """
    refuse_others(trained, changes or {})
    done: list[Prediction] = []
    waiting: list[Item] = []
    for item in (item for path in paths for item in items(trained, path, changes)):
        waiting.append(item)
        if len(waiting) == CHUNK:
            done += _answers(trained, waiting, top)
            waiting = []
    return done + _answers(trained, waiting, top)


def refuse_others(trained: Trained, changes: Mapping[str, Any]) -> None:
    """Only how a table is read may be said anew: all else belongs to the model."""
    allowed = [key for kind, key in READING.items() if kind == trained.card.kind] + ["id_column", "encoding"]
    for key in changes:
        if key not in allowed:
            raise SettingsError(f"{key} cannot be set for this model; what can be set here: {', '.join(allowed)}")


def _answers(trained: Trained, waiting: Sequence[Item], top: int) -> list[Prediction]:
    good = [item.inputs for item in waiting if item.inputs is not None]
    best = trained.probabilities(torch.stack(good)).topk(min(top, len(trained.card.classes))) if good else None
    shares, classes = ([], []) if best is None else (best.values.tolist(), best.indices.tolist())
    ranks = iter(zip(classes, shares, strict=True))
    found = []
    for item in waiting:
        if item.inputs is None:
            found.append(Prediction(item.id, error=item.error))
            continue
        ranked = tuple((trained.card.classes[c], p) for c, p in zip(*next(ranks), strict=True))
        found.append(Prediction(item.id, ranked[0][0], ranked[0][1], ranked, item.note))
    return found


def items(trained: Trained, path: Path, changes: Mapping[str, Any] | None = None) -> Iterator[Item]:
    """The samples at a path: a file, the images of a folder, or the rows of a table."""
    try:
        if not path.exists():
            raise DataError(f"{path} does not exist: name files, folders of images or tables to predict")
        if path.is_dir():
            for file in folders.image_files(path)[0]:
                yield _file(trained, file)
        elif is_table_name(path):
            yield from row_items(trained, path, changes or {})
        elif trained.card.kind in ("table", "vectors"):
            raise DataError(f"{path} is not a table: the model needs rows of {', '.join(TABLE_SUFFIXES)} files")
        else:
            yield _file(trained, path)
    except DataError as error:
        yield Item(str(path), None, error=str(error))


def _file(trained: Trained, file: Path) -> Item:
    try:
        if trained.card.kind == "image" and file.suffix.lower() in PICTURES_ONLY:
            return Item(str(file), picture_input(trained, file))
        inputs, note = read_file(file, trained.card.to_json())
        return Item(str(file), inputs, note)
    except (ValueError, PictureError) as error:
        said = reason(file, str(error)) if trained.card.kind == "image" else str(error)
        return Item(str(file), None, error=said if str(file) in said else f"cannot read {file}: {said}")


def reason(file: Path, said: str) -> str:
    """Why an image cannot be read: the exported loader only says that it is none, the reader of chase why."""
    try:
        read_header(file)
    except PictureError as error:
        return str(error)
    return said


def failures(found: Sequence[Prediction]) -> str:
    """A sentence on what could not be read; empty if all could."""
    bad = [p for p in found if p.error]
    if not bad:
        return ""
    if len(found) == 1:
        raise DataError(bad[0].error)
    if len(bad) == len(found):
        raise ChaseError(f"none of the {len(found)} samples can be read; the first: {bad[0].error}")
    return f"{len(bad)} of {len(found)} samples could not be read; the first: {bad[0].error}"
