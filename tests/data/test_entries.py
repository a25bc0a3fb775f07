"""Decoded data that is sent from one machine's cache to another's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chase.core.errors import DataError
from chase.data import sources
from chase.data.cache import entry_path, read_entry, receive_entry


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The entry of a CSV file, decoded in one cache; the process then has another, and cannot see the file."""
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "here"))
    lines = [f"{i},{i % 7},{'even' if i % 2 == 0 else 'odd'}" for i in range(40)]
    (tmp_path / "items.csv").write_text("\n".join(["a,b,label", *lines]))
    monkeypatch.chdir(tmp_path)
    found = sources.decoded("items.csv")
    assert found is not None
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "there"))
    (tmp_path / "items.csv").rename(tmp_path / "hidden.csv")
    return found.entry


def pieces(directory: Path) -> dict[str, list[object]]:
    def cut(file: Path) -> list[object]:
        octets = file.read_bytes()
        return [lambda at=at: octets[at : at + 100] for at in range(0, len(octets), 100)]

    return {file.name: cut(file) for file in directory.iterdir()}


def test_an_entry_is_received_once_and_read_like_the_file(
    sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = pieces(tmp_path / "here" / "decoded" / sent)
    assert read_entry(sent) is None
    assert receive_entry(sent, files)  # type: ignore[arg-type]
    assert not receive_entry(sent, {})
    monkeypatch.setitem(sources.SENT, "items.csv", sent)
    there = sources.load("items.csv")
    (tmp_path / "hidden.csv").rename(tmp_path / "items.csv")
    monkeypatch.delitem(sources.SENT, "items.csv")
    here = sources.load("items.csv")
    assert np.array_equal(there.train.inputs, here.train.inputs)
    assert there.classes == here.classes
    assert there.train_labels.tolist() == here.train_labels.tolist()


def test_half_an_entry_is_not_kept(sent: str, tmp_path: Path) -> None:
    def full() -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        receive_entry(sent, {"about.json": [lambda: b"{}", full]})
    assert not entry_path(sent).exists()
    assert not [p for p in entry_path(sent).parent.iterdir() if p.is_dir()]


def test_an_entry_that_is_gone_is_named(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sources.SENT, "items.csv", sent)
    with pytest.raises(DataError, match=r"'items.csv' was sent to this machine, but .* is missing or damaged"):
        sources.load("items.csv")
