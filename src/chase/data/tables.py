"""Parquet and CSV files as tables: columns by name, images or texts, labels and owners.

Parquet files written by the Hugging Face library carry the class names in their schema; an image
column is a struct of bytes and path, plain bytes, or a path relative to the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from chase.core.errors import DataError
from chase.data.assemble import Raw
from chase.data.images import decode
from chase.data.options import DataOptions
from chase.data.pictures import RAW
from chase.data.texts import tokenize


@dataclass(frozen=True)
class TableFile:
    """A file that was read."""

    path: Path
    rows: Any
    """The pyarrow table."""

    def column(self, name: str, what: str) -> Any:
        """A column, or a sentence that names those there are."""
        names = self.rows.column_names
        if name not in names:
            raise DataError(
                f"{self.path} has no {what} column '{name}'; it has: {', '.join(names)} (set {what}_column)"
            )
        return self.rows.column(name)


def read_table(path: Path) -> TableFile:
    """A parquet or CSV file."""
    try:
        if path.suffix == ".parquet":
            return TableFile(path, pyarrow.parquet.read_table(path, memory_map=True))
        return TableFile(path, _read_csv(path))
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot read {path}: {first}") from None


def _read_csv(path: Path) -> Any:
    """All cells as text, so that a site "007" and a class "NA" stay what they are; only an empty cell is null."""
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True, delimiter="\t" if path.suffix == ".tsv" else ",")
    with pyarrow.csv.open_csv(path, parse_options=parse) as reader:
        names = reader.schema.names
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)


def class_names(table: TableFile, column: str) -> tuple[str, ...]:
    """The class names that a Hugging Face parquet file carries for a column, if it does."""
    note = (table.rows.schema.metadata or {}).get(b"huggingface")
    if note is None:
        return ()
    feature = json.loads(note).get("info", {}).get("features", {}).get(column, {})
    return tuple(feature.get("names") or ())


def labels_as_text(table: TableFile, column: str) -> list[str | None]:
    """Labels by name; None where the cell is empty."""
    if not column:
        return [None] * table.rows.num_rows
    names, cells = class_names(table, column), table.column(column, "label")
    if names and pa.types.is_integer(cells.type):
        return [
            None if n is None or n == -1 else names[n] if 0 <= n < len(names) else str(n) for n in cells.to_pylist()
        ]
    return [None if cell is None else str(cell).strip() or None for cell in cells.to_pylist()]


def owners_as_text(table: TableFile, column: str) -> list[str] | None:
    """The owner of each row, where the table has a site column; an empty cell is refused."""
    if not column:
        return None
    owners = table.column(column, "site").to_pylist()
    for row, owner in enumerate(owners):
        if owner is None or not str(owner).strip():
            raise DataError(f"{table.path}: the site column '{column}' is empty in row {row}")
    return [str(owner).strip() for owner in owners]


def image_cells(table: TableFile, column: str) -> tuple[list[RAW | None], list[str]]:
    """Encoded images of a column (bytes, or paths beside the file) and a name for each."""
    cells = table.column(column, "image")
    raws: list[RAW | None] = []
    names: list[str] = []
    for row, cell in enumerate(cells.to_pylist()):
        path = cell.get("path") if isinstance(cell, dict) else cell if isinstance(cell, str) else None
        content = cell.get("bytes") if isinstance(cell, dict) else cell if isinstance(cell, bytes) else None
        raws.append(content if content is not None else (table.path.parent / path) if path else None)
        names.append(str(path) if path else f"in row {row} of {table.path}")
    return raws, names


def pick(cells: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """The cells of these rows."""
    return [cells[row] for row in rows]


def read_images(path: Path, options: DataOptions) -> Raw:
    """Images, labels and owners of one file."""
    table = read_table(path)
    labels, owners = labels_as_text(table, options.label_column), owners_as_text(table, options.site_column)
    images = decode(*image_cells(table, options.image_column), options)
    kept = images.kept.tolist()
    return Raw(
        "image",
        images.pixels,
        pick(labels, kept),
        None if owners is None else pick(owners, kept),
        images.problems,
        scale=images.scale,
    )


def read_texts(path: Path, options: DataOptions) -> Raw:
    """Texts as tokens, labels and owners of one file; an empty text stays, as padding only."""
    table = read_table(path)
    labels, owners = labels_as_text(table, options.label_column), owners_as_text(table, options.site_column)
    texts = ["" if cell is None else str(cell) for cell in table.column(options.text_column, "text").to_pylist()]
    if not texts:
        raise DataError(f"{path} has no rows")
    empty = sum(not text.strip() for text in texts)
    problems = (f"{empty} texts of {path.name} are empty",) if empty else ()
    tokens, vocabulary = tokenize(texts, options.tokens, options.text_length)
    return Raw("text", tokens, labels, owners, problems, vocabulary)
