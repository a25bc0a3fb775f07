"""What happened, for people: ``events.jsonl`` (one line per event, flushed) and ``state.json`` (the current state)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from chase.core.files import append_jsonl, read_jsonl, write_atomically


class Diary:
    """Writes both files of a run directory."""

    def __init__(self, run: Path) -> None:
        self._events, self._state = run / "events.jsonl", run / "state.json"
        self.shown: dict[str, Any] = {}
        """The state as it was last written."""

    def note(self, round: int, what: str, site: str = "", why: str = "") -> None:
        """Add an event."""
        line = {"time": round_time(), "round": round, "site": site, "what": what, "why": why}
        append_jsonl(self._events, [line])

    def show(self, **state: Any) -> None:
        """Replace the state if it has changed."""
        now = self.shown | state
        if now != self.shown:
            self.shown = now
            write_atomically(self._state, json.dumps(now | {"time": round_time()}).encode())


def round_time() -> float:
    """Seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


def events(run: Path) -> list[dict[str, Any]]:
    """The events of a run directory."""
    return read_jsonl(run / "events.jsonl", skip_torn=True)


def state(run: Path) -> dict[str, Any]:
    """How things stood when the server last said so."""
    try:
        found = json.loads((run / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
