"""Shakespeare by speaking role: 80 characters in, the next one out.

A row is a window of a role's lines and the windows overlap, so a role's rows are cut in file order: the
first 90 % train, the next 79 are skipped (they share characters with the training part), the rest
test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.data.decoded import DataPart, Decoded
from chase.data.tabular_files import read_table
from chase.data.texts import LETTERS, letter_table

WINDOW = 80
TRAIN_SHARE = 0.9
SKIPPED = WINDOW - 1


def read_roles(name: str, path: Path, text_column: str, label_column: str, role_column: str) -> Decoded:
    """Windows, next characters and roles of a parquet file."""
    table = read_table(path)
    inputs = _fixed_width(table.column(text_column, "text"), WINDOW, f"{path}, column '{text_column}'")
    labels = _fixed_width(table.column(label_column, "label"), 1, f"{path}, column '{label_column}'")[:, 0]
    coded = pc.dictionary_encode(table.column(role_column, "site").cast(pa.string())).combine_chunks()
    roles = coded.indices.to_numpy().astype(np.int64)
    names = tuple(str(role) for role in coded.dictionary.to_pylist())
    train, test = split_roles(roles)
    whole = DataPart(inputs, labels.astype(np.int64), roles)
    sizes = tuple(int(n) for n in np.bincount(roles, minlength=len(names)))
    return Decoded(
        name,
        "text",
        whole.take(train),
        whole.take(test),
        tuple(LETTERS),
        owner_names=names,
        owner_sizes=sizes,
        vocabulary=len(LETTERS),
    )


def split_roles(roles: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that train and rows that test, both in file order."""
    order = np.argsort(roles, kind="stable")
    train, test = [], []
    for rows in np.split(order, np.flatnonzero(np.diff(roles[order])) + 1):
        cut = int(TRAIN_SHARE * rows.size)
        train.append(rows[:cut])
        test.append(rows[cut + SKIPPED :])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _fixed_width(column: Any, width: int, where: str) -> NDArray[np.uint8]:
    """Letters of a text column whose cells all have ``width`` characters, as tokens (rows, width)."""
    table, parts = letter_table(), []
    for chunk in column.chunks:
        cells = chunk.cast(pa.large_string())
        lengths = pc.binary_length(cells)
        if cells.null_count or pc.min(lengths).as_py() != width or pc.max(lengths).as_py() != width:
            raise DataError(f"{where}: every cell must have {width} ASCII characters")
        offsets = np.frombuffer(cells.buffers()[1], dtype=np.int64)[cells.offset :]
        octets = np.frombuffer(cells.buffers()[2], dtype=np.uint8)
        parts.append(table[octets[offsets[0] : offsets[0] + width * len(cells)].reshape(-1, width)])
    return np.concatenate(parts)
