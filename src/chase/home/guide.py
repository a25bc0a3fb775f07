"""Guidelines beside the task: ``guidelines.md`` in the home, and ``guidelines/CLASS/`` with example pictures.

A heading of the file that is called like a class begins what is said of that class.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from chase.core.errors import LabelError
from chase.home.home import Home
from chase.home.views import Shown, original

FILE = "guidelines.md"
FOLDER = "guidelines"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".dcm")
MOST_PICTURES = 6
"""Example pictures shown of a class."""

Block = dict[str, Any]


def blocks(text: str) -> list[Block]:
    """Markdown as headings, lists and paragraphs; whatever else it holds stays text."""
    found: list[Block] = []
    for part in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = [line.rstrip() for line in part.splitlines() if line.strip()]
        while lines:
            if lines[0].lstrip().startswith("#"):
                found.append({"kind": "heading", "lines": [lines.pop(0).lstrip("# ").strip()]})
                continue
            bullet = re.match(r"\s*([-*+]|\d+\.)\s+", lines[0]) is not None
            taken = []
            while lines and not lines[0].lstrip().startswith("#"):
                if (re.match(r"\s*([-*+]|\d+\.)\s+", lines[0]) is not None) != bullet:
                    break
                taken.append(re.sub(r"^\s*([-*+]|\d+\.)\s+", "", lines.pop(0)).strip())
            found.append({"kind": "list" if bullet else "paragraph", "lines": taken})
    return found


class Guide:
    """The guidelines of a home, read again each time: people edit them while others label."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def exists(self) -> bool:
        """Whether there is anything to show."""
        return (self._home.path / FILE).is_file() or (self._home.path / FOLDER).is_dir()

    def read(self) -> dict[str, Any]:
        """What is said of all classes, and of each one with its pictures."""
        file = self._home.path / FILE
        try:
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise LabelError(f"{file} cannot be read: {error}") from None
        general: list[Block] = []
        of: dict[str, list[Block]] = {name: [] for name in self._home.card.classes}
        place = general
        for block in blocks(text):
            if block["kind"] == "heading" and block["lines"][0] in of:
                place = of[block["lines"][0]]
            else:
                place.append(block)
        classes = [{"name": name, "blocks": said, "pictures": self._pictures(name)} for name, said in of.items()]
        return {"blocks": general, "classes": [one for one in classes if one["blocks"] or one["pictures"]]}

    def _pictures(self, name: str) -> list[str]:
        folder = self._home.path / FOLDER / name
        if "/" in name or name in ("", ".", "..") or not folder.is_dir():
            return []
        found = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
        return [f"{name}/{picture}" for picture in found[:MOST_PICTURES]]

    def picture(self, name: str) -> Shown:
        """An example picture by the name that ``read`` gave it."""
        if name not in {picture for one in self.read()["classes"] for picture in one["pictures"]}:
            raise LabelError("there is no such picture in the guidelines")
        shown: Path = self._home.path / FOLDER
        found = original(self._home.path, shown, name)
        if found is None:
            raise LabelError("there is no such picture in the guidelines")
        return found
