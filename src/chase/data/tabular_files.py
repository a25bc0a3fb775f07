"""Parquet and CSV files as tables: columns by name, and the place of each row as its file's readers count.

Parquet files written by the Hugging Face library carry the class names in their schema. Several files (shards) make
one table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.data.csv_file import read_csv

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class DataTable:
    """Files that were read."""

    path: Path
    """The first file."""
    rows: Any
    """The pyarrow table."""
    files: tuple[str, ...] = ()
    """The file name of each row's file, by ``owner``."""
    owner: NDArray[np.int64] | None = None
    """Which file each row is from; None = the only one."""
    lines: NDArray[np.int64] | None = None
    """CSV: the line of each row. None = rows are counted from 0, as those who open parquet files do."""
    problems: tuple[str, ...] = ()

    def column(self, name: str, what: str) -> Any:
        """A column, or a sentence that names those there are."""
        names = self.rows.column_names
        if name not in names:
            raise DataError(
                f"{self.path} has no {what} column '{name}'; it has: {', '.join(names)} (set {what}_column)"
            )
        return self.rows.column(name)

    def cells(self, name: str, what: str) -> list[Any]:
        """The cells of a column."""
        return list(self.column(name, what).to_pylist())

    def key(self, row: int) -> str:
        """A name for a row that leads back to it: ``items.csv:17`` (line) or ``items.parquet#16`` (row from 0)."""
        file, at = self._place(row)
        return f"{file}#{at}" if self.lines is None else f"{file}:{int(self.lines[row])}"

    def where(self, row: int) -> str:
        """The place of a row for a message."""
        file, at = self._place(row)
        return f"{file}, row {at} (counted from 0)" if self.lines is None else f"{file}, line {int(self.lines[row])}"

    def _place(self, row: int) -> tuple[str, int]:
        if self.owner is None:
            return self.path.name, row
        owner = int(self.owner[row])
        return self.files[owner], row - int(np.searchsorted(self.owner, owner))


def is_table_name(path: Path) -> bool:
    """Whether a file is a table by its name, in small or capital letters."""
    return path.suffix.lower() in TABLE_SUFFIXES


def read_table(path: Path, encoding: str = "") -> DataTable:
    """A parquet or CSV file."""
    try:
        if path.suffix.lower() == ".parquet":
            return DataTable(path, pyarrow.parquet.read_table(path, memory_map=True))
        read = read_csv(path, encoding)
        return DataTable(path, read.rows, lines=read.lines, problems=read.problems)
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot read {path}: {first}") from None


def read_tables(paths: Sequence[Path], encoding: str = "") -> DataTable:
    """One table of one or several files with the same columns."""
    parts = [read_table(path, encoding) for path in paths]
    if len(parts) == 1:
        return parts[0]
    names = parts[0].rows.column_names
    for part in parts[1:]:
        if part.rows.column_names != names:
            raise DataError(f"{part.path} has other columns than {parts[0].path}: shards must have the same")
    try:
        whole = pa.concat_tables([part.rows for part in parts], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"the shards beside {paths[0]} have different columns: {str(error).splitlines()[0]}") from None
    owner = np.repeat(np.arange(len(parts)), [part.rows.num_rows for part in parts])
    problems = tuple(problem for part in parts for problem in part.problems)
    known = [part.lines for part in parts if part.lines is not None]
    lines = np.concatenate(known) if len(known) == len(parts) else None
    return DataTable(paths[0], whole, tuple(path.name for path in paths), owner, lines, problems)


def class_names(table: DataTable, column: str) -> tuple[str, ...]:
    """The class names that a Hugging Face parquet file carries for a column, if it does."""
    note = (table.rows.schema.metadata or {}).get(b"huggingface")
    if note is None:
        return ()
    feature = json.loads(note).get("info", {}).get("features", {}).get(column, {})
    return tuple(feature.get("names") or ())
