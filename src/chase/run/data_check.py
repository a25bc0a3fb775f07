"""Is the data of a resumed run what it was? By content, wherever it lies now.

``data.json`` of a run directory holds a digest of samples, labels, classes and names, and where the data was relative
to the run, so that a run and its data can be moved together.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from chase.core.errors import DataError, RunDirectoryError
from chase.core.files import write_atomically
from chase.data.resident import DataSet
from chase.data.sources import SENT, looks_like_path
from chase.settings import Settings

FILE = "data.json"
PATHS = ("data", "test_data")
"""Settings that may be paths."""


def digest(data: DataSet) -> str:
    """A fingerprint of all that a run takes from its data."""
    sha = hashlib.blake2b(digest_size=16)
    sha.update(json.dumps([data.classes, data.train.kind, data.train.scale]).encode())
    for array in (data.train.inputs.numpy(), data.train_labels, data.test.inputs.numpy(), data.test_labels):
        sha.update(f"{array.dtype}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    for names in (data.train_names, data.test_names, data.train_texts, data.test_texts):
        sha.update(b"" if names is None else names.octets.tobytes())
    if data.groups is not None:
        sha.update(data.groups.tobytes())
    return sha.hexdigest()


def is_path(settings: Settings, key: str) -> bool:
    """Whether a setting names a file or folder."""
    value = str(getattr(settings, key))
    return bool(value) and (key != "data" or (not value.startswith("hub:") and looks_like_path(value)))


def keep(run: Path, settings: Settings, data: DataSet) -> None:
    """Write the file of a new run."""
    body = {"digest": digest(data), "places": places(run, settings), "reading": dict(data.reading)}
    write_atomically(run / FILE, json.dumps(body, indent=2).encode())


def here(run: Path, settings: Settings) -> None:
    """Note where the data is now relative to a run: the data has moved, or the run began on another machine."""
    known = _read(run)
    if known:
        write_atomically(run / FILE, json.dumps({**known, "places": places(run, settings)}, indent=2).encode())


def places(run: Path, settings: Settings) -> dict[str, str]:
    """Where the data is relative to the run, by setting."""
    return {key: os.path.relpath(getattr(settings, key), run) for key in PATHS if is_path(settings, key)}


def locate(run: Path, settings: Settings, given: Collection[str] = ()) -> Settings:
    """Settings whose paths lead to the data: as ``given`` now, or else relative to the run as when it began.

    A relative path is of the directory in which the run began; where it is resumed may hold something of that name too.
    """
    found: dict[str, str] = {}
    if settings.data in SENT:
        return settings
    known = _read(run)
    places = known.get("places", {})
    if "places" in known and settings.test_data and "test_data" not in places:
        raise RunDirectoryError(
            f"test_data = {settings.test_data}, but {run} began without it, and what a run is measured on stays the "
            f"same: measure its model with `chase evaluate {shlex.quote(str(run))} {settings.test_data}`, or start a "
            "new run with it"
        )
    for key in PATHS:
        # A name without a slash looks like a path only while the file is there; the run knows what it was.
        named, place = Path(getattr(settings, key)), places.get(key)
        known_there = place is not None and (run / place).exists()
        if known_there and key not in given and not named.is_absolute():
            found[key] = os.path.normpath(run / str(place))
        elif (key in places or is_path(settings, key)) and not named.exists():
            if place is not None and known_there:
                found[key] = os.path.normpath(run / place)
            elif place is not None:
                beside = os.path.normpath(run / place)
                nor = "" if os.path.abspath(named) == os.path.abspath(beside) else f", nor does {beside}"
                raise DataError(f"{key} = {named} does not exist{nor}: say where it is now with --set {key}=PLACE")
    return settings.model_copy(update=found)


def whereabouts(run: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Where the data may be now: relative to the run as when it began, and as the settings name it."""
    known = _read(run).get("places", {})
    named = [str(settings.get(key) or "") for key in known]
    found = [*(run / place for place in known.values()), *(Path(name) for name in named if Path(name).is_absolute())]
    return [place for place in found if place.exists()]


def reading(run: Path) -> dict[str, str] | None:
    """Which columns of its table a run read, by setting; None for other data and for runs of earlier versions."""
    return _read(run).get("reading") or None


def check(run: Path, data: DataSet) -> None:
    """Refuse data of another content; runs of earlier versions have no digest."""
    known = str(_read(run).get("digest", ""))
    if known and known != digest(data):
        raise RunDirectoryError(
            f"the content of '{data.name}' is not what it was when {run} began (samples, labels, names or classes "
            "differ): restore the old data, or start a new run"
        )


def _read(run: Path) -> dict[str, dict[str, str]]:
    try:
        found: dict[str, dict[str, str]] = json.loads((run / FILE).read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}
