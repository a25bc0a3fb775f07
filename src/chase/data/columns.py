"""Which column of a table is what, and columns of numbers and categories as arrays.

What the user names counts. Otherwise usual names decide, then what the cells hold: images, one column of texts, one
column of vectors, or a table of numbers and categories.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.data.folders import SUFFIXES
from chase.data.options import DataOptions
from chase.data.resident import Column
from chase.data.tabular_files import DataTable

USUAL = {
    "image": ("image", "img", "image_path", "path", "file", "filename", "audio", "wav"),
    "text": ("text", "sentence", "comment", "content"),
    "label": ("label", "class", "category", "target", "topic", "diagnosis", "y"),
    "site": ("site", "owner", "client", "hospital", "clinic", "speaker"),
    "id": ("id", "sample_id", "uid", "uuid"),
}
"""Column names that are understood without a setting."""
_NAMED_ID = re.compile(r"(?i:[_\s-]id$)|[a-z]I[dD]$")
"""Columns such as patient_id or patientID name the rows, if their cells are all different; they are never learnt from
unless the user says so."""
NONE = "none"
"""Said for a column that is there but shall not be used."""
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""How a missing number is written."""
MOST_CATEGORIES = 50
MOSTLY = 0.8
"""A column of which this share is numbers is meant as numbers."""

Shape = Literal["image", "vector", "numeric", "categorical", "text"]


@dataclass(frozen=True)
class Read:
    """Numbers that were read of columns: float32 (rows, columns)."""

    values: NDArray[np.float32]
    columns: tuple[Column, ...]
    problems: tuple[str, ...] = ()


def fill_columns(table: DataTable, options: DataOptions) -> DataOptions:
    """Options that say what every column is; a table in which nothing can be learnt from is refused."""
    names = table.rows.column_names
    lower = {str(name).strip().lower(): name for name in reversed(names)}
    found = {what: next((lower[n] for n in usual if n in lower), "") for what, usual in USUAL.items()}
    label, site = (_chosen(getattr(options, f"{what}_column"), found[what]) for what in ("label", "site"))
    if not label and not options.classes:
        raise DataError(
            f"{table.path.name} has no column called {', '.join(USUAL['label'])}: set label_column to one of "
            f"{', '.join(names)}, or name the `classes` if nothing is labelled yet"
        )
    ids = [name for name in _called_ids(names) if name not in (label, site)]
    key = _chosen(options.id_column, next((name for name in ids if _is_key(table, name)), ""))
    image, text = options.image_column, options.text_column
    if image and text:
        raise DataError(f"image_column = {image} and text_column = {text}: give one of them")
    may_name = options.id_column != NONE
    options = replace(options, label_column=label, site_column=site, id_column=key)
    if not image and not text and not options.columns:
        image, text = found["image"], "" if found["image"] else found["text"]
    if image or text:
        return replace(options, image_column=image, text_column=text, columns=())
    used = {spec.partition(":")[0] for spec in options.columns}
    rest = [n for n in names if n not in (label, site, key, *used)]
    rest = [n for n in rest if n not in ids] or rest
    if used:
        return _with_key(table, options, [*rest, ""])[0] if may_name and not key else options
    if may_name and not key:
        options, rest = _with_key(table, options, rest)
    return _by_content(table, options, rest)


def found_columns(options: DataOptions) -> dict[str, str]:
    """What ``fill_columns`` found, by setting: for those who read another table as this one was read."""
    keys = ("id_column", "image_column", "text_column", "label_column")
    options = replace(options, id_column="") if options.id_column == NONE else options
    vector = options.columns[0] if len(options.columns) == 1 else ""
    return {key: getattr(options, key) for key in keys} | ({"columns": vector} if vector else {})


def _with_key(table: DataTable, options: DataOptions, names: Sequence[str]) -> tuple[DataOptions, list[str]]:
    """A column of single words that are all different names the rows, where there are other columns to learn from."""
    for name in names:
        words = bool(name) and len(names) > 1 and _is_key(table, name)
        words = words and shape_of(table, name) in ("text", "categorical")
        if words and not any(" " in str(cell).strip() for cell in table.cells(name, "id")):
            return replace(options, id_column=name), [n for n in names if n != name]
    return options, list(names)


