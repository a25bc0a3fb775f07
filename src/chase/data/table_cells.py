"""Cells of a table: labels, owners, names of samples, encoded images; and what is refused among them by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from chase.core.errors import DataError
from chase.data.pictures import RAW
from chase.data.tabular_files import DataTable, class_names

SEPARATORS = (";", "|", ",")
MANY_NUMBERS = 20
"""More distinct numbers with decimals than this are taken for a quantity, not for classes."""


def labels_as_text(table: DataTable, column: str) -> list[str | None]:
    """Labels by name; None where the cell is empty."""
    if not column:
        return [None] * table.rows.num_rows
    names, cells = class_names(table, column), table.column(column, "label")
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        raise DataError(_several(table, column, "its cells are lists"))
    if names and pa.types.is_integer(cells.type):
        return [
            None if n is None or n == -1 else names[n] if 0 <= n < len(names) else str(n) for n in cells.to_pylist()
        ]
    return [_label(cell) for cell in cells.to_pylist()]


def _label(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip() or None


def refuse_other_tasks(table: DataTable, column: str, labels: Sequence[str | None]) -> None:
    """Refuse what is no classification with one class per sample: several labels in a cell, or a quantity."""
    found = {label for label in labels if label}
    for mark in SEPARATORS:
        split = [label for label in found if mark in label]
        pieces = [piece.strip() for label in split for piece in label.split(mark)]
        if split and (set(pieces) & found or len(set(pieces)) < len(pieces)):
            row = next(row for row, label in enumerate(labels) if label in split)
            raise DataError(_several(table, column, f"for example '{labels[row]}' in {table.where(row)}"))
    numbers = [_number(label) for label in found]
    known = [number for number in numbers if number is not None]
    if len(known) == len(found) > MANY_NUMBERS and any(number != int(number) for number in known):
        raise DataError(
            f"{table.path.name}: column '{column}' holds {len(found)} different numbers with decimals, a quantity to "
            "estimate (regression); chase learns classes: turn it into a few classes, or name another label_column"
        )


def _several(table: DataTable, column: str, why: str) -> str:
    return (
        f"{table.path.name}: column '{column}' holds several labels per sample ({why}); chase learns one class per "
        "sample: keep one label per cell, or list these combinations as `classes`"
    )


def _number(label: str) -> float | None:
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def owners_as_text(table: DataTable, column: str) -> list[str] | None:
    """The owner of each row, where the table has a site column; an empty cell is refused."""
    if not column:
        return None
    owners = table.cells(column, "site")
    for row, owner in enumerate(owners):
        if owner is None or not str(owner).strip():
            raise DataError(f"{table.where(row)}: the site column '{column}' is empty")
    return [str(owner).strip() for owner in owners]


def ids_as_text(table: DataTable, column: str, paths: Sequence[str | None] = ()) -> list[str]:
    """The name of each sample: its cell in the id column, else its path, else its place in the file."""
    if not column:
        seen: set[str] = set()
        names = []
        for row in range(table.rows.num_rows):
            path = paths[row] if paths else None
            names.append(path if path and path not in seen else table.key(row))
            seen.add(names[-1])
        return names
    first: dict[str, int] = {}
    for row, cell in enumerate(table.cells(column, "id")):
        name = "" if cell is None else str(cell).strip()
        if not name:
            raise DataError(f"{table.where(row)}: the id column '{column}' is empty")
        if name in first:
            raise DataError(
                f"{table.where(row)}: id '{name}' is also that of {table.where(first[name])}; ids must be unique, or "
                "set id_column=none"
            )
        first[name] = row
    return list(first)


def image_cells(table: DataTable, column: str) -> tuple[list[RAW | None], list[str | None]]:
    """Encoded images of a column (bytes, or paths beside the file), and their paths where they have one."""
    raws: list[RAW | None] = []
    paths: list[str | None] = []
    for cell in table.cells(column, "image"):
        path = cell.get("path") if isinstance(cell, dict) else cell if isinstance(cell, str) else None
        content = cell.get("bytes") if isinstance(cell, dict) else cell if isinstance(cell, bytes) else None
        raws.append(content if content is not None else (table.path.parent / path) if path else None)
        paths.append(str(path) if path else None)
    return raws, paths
