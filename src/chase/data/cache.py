"""Decoded data sets on disk, keyed by content, so that decoding happens once.

One directory a data set: ``about.json`` and one ``.npy`` file an array. Arrays are memory-mapped
(copy on write), so every process on a machine shares the same pages. An entry is written beside
and renamed, so a reader never sees half of one; a damaged entry is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from chase.core.errors import DataError
from chase.core.files import locked, replacing
from chase.data.decoded import DataPart, Decoded
from chase.data.names import Names
from chase.data.resident import Column

FORMAT = 3
"""Part of every key: raise it when decoding changes."""
_ARRAYS = ("inputs", "labels", "owners")
_TEXTS = ("names", "texts", "files")
"""What a part may have; two arrays each."""


def cache_root() -> Path:
    """``CHASE_CACHE``, or ``chase`` in the user's cache directory."""
    if own := os.environ.get("CHASE_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "chase"
    try:
        return Path.home() / ".cache" / "chase"
    except RuntimeError:
        # No directory below /tmp instead: everybody may write there, so what is read back could be another user's, and
        # it is often gone after a restart.
        raise DataError(
            "this user has no home directory, so there is no place for decoded data: set the environment variable "
            "CHASE_CACHE to a directory that you can write to"
        ) from None


def content_key(files: Iterable[Path], *words: str) -> str:
    """A key that changes with the bytes of any file, with their order and with any of the words."""
    sha = hashlib.blake2b(digest_size=12)
    for word in (str(FORMAT), *words):
        sha.update(f"{len(word)}:{word}".encode("utf-8", "surrogateescape"))  # file names need not be UTF-8
    for path in files:
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "blake2b").digest())
    return sha.hexdigest()


def entry_path(entry: str) -> Path:
    """Where the cache has an entry, or would have it."""
    return cache_root() / "decoded" / entry


def read_entry(entry: str) -> Decoded | None:
    """An entry by its name; None where the cache does not have it, or it is damaged."""
    return _read(entry_path(entry))


def receive_entry(entry: str, files: Mapping[str, Iterable[Callable[[], bytes | memoryview]]]) -> bool:
    """Put an entry of another machine's cache into this one; each file comes in pieces, fetched one by one.

    Several processes may receive the same at once: the first fetches it, the others find it. Returns whether this one
    had to fetch it.
    """
    place = entry_path(entry)
    with locked(place.with_name(f".{entry}.lock"), wait=True):
        if _read(place) is not None:
            return False
        with replacing(place) as beside:
            beside.mkdir(parents=True)
            for name, pieces in files.items():
                with (beside / name).open("wb") as file:
                    for piece in pieces:
                        file.write(piece())
            if place.exists():  # damaged
                shutil.rmtree(place)
    return True


def cached(name: str, key: str, make: Callable[[], Decoded]) -> Decoded:
    """The entry of this key, made if need be; without a writable cache the decoded arrays stay in memory."""
    entry = entry_path(f"{_plain(name)}-{key}")
    found = _read(entry)
    if found is not None:
        return found
    made = make()
    try:
        _write(entry, made)
    except OSError as error:
        reason = error.strerror or error
        note = (
            f"decoded data cannot be kept in {entry.parent} ({reason}), so every start decodes again: set CHASE_CACHE"
        )
        return replace(made, problems=(*made.problems, note))
    return _read(entry) or made


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in Path(name).name)[:40]


def _write(entry: Path, made: Decoded) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    with replacing(entry) as beside:
        beside.mkdir()
        about: dict[str, Any] = {
            "name": made.name,
            "kind": made.kind,
            "classes": made.classes,
            "mean": made.mean,
            "std": made.std,
            "owner_names": made.owner_names,
            "owner_sizes": made.owner_sizes,
            "vocabulary": made.vocabulary,
            "columns": [column.to_json() for column in made.columns],
            "scale": made.scale,
            "seconds": made.seconds,
            "reading": dict(made.reading),
            "problems": made.problems,
        }
        for side, part in (("train", made.train), ("test", made.test)):
            for what in _ARRAYS:
                array = getattr(part, what)
                if array is not None:
                    np.save(beside / f"{side}.{what}.npy", array, allow_pickle=False)
            for what in _TEXTS:
                texts: Names | None = getattr(part, what)
                if texts is not None:
                    np.save(beside / f"{side}.{what}.npy", texts.octets, allow_pickle=False)
                    np.save(beside / f"{side}.{what}.ends.npy", texts.ends, allow_pickle=False)
        (beside / "about.json").write_text(json.dumps(about), encoding="utf-8")
        if entry.exists():
            shutil.rmtree(entry)


def _read(entry: Path) -> Decoded | None:
    try:
        about = json.loads((entry / "about.json").read_text(encoding="utf-8"))
        train, test = _part(entry, "train"), _part(entry, "test")
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in about.items()
        }
        columns = tuple(Column.from_json(body) for body in fields.pop("columns", ()))
        return Decoded(train=train, test=test, columns=columns, entry=entry.name, **fields)
    except (OSError, ValueError, TypeError, KeyError, EOFError):
        return None


def _part(entry: Path, side: str) -> DataPart:
    arrays: dict[str, Any] = {}
    for what in _ARRAYS:
        path = entry / f"{side}.{what}.npy"
        if what == "owners" and not path.exists():
            arrays[what] = None
        else:
            whole = np.load(path, mmap_mode="c", allow_pickle=False)
            arrays[what] = np.asarray(whole) if what == "inputs" else np.array(whole)
    for what in _TEXTS:
        path = entry / f"{side}.{what}.npy"
        if path.exists():
            ends = np.load(entry / f"{side}.{what}.ends.npy", allow_pickle=False)
            # an empty file cannot be mapped
            octets = np.load(path, mmap_mode="c" if ends.size and ends[-1] else None, allow_pickle=False)
            arrays[what] = Names(np.asarray(octets), ends)
    sizes = {len(array) for array in arrays.values() if array is not None}
    if len(sizes) != 1:
        raise ValueError("arrays of different length")
    return DataPart(**arrays)
