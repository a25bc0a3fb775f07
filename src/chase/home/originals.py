"""The originals of samples: what people see on the page instead of the decoded samples.

Texts become numbers for the network, so a home keeps a copy of each in ``originals/``. Image files stay where they are:
``originals`` of the card is their folder, and ``originals.json`` leads from a sample's name to its file where the two
differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from chase.home.home import write_durably

ORIGINALS = "originals"
FILES = "originals.json"


def original_name(name: str) -> str:
    """The file name under which the text of a sample is kept, whatever its users call it."""
    plain = quote(name, safe=" ")
    return f"{plain if len(plain) <= 200 else hashlib.sha256(name.encode()).hexdigest()}.txt"


def keep_texts(home: Path, names: Sequence[str], texts: Sequence[str]) -> None:
    """Write the texts of samples."""
    for name, text in zip(names, texts, strict=True):
        (home / ORIGINALS).mkdir(exist_ok=True)
        write_durably(home / ORIGINALS / original_name(name), text.encode())


def keep_files(home: Path, names: Sequence[str], files: Sequence[str]) -> None:
    """Note the image files of samples that are called otherwise."""
    other = {name: file for name, file in zip(names, files, strict=True) if file and file != name}
    if other:
        write_durably(home / FILES, json.dumps(other, ensure_ascii=False).encode())


def find_original(home: Path, root: Path, name: str) -> Path | None:
    """The original of a sample, None if there is none below ``root``."""
    below = root.resolve()
    for candidate in (root / _files(home).get(name, name), root / original_name(name)):
        path = candidate.resolve()
        if path.is_relative_to(below) and path.is_file():
            return path
    return None


@lru_cache(maxsize=16)
def _files(home: Path) -> Mapping[str, str]:
    try:
        found: dict[str, str] = json.loads((home / FILES).read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}