def _called_ids(names: Sequence[str]) -> list[str]:
    """Columns whose names say that they are ids, the usual names first."""
    usual = [name for name in names if str(name).strip().lower() in USUAL["id"]]
    return usual + [name for name in names if name not in usual and _NAMED_ID.search(str(name))]


def left_out_ids(table: DataTable, options: DataOptions) -> list[str]:
    """A sentence for each column that is called an id, names no rows and is not learnt from."""
    used = {spec.partition(":")[0] for spec in options.columns}
    used |= {options.label_column, options.site_column, options.id_column}
    return [
        f"column '{name}' is not learnt from: its name is that of an id"
        + (
            ""
            if options.id_column or _is_key(table, name)
            else ", but its cells are not all different; name it in `columns` to use it"
        )
        for name in _called_ids(table.rows.column_names)
        if name not in used
    ]


def useless_ids(table: DataTable, options: DataOptions) -> list[str]:
    """A sentence where a column is called an id, but cannot name the samples."""
    used = (options.label_column, options.site_column, options.text_column, options.image_column)
    for name in () if options.id_column else _called_ids(table.rows.column_names):
        first: dict[str, int] = {}
        for row, cell in enumerate(table.cells(name, "id") if name not in used else ()):
            text = "" if cell is None else str(cell).strip()
            if text in first or not text:
                where = table.where(row)
                both = f"{table.where(first[text])} and {where.rpartition(', ')[2]}" if text else ""
                why = f"'{text}' is in {both}" if text else f"it is empty in {where}"
                return [f"the samples are named by their place in the file, not by column '{name}': {why}"]
            first[text] = row
    return []


def _chosen(wanted: str, found: str) -> str:
    return "" if wanted == NONE else wanted or found


def _is_key(table: DataTable, name: str) -> bool:
    if not name:
        return False
    cells = [str(cell).strip() for cell in table.cells(name, "id") if cell is not None]
    return len(set(cells)) == len(cells) == table.rows.num_rows and "" not in cells


def _by_content(table: DataTable, options: DataOptions, names: Sequence[str]) -> DataOptions:
    """The options for columns whose names tell nothing."""
    if not names:
        raise DataError(f"{table.path} has no column beside its label, site and id to learn from")
    shapes = {name: shape_of(table, name) for name in names}
    by_shape = {shape: [n for n in names if shapes[n] == shape] for shape in set(shapes.values())}
    for shape in ("image", "vector"):
        several = by_shape.get(shape, [])
        if len(several) > 1:
            raise DataError(f"{table.path} has several columns of {shape}s ({', '.join(several)}): name one to use")
        if several:
            return (
                replace(options, image_column=several[0])
                if shape == "image"
                else replace(options, columns=(several[0],))
            )
    texts = by_shape.get("text", [])
    if len(texts) == 1 and len(names) == 1:
        return replace(options, text_column=texts[0])
    if texts:
        rest = [n for n in names if n not in texts]
        raise DataError(
            f"{table.path.name}: {'column' if len(texts) == 1 else 'columns'} {_quoted(texts)} "
            f"{'is' if len(texts) == 1 else 'are'} neither numbers nor at most {MOST_CATEGORIES} categories: "
            f"set text_column={texts[0]} to learn from the text"
            + (f', or columns="{",".join(rest)}" to learn from the others' if rest else "")
            + (f", or id_column={texts[0]} if it names the rows" if rest and _is_key(table, texts[0]) else "")
        )
    return replace(options, columns=tuple(names))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def shape_of(table: DataTable, name: str) -> Shape:
    """What the cells of a column are."""
    column = table.column(name, "table")
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_struct(kind):
        return "image"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "vector"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "numeric"
    cells = [str(cell).strip() for cell in column.to_pylist() if cell is not None and str(cell).strip()]
    known = [cell for cell in cells if cell.lower() not in MISSING]
    if sum(as_number(cell) is not None for cell in known) >= MOSTLY * max(1, len(known)):
        return "numeric"
    distinct = set(cells)
    if cells and all(PurePath(cell).suffix.lower() in SUFFIXES for cell in distinct):
        return "image"
    return "categorical" if len(distinct) <= MOST_CATEGORIES else "text"


