"""Texts that came from elsewhere: made safe for a terminal, a log line and a page; lists of names taken apart."""

from __future__ import annotations

import shlex
import unicodedata
from pathlib import Path

LONGEST = 300
"""Characters that a text from another machine may have."""


def clean(text: str, most: int = LONGEST) -> str:
    """One line without control, format or unassigned characters, at most ``most`` characters long."""
    head = text[: 4 * most]
    plain = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in head)
    kept = "".join(c for c in plain if not unicodedata.category(c).startswith("C"))
    words = " ".join(kept.split())
    return words if len(words) <= most and len(text) <= 4 * most else words[: most - 3] + "..."


def split_list(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def quoted(path: Path | str) -> str:
    """A path as a word of a command to copy; one that begins with a dash is no option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def counted(count: int, one: str, many: str = "") -> str:
    """A count and what is counted: ``1 class``, ``2 classes``."""
    return f"{count} {one if count == 1 else many or one + 's'}"
