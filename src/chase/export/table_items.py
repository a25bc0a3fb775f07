"""Rows of a table as a trained model takes them, one by one: a bad row does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from chase.core.errors import DataError
from chase.data import columns
from chase.data.audio import HOP, RATE, to_length
from chase.data.options import DataOptions
from chase.data.pictures import RAW, PictureError, read_picture, rescale, reshape
from chase.data.table_cells import image_cells, labels_as_text
from chase.data.tabular_files import DataTable, read_table, read_tables
from chase.data.texts import tokenize, tokens_of, words_of
from chase.data.user_data import shards_of
from chase.export.trained import Trained
from chase.run.data_check import reading
from chase.settings import from_mapping


@dataclass(frozen=True)
class Item:
    """One sample ready for the model, or what is wrong with it."""

    id: str
    inputs: Tensor | None
    note: str = ""
    error: str = ""
    file: Path | None = None
    """The file as it was given, where a file is one sample."""
    truth: str | None = None
    """The class that the data says."""


def picture_input(trained: Trained, raw: RAW | None) -> Tensor:
    """A picture of any size and range as the model takes it."""
    channels, height, width = trained.card.net.shape
    picture = read_picture(raw)
    if trained.card.seconds:
        picture = to_length(picture, round(trained.card.seconds * RATE / HOP))
    ready = rescale(reshape(picture, channels, (height, width)), trained.card.scale)
    return torch.from_numpy(np.array(ready))  # a copy: a picture as it was read may not be writable


def row_items(trained: Trained, path: Path, changes: Mapping[str, Any]) -> Iterator[Item]:
    """An item per row; ``changes`` say what the columns are, where that is not as in the data of the run."""
    options = from_mapping({**trained.settings, **changes}).data_options
    table = read_table(path, options.encoding)
    if table.rows.num_rows == 0:
        raise DataError(f"{path} has no rows")
    options = columns.fill_columns(table, _as_trained(trained, table, options, changes))
    read, paths = _inputs(trained, table, options)
    names = _names_among(shards_of(path), path, options) or list(_names(table, options.id_column, paths))
    labelled = options.label_column in table.rows.column_names
    truths = labels_as_text(table, options.label_column) if labelled else [None] * table.rows.num_rows
    rows = zip(read, names, truths, strict=True)
    for row, (item, (name, said), truth) in enumerate(rows):
        error = f"cannot read {name}: {item.error}" if paths else f"{table.where(row)}: {item.error}"
        note = "; ".join(part for part in (item.note, said) if part)
        yield replace(item, id=name, note=note, error=error if item.error else "", truth=truth)


def _as_trained(trained: Trained, table: DataTable, options: DataOptions, changes: Mapping[str, Any]) -> DataOptions:
    """Options under which rows are read and named as those of the run's own table, as far as the table allows."""
    has = table.rows.column_names
    known = reading(trained.path)
    for key, name in (known or {}).items():
        if key in changes or key == "columns":
            continue
        if name in has:
            options = replace(options, **{key: name})  # type: ignore[arg-type]  # all of them are names of columns
        elif key == "id_column" and not name:  # rows of the run's table are named by their place
            options = replace(options, id_column=columns.NONE)
    if "id_column" not in changes and options.id_column not in (*has, columns.NONE):
        options = replace(options, id_column="")  # rows are named by their place
    named = _named(trained) or options.columns
    if not named and trained.card.kind == "vectors" and (known or {}).get("columns") in has:
        named = ((known or {})["columns"],)
    return replace(options, classes=trained.card.classes, columns=named)


def _inputs(trained: Trained, table: DataTable, options: DataOptions) -> tuple[Iterator[Item], Sequence[str | None]]:
    """The rows without their names, and the paths of their pictures."""
    if trained.card.kind == "image":
        raws, paths = image_cells(table, _column(table, options.image_column, "image"))
        return (_of_picture(trained, raw) for raw in raws), paths
    if trained.card.kind == "text":
        return _of_texts(trained, table, _column(table, options.text_column, "text")), ()
    if trained.card.kind == "vectors":
        return _of_vectors(trained, table, _column(table, next(iter(options.columns), ""), "vector")), ()
    return _of_cells(trained, table), ()


def _named(trained: Trained) -> tuple[str, ...]:
    """The columns of the table that the model was trained on: others may be there too."""
    return tuple(f"{c.name}:{'category' if c.values else 'number'}" for c in trained.card.columns)


def _column(table: DataTable, name: str, what: str) -> str:
    """A column that the table has, or a sentence that says how to name it."""
    names = table.rows.column_names
    if name in names:
        return name
    setting = "columns" if what == "vector" else f"{what}_column"
    raise DataError(
        f"{table.path} has no {what} column{f' {name!r}' if name else ''}; it has: {', '.join(names)}: name it with "
        f"--set {setting}=NAME"
    )


