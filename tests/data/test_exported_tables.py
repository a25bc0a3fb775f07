"""The exported program reads the tables that chase itself reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chase.core.errors import DataError
from chase.data.csv_file import read_csv
from chase.export import load_model

ABOUT: dict[str, Any] = {
    "kind": "table",
    "columns": [{"name": "size, cm", "kind": "numeric"}, {"name": "sex", "kind": "categorical", "values": ["f", "ü"]}],
}


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("plain.csv", '"size, cm",sex\n1.5,f\n,ü\n'.encode(), [2, 3]),
        ("blank_first.csv", '\n   \n"size, cm";sex\n1.5;f\n\n;ü\n'.encode(), [4, 6]),
        ("line_of_blanks.csv", '"size, cm",sex\n1.5,f\n  \n,ü\n \n'.encode(), [2, 4]),
        ("commas.tsv", "size, cm\tsex\n1.5\tf\n\tü\n".encode(), [2, 3]),
        ("utf16.csv", '"size, cm"\tsex\n1.5\tf\n\tü\n'.encode("utf-16"), [2, 3]),
        ("windows.csv", '"size, cm",sex\n1.5,f\n,ü\n'.encode("cp1252"), [2, 3]),
        ("latin.csv", b'"size, cm",sex,\x81\n1.5,f,\n,\xfc,\n', [2, 3]),
        ("windows.TSV", "size, cm\tsex\r\n1.5\tf\r\n\tü\r\n".encode("utf-8-sig"), [2, 3]),
    ],
)
def test_a_table_has_the_same_rows_as_in_chase(tmp_path: Path, name: str, content: bytes, lines: list[int]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    whole = read_csv(path)
    assert (whole.lines.tolist(), whole.rows.column("sex").to_pylist()) == (lines, ["f", "ü"])
    found = load_model.read_samples(path, ABOUT)
    assert [sample for sample, _, _ in found] == [f"{path}:{line}" for line in lines]
    assert [row.nan_to_num(-1).tolist() for _, row, _ in found] == [[1.5, 0.0], [-1.0, 1.0]]
    guess = {"windows.csv": "cp1252", "latin.csv": "latin-1"}.get(name)
    assert {note for _, _, note in found} == {f"not UTF-8, so read as {guess}" if guess else ""}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "bad.csv is empty"),
        (b"\n \n", "bad.csv is empty"),
        (b"sex,sex\nf,f\n", "two columns of the same name .'sex'"),
        (b'"size, cm",sex\n1\n', "line 2: 1 cells, but the header has 2"),
        (b'"size, cm",sex\n1,"f\n', "bad.csv, line 2: unexpected end of data"),
    ],
)
def test_a_bad_table_is_refused_by_both_in_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_csv(path)
    with pytest.raises(ValueError, match=words):
        load_model.read_rows(path, ABOUT)
