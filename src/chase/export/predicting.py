"""Predictions of a trained model for images, folders of them, text files and rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.core.errors import ChaseError, DataError
from chase.data import columns, folders, table_cells
from chase.data.audio import HOP, RATE, to_length
from chase.data.options import DataOptions
from chase.data.pictures import RAW, PictureError, read_header, read_picture, rescale, reshape
from chase.data.tabular_files import TABLE_SUFFIXES, DataTable, read_table
from chase.data.texts import tokenize, tokens_of, words_of
from chase.export.load_model import read_file
from chase.export.trained import Trained
from chase.settings import from_mapping

CHUNK = 200
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


@dataclass(frozen=True)
class Item:
    """One sample ready for the model, or what is wrong with it."""

    id: str
    inputs: Tensor | None
    note: str = ""
    error: str = ""


def predict(trained: Trained, paths: Sequence[Path], top: int = 1) -> list[Prediction]:
    """A prediction per sample, in order; one that cannot be read has an error, and the others are predicted."""
    done: list[Prediction] = []
    waiting: list[Item] = []
    for item in (item for path in paths for item in items(trained, path)):
        waiting.append(item)
        if len(waiting) == CHUNK:
            done += _answers(trained, waiting, top)
            waiting = []
    return done + _answers(trained, waiting, top)


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


def items(trained: Trained, path: Path) -> Iterator[Item]:
    """The samples at a path: a file, the images of a folder, or the rows of a table."""
    if not path.exists():
        raise DataError(f"{path} does not exist: name files, folders of images or tables to predict")
    if path.is_dir():
        for file in folders.image_files(path)[0]:
            yield _file(trained, file)
    elif path.suffix in TABLE_SUFFIXES:
        yield from _rows(trained, path)
    elif trained.card.kind in ("table", "vectors"):
        raise DataError(f"{path} is not a table: the model needs rows of {', '.join(TABLE_SUFFIXES)} files")
    else:
        yield _file(trained, path)


def _file(trained: Trained, file: Path) -> Item:
    try:
        if trained.card.kind == "image" and file.suffix.lower() in PICTURES_ONLY:
            return Item(str(file), _picture(trained, file))
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


def _picture(trained: Trained, raw: RAW | None) -> Tensor:
    channels, height, width = trained.card.net.shape
    picture = read_picture(raw)
    if trained.card.seconds:
        picture = to_length(picture, round(trained.card.seconds * RATE / HOP))
    ready = rescale(reshape(picture, channels, (height, width)), trained.card.scale)
    return torch.from_numpy(np.array(ready))  # a copy: a picture as it was read may not be writable


def _rows(trained: Trained, path: Path) -> Iterator[Item]:
    options = from_mapping(dict(trained.settings)).data_options
    table = read_table(path, options.encoding)
    options = columns.fill_columns(
        table, replace(options, classes=trained.card.classes, columns=_named(trained) or options.columns)
    )
    if trained.card.kind == "image":
        raws, paths = table_cells.image_cells(table, options.image_column)
        for name, raw in zip(table_cells.ids_as_text(table, options.id_column, paths), raws, strict=True):
            try:
                yield Item(name, _picture(trained, raw))
            except PictureError as error:
                yield Item(name, None, error=f"cannot read {name}: {error}")
        return
    names = table_cells.ids_as_text(table, options.id_column)
    for name, row in zip(names, _inputs(trained, table, options), strict=True):
        yield Item(name, torch.from_numpy(row))


def _named(trained: Trained) -> tuple[str, ...]:
    """The columns of the table that the model was trained on: others may be there too."""
    return tuple(f"{c.name}:{'category' if c.values else 'number'}" for c in trained.card.columns)


def _inputs(trained: Trained, table: DataTable, options: DataOptions) -> Sequence[NDArray[Any]]:
    shape = trained.card.net.shape
    if trained.card.kind == "text":
        texts = ["" if cell is None else str(cell) for cell in table.cells(options.text_column, "text")]
        vocabulary = trained.card.net.vocabulary
        return list(tokenize(texts, tokens_of(vocabulary), words_of(vocabulary, shape))[0])
    if trained.card.kind == "vectors":
        found = columns.read_vectors(table, options.columns[0])
        if found.shape[1:] != shape:
            raise DataError(f"{table.path} has vectors of {found.shape[1]} numbers, the model takes {shape[0]}")
        return list(found)
    return list(columns.read_rows(table, options.columns, trained.card.columns).values)


def failures(found: Sequence[Prediction]) -> str:
    """A sentence on what could not be read; empty if all could."""
    bad = [p for p in found if p.error]
    if not bad:
        return ""
    if len(bad) == len(found):
        raise ChaseError(f"none of the {len(found)} samples can be read; the first: {bad[0].error}")
    return f"{len(bad)} of {len(found)} samples could not be read; the first: {bad[0].error}"