def as_number(cell: Any) -> float | None:
    """The number that a cell holds, also with a decimal comma; None if it holds none."""
    text = str(cell).strip()
    for written in (text, text.replace(",", ".") if text.count(",") == 1 and "." not in text else ""):
        try:
            value = float(written)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None


def is_vectors(table: DataTable, options: DataOptions) -> bool:
    """Whether the named columns are one column of lists."""
    names = [name.partition(":")[0] for name in options.columns]
    return len(names) == 1 and names[0] in table.rows.column_names and shape_of(table, names[0]) == "vector"


def read_vectors(table: DataTable, name: str) -> NDArray[np.float32]:
    """A column of lists of numbers (rows, width); all of one width, no gaps."""
    cells = table.cells(name, "vector")
    width = len(cells[0]) if cells and cells[0] is not None else 0
    for row, cell in enumerate(cells):
        if cell is None or len(cell) != width or not width:
            has = "nothing" if cell is None else f"{len(cell)} numbers"
            raise DataError(f"{table.where(row)}: column '{name}' holds {has}, the first row {width}")
    try:
        values = np.array(cells, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{table.path.name}: column '{name}' holds lists that are not numbers") from None
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise DataError(f"{table.where(int(bad[0]))}: column '{name}' holds a value that is not a number")
    return values


def read_rows(table: DataTable, wanted: Sequence[str], known: tuple[Column, ...] = ()) -> Read:
    """Columns of numbers and categories; ``known`` says what the columns of an earlier part were."""
    described = {column.name: column for column in known}
    values, columns, problems = [], [], []
    for spec in wanted:
        name, _, said = spec.partition(":")
        if said not in ("", "number", "category"):
            raise DataError(f"columns: '{spec}' is invalid: after a colon comes number or category")
        cells = table.cells(name, "table")
        before = described.get(name)
        shape = {"number": "numeric", "category": "categorical"}.get(said) or (
            before.kind if before is not None else shape_of(table, name)
        )
        if shape == "numeric":
            column, numbers, found = Column(name), *_numbers(table, name, cells)
        elif shape == "categorical":
            column, numbers, found = _categories(table, name, cells, before)
        else:
            raise DataError(
                f"{table.path.name}: column '{name}' is neither numbers nor at most {MOST_CATEGORIES} categories: "
                "leave it out of `columns`"
            )
        values.append(numbers)
        columns.append(column)
        problems += found
        if not known and len(cells) > 1 and (numbers == numbers[0]).all():  # NaN equals nothing
            problems.append(f"column '{name}' has the same value in every row: nothing can be learnt from it")
    return Read(np.stack(values, axis=1), tuple(columns), tuple(problems))


def _numbers(table: DataTable, name: str, cells: Sequence[Any]) -> tuple[NDArray[np.float32], list[str]]:
    out = np.full(len(cells), np.nan, dtype=np.float32)
    for row, cell in enumerate(cells):
        if cell is None or str(cell).strip().lower() in MISSING:
            continue
        number = as_number(cell)
        if number is None:
            raise DataError(
                f"{table.where(row)}: column '{name}' holds numbers, but '{cell}' is not a number: correct the "
                "cell, or set "
                f'columns="...,{name}:category,..." to read the column as categories'
            )
        out[row] = number
    missing = int(np.isnan(out).sum())
    if missing == len(cells):
        raise DataError(f"{table.path.name}: column '{name}' is empty: leave it out of `columns`")
    return out, [f"column '{name}' has no number in {missing} of {len(cells)} rows"] if missing else []


def _categories(
    table: DataTable, name: str, cells: Sequence[Any], before: Column | None
) -> tuple[Column, NDArray[np.float32], list[str]]:
    texts = ["" if cell is None else str(cell).strip() for cell in cells]
    values = before.values if before is not None else tuple(sorted({text for text in texts if text}))
    if len(values) > MOST_CATEGORIES:
        raise DataError(
            f"{table.path.name}: column '{name}' has {len(values)} categories, more than {MOST_CATEGORIES}: leave it "
            "out of `columns`"
        )
    codes = {value: float(code) for code, value in enumerate(values)}
    out = np.array([codes.get(text, np.nan) for text in texts], dtype=np.float32)
    new = sorted({text for text in texts if text and text not in codes})
    note = f"column '{name}' has categories here that the training part does not have: {', '.join(new[:5])}"
    return Column(name, "categorical", values), out, [note] if new else []
