"""Predictions of a trained model for images, folders of them, text files and rows of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chase.core.errors import ChaseError, DataError, SettingsError
from chase.data import folders
from chase.data.pictures import PictureError, read_header
from chase.data.tabular_files import TABLE_SUFFIXES, is_table_name
from chase.data.user_data import tables_in
from chase.export.load_model import read_file
from chase.export.sample_ids import SampleIds, readable
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
    file: Path | None = None
    """The file as it was given, where a file is one sample."""


def predict(
    trained: Trained, paths: Sequence[Path], top: int = 1, changes: Mapping[str, Any] | None = None
) -> list[Prediction]:
    """A prediction per sample, in order; one that cannot be read has an error, and the others are predicted.

    ``changes`` are settings that say what the columns of tables are, where they are not as in the data of the run.
    """
    refuse_others(trained, changes or {})
    done: list[Prediction] = []
    for item, shares in answered(trained, items_of(trained, paths, changes)):
        if shares is None:
            done.append(Prediction(item.id, error=item.error, file=item.file))
            continue
        best = shares.topk(min(top, len(trained.card.classes)))
        ranks = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ranked = tuple((trained.card.classes[c], p) for c, p in ranks)
        done.append(Prediction(item.id, ranked[0][0], ranked[0][1], ranked, item.note, file=item.file))
    return told_apart(done)


def told_apart(found: Sequence[Prediction]) -> list[Prediction]:
    """Files of several folders that have one name are called by their paths as they were given."""
    count = Counter(prediction.id for prediction in found)
    return [replace(p, id=readable(str(p.file))) if p.file is not None and count[p.id] > 1 else p for p in found]


def refuse_others(trained: Trained, changes: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """Only how a table is read may be said anew: all else belongs to the model."""
    allowed = [key for kind, key in READING.items() if kind == trained.card.kind] + ["id_column", "encoding", *more]
    for key in changes:
        if key not in allowed:
            raise SettingsError(f"{key} cannot be set for this model; what can be set here: {', '.join(allowed)}")


def answered(trained: Trained, items: Iterator[Item]) -> Iterator[tuple[Item, Tensor | None]]:
    """Each item with the probabilities of its classes, None where it cannot be read; inferred in chunks."""
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) == CHUNK:
            yield from _inferred(trained, waiting)
            waiting = []
    yield from _inferred(trained, waiting)


def _inferred(trained: Trained, waiting: Sequence[Item]) -> Iterator[tuple[Item, Tensor | None]]:
    good = [item.inputs for item in waiting if item.inputs is not None]
    shares = iter(trained.probabilities(torch.stack(good)) if good else ())
    for item in waiting:
        yield item, None if item.inputs is None else next(shares)


def items_of(trained: Trained, paths: Sequence[Path], changes: Mapping[str, Any] | None = None) -> Iterator[Item]:
    """The samples at all paths."""
    names = SampleIds.of(trained)
    for path in paths:
        yield from items(trained, path, names, changes or {})


def items(trained: Trained, path: Path, names: SampleIds, changes: Mapping[str, Any]) -> Iterator[Item]:
    """The samples at a path: a file, the images of a folder, or the rows of a table or of those in a folder."""
    try:
        if not path.exists():
            raise DataError(f"{path} does not exist: name files, folders of images or tables")
        tables = [file for files in tables_in(path)[1].values() for file in files] if path.is_dir() else []
        if path.is_dir() and not tables:
            for file in folders.image_files(path)[0]:
                yield replace(_file(trained, file, names.of_file(file, path)), truth=folders.label_of(file, path))
        elif tables or is_table_name(path):
            for file in tables or [path]:
                yield from row_items(trained, file, changes)
        elif trained.card.kind in ("table", "vectors"):
            raise DataError(f"{path} is not a table: the model needs rows of {', '.join(TABLE_SUFFIXES)} files")
        else:
            yield _file(trained, path, names.of_file(path))
    except DataError as error:
        yield Item(readable(str(path)), None, error=readable(str(error)))


def _file(trained: Trained, file: Path, name: str) -> Item:
    try:
        if trained.card.kind == "image" and file.suffix.lower() in PICTURES_ONLY:
            return Item(name, picture_input(trained, file), file=file)
        inputs, note = read_file(file, trained.card.to_json())
        return Item(name, inputs, note, file=file)
    except (ValueError, PictureError) as error:
        said = reason(file, str(error)) if trained.card.kind == "image" else str(error)
        said = said if str(file) in said else f"cannot read {file}: {said}"
        return Item(name, None, error=readable(said), file=file)


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
