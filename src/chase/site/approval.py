"""A site runs only settings that its people have accepted: those it first connected with, until they accept others.

``accepted.json`` holds them, ``proposed.json`` what the server would like to run instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chase.core.files import write_atomically

FREE = frozenset({"rounds", "target", "total_budget", "eval_every", "share_of_clients", "take_part"})
"""Settings that change neither what a site computes nor what leaves it."""


UNREADABLE = "accepted.json cannot be read: all settings must be accepted again"


def _read(path: Path) -> dict[str, Any] | None:
    """The settings of a file; none of one that is damaged, None where there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _differences(accepted: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The settings that differ, a line each."""
    if not accepted:
        return [UNREADABLE]
    keys = sorted(key for key in accepted.keys() | wanted.keys() if accepted.get(key) != wanted.get(key))
    return [f"{key}: {accepted.get(key)!r} -> {wanted.get(key)!r}" for key in keys]


def changes(home: Path, offered: Mapping[str, Any]) -> list[str]:
    """What differs from the accepted settings, a line each; the first that a site ever sees are accepted."""
    wanted = {key: value for key, value in offered.items() if key not in FREE}
    content = json.dumps(wanted, indent=2).encode()
    accepted = _read(home / "accepted.json")
    if accepted is None:
        write_atomically(home / "accepted.json", content)
        return []
    found = _differences(accepted, wanted)
    if found:
        write_atomically(home / "proposed.json", content)
    else:
        (home / "proposed.json").unlink(missing_ok=True)
    return found


def proposed(home: Path) -> list[str]:
    """What the server proposes and nobody has accepted yet."""
    wanted = _read(home / "proposed.json")
    return _differences(_read(home / "accepted.json") or {}, wanted) if wanted else []


def accept(home: Path) -> list[str]:
    """Accept what the server proposed; returns the lines that were accepted."""
    lines, wanted = proposed(home), _read(home / "proposed.json")
    if wanted:
        write_atomically(home / "accepted.json", json.dumps(wanted, indent=2).encode())
        (home / "proposed.json").unlink(missing_ok=True)
    return lines
