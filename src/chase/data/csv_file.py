"""CSV files as people save them: comma, semicolon or tab; UTF-8, UTF-16 or Windows-1252; line numbers of an editor."""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chase.core.errors import DataError

DELIMITERS = ",;\t|"
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class CsvFile:
    """Cells as text (an empty one is null), the line of each row, and what should be known of the file."""

    rows: pa.Table
    lines: NDArray[np.int64]
    """The line on which each row begins, as an editor counts."""
    problems: tuple[str, ...] = ()


def read_csv(path: Path, encoding: str = "") -> CsvFile:
    """All cells as text, so that a site "007" and a class "NA" stay what they are."""
    text, problems = decode_text(path, path.read_bytes(), encoding)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else find_delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    columns: list[list[str | None]] = []
    lines: list[int] = []
    before = 0
    try:
        for cells in reader:
            line, before = before + 1, reader.line_num
            if not cells or (len(cells) == 1 and not cells[0].strip() and len(header) != 1):
                continue  # a blank line
            if not header:
                header = [cell.strip() for cell in cells]
                _check_header(path, header)
                columns = [[] for _ in header]
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"{path}, line {line}: {len(cells)} cells, but the header has {len(header)}: a cell that holds "
                    f"{delimiter!r} or a line break must be in double quotes"
                )
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell if cell != "" else None)
            lines.append(line)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    if not header:
        raise DataError(f"{path} is empty: its first line names the columns")
    arrays = [pa.array(column, type=pa.large_string()) for column in columns]
    return CsvFile(pa.table(arrays, names=header), np.array(lines, dtype=np.int64), problems)


def decode_text(path: Path, content: bytes, encoding: str = "") -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a sentence where its encoding had to be guessed."""
    mark = next((name for octets, name in MARKS.items() if content.startswith(octets)), "")
    wanted = encoding or mark or "utf-8"
    try:
        return content.decode(wanted), ()
    except LookupError:
        raise DataError(f"encoding = '{encoding}' is not known; for example utf-8, latin-1, cp1252 or utf-16") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        if encoding:
            raise DataError(f"{path}, line {line}: this is not {encoding}; set another encoding") from None
        try:
            text, guess = content.decode("cp1252"), "cp1252"
        except UnicodeDecodeError:
            text, guess = content.decode("latin-1"), "latin-1"
        note = f"{path.name} is not UTF-8 (line {line}), so it was read as {guess}: set encoding if letters look wrong"
        return text, (note,)


def find_delimiter(text: str) -> str:
    """The character that separates the names in the first line that is not blank, quoted parts aside."""
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    bare = "".join(first.split('"')[::2])
    counts = {mark: bare.count(mark) for mark in DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def _check_header(path: Path, header: list[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        shown = ", ".join(f"'{name}'" for name in twice)
        raise DataError(f"{path} has two columns of the same name ({shown}): rename one in its first line")
