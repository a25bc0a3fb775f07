"""What the lead has set for everybody who labels at a home."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from chase.annotation.opinions import RULES
from chase.core.errors import LabelError, unknown
from chase.home.schema import Database


def _setting(default: Any, help: str, low: float = 0, high: float = 0, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True)
class Policy:
    """The settings of a home's labelling; they hold from the next question on."""

    answers_per_sample: int = _setting(1, "Answers per sample, by different people", 1, 20)
    overlap: float = _setting(1.0, "Share of the questions that get this many answers", 0, 1)
    rule: str = _setting("majority", "Rule that makes one label of several answers", choices=RULES)
    second_opinions: int = _setting(0, "Second opinions per request at most (0: as the run says)", 0, 1000)
    gold_share: float = _setting(0.0, "Share of gold questions (with a known answer) mixed in", 0, 0.5)
    gold_warning: float = _setting(0.8, "Warn below this share of right answers to gold questions", 0, 1)
    reveal: str = _setting(
        "own",
        "When people see the model's prediction (own: as each person chooses)",
        choices=("own", "after", "before", "never"),
    )
    read_to_end: bool = _setting(False, "A text must be read to its end before it is labelled")
    goal: int = _setting(0, "Answers per person and day to aim for (0: none)", 0, 100_000)
    idle_minutes: int = _setting(0, "End a session after this many idle minutes (0: never)", 0, 1440)
    session_hours: int = _setting(0, "End a session after this many hours (0: a month)", 0, 720)

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, getattr(self, one.name), one.default, one.metadata)

    def reveal_to(self, own: str) -> str:
        """When a person sees the model's prediction: as the lead has set it, else as they like (``own``)."""
        return own if self.reveal == "own" else self.reveal


def _check(name: str, value: Any, default: Any, limits: Mapping[str, Any]) -> None:
    kind = type(default)
    fits = type(value) is kind or (kind is float and type(value) is int)
    if fits and limits["choices"]:
        fits = value in limits["choices"]
        wanted = f"one of {', '.join(limits['choices'])}"
    elif kind is bool:
        wanted = "true or false"
    else:
        wanted = f"a {'whole ' if kind is int else ''}number from {limits['low']:g} to {limits['high']:g}"
        fits = fits and limits["low"] <= value <= limits["high"]
    if not fits:
        raise LabelError(f"{name} must be {wanted}, not {value!r}")


def form() -> list[dict[str, Any]]:
    """What a form needs to know of each setting."""
    return [
        {
            "name": one.name,
            "type": type(one.default).__name__,
            "help": one.metadata["help"],
            "low": one.metadata["low"],
            "high": one.metadata["high"],
            "choices": list(one.metadata["choices"]) or None,
        }
        for one in fields(Policy)
    ]


class Policies:
    """Reads and writes the policy of a home."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> Policy:
        """The policy in force."""
        with self._database.reading() as db:
            rows = db.execute("SELECT key, value FROM policy").fetchall()
        known = {one.name for one in fields(Policy)}
        return Policy(**{row["key"]: json.loads(row["value"]) for row in rows if row["key"] in known})

    def change(self, values: Mapping[str, Any]) -> Policy:
        """Set some of the settings; an unknown one, or one that does not fit, changes nothing."""
        known = [one.name for one in fields(Policy)]
        for name in values:
            if name not in known:
                raise LabelError(unknown("setting of the policy", name, known))
        changed = replace(self.read(), **values)
        with self._database.transaction() as db:
            db.executemany(
                "INSERT INTO policy VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                [(name, json.dumps(getattr(changed, name))) for name in values],
            )
        return changed