def _names(table: DataTable, column: str, paths: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    """The id of each row (its place where it has none of its own), and what is odd about it."""
    cells = table.cells(column, "id") if column else paths or [None] * table.rows.num_rows
    first: dict[str, int] = {}
    for row, cell in enumerate(cells):
        name = "" if cell is None else str(cell).strip()
        if name and name not in first:
            first[name] = row
            yield name, ""
        elif column:
            why = f"id '{name}' is also that of {table.where(first[name])}" if name else f"'{column}' is empty"
            yield table.key(row), why
        else:
            yield table.key(row), ""


def _names_among(shards: Sequence[Path], path: Path, options: DataOptions) -> list[tuple[str, str]]:
    """The ids of a file's rows among those of all shards: only the first of equal paths is called by it."""
    if len(shards) < 2:
        return []
    whole = read_tables(shards, options.encoding)
    if options.id_column and options.id_column not in whole.rows.column_names:
        return []
    named = options.image_column in whole.rows.column_names and not options.id_column
    paths = image_cells(whole, options.image_column)[1] if named else ()
    which = [shard.name for shard in shards].index(path.name)
    names = enumerate(_names(whole, options.id_column, paths))
    return [name for row, name in names if whole.owner is not None and whole.owner[row] == which]


def picture_names(trained: Trained, files: Sequence[Path]) -> dict[Path, str]:
    """The ids of the pictures that a table of the run's own data, one file or its shards, names by their paths."""
    known = reading(trained.path) or {}
    column, ids = known.get("image_column", ""), known.get("id_column", "")
    if trained.card.kind != "image" or not column:
        return {}
    try:
        table = read_tables(files, str(trained.settings.get("encoding") or ""))
    except DataError:  # it was changed since: pictures are called by their own paths, and can be predicted
        return {}
    has = table.rows.column_names
    if column not in has or (ids and ids not in has):
        return {}
    kind = table.rows.schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):  # the pictures themselves, not their paths
        return {}
    paths = image_cells(table, column)[1]
    found: dict[Path, str] = {}
    for path, (name, _) in zip(paths, _names(table, ids, paths), strict=True):
        if path:
            place = table.path.parent / path
            found.setdefault(place.parent.resolve() / place.name, name)
    return found


def _of_picture(trained: Trained, raw: RAW | None) -> Item:
    try:
        return Item("", picture_input(trained, raw))
    except PictureError as error:
        return Item("", None, error=str(error))


def _of_texts(trained: Trained, table: DataTable, name: str) -> Iterator[Item]:
    vocabulary, shape = trained.card.net.vocabulary, trained.card.net.shape
    texts = ["" if cell is None else str(cell) for cell in table.cells(name, "text")]
    for row in tokenize(texts, tokens_of(vocabulary), words_of(vocabulary, shape))[0]:
        yield Item("", torch.from_numpy(row))


def _of_vectors(trained: Trained, table: DataTable, name: str) -> Iterator[Item]:
    (width,) = trained.card.net.shape
    for cell in table.cells(name, "vector"):
        try:
            values = np.array(cell, dtype=np.float32)
        except (TypeError, ValueError):
            yield Item("", None, error=f"column '{name}' holds a list that is not numbers")
            continue
        if values.shape != (width,):
            has = f"{values.size} numbers" if values.ndim == 1 else "no list of numbers"
            yield Item("", None, error=f"column '{name}' holds {has}, the model takes {width}")
        elif not np.isfinite(values).all():
            yield Item("", None, error=f"column '{name}' holds a value that is not a number")
        else:
            yield Item("", torch.from_numpy(values))


def _of_cells(trained: Trained, table: DataTable) -> Iterator[Item]:
    known = trained.card.columns
    missing = [c.name for c in known if c.name not in table.rows.column_names]
    if missing:
        raise DataError(
            f"{table.path} has no column '{missing[0]}', which the model was trained on; it has: "
            f"{', '.join(table.rows.column_names)}"
        )
    codes = [{value: float(code) for code, value in enumerate(c.values)} for c in known]
    for row in zip(*(table.cells(c.name, "table") for c in known), strict=True):
        values, notes, error = np.full(len(known), np.nan, dtype=np.float32), [], ""
        for at, (column, cell) in enumerate(zip(known, row, strict=True)):
            text = "" if cell is None else str(cell).strip()
            if column.kind == "categorical":
                values[at] = codes[at].get(text, np.nan)
                if text and text not in codes[at]:
                    notes.append(f"'{text}' of column '{column.name}' was not in the training data: taken as missing")
            elif text.lower() not in columns.MISSING:
                found = columns.as_number(text)
                if found is None and not error:
                    error = f"column '{column.name}' holds numbers, but '{text}' is not a number: correct the cell"
                values[at] = np.nan if found is None else found
        yield Item("", None if error else torch.from_numpy(values), "; ".join(notes), error)
