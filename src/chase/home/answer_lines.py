"""Answers as files have them, and whose answers a label is made of.

A label that several people agree on is one line of a file with several authors. What each of them said goes with it
(``told``), so that a file that comes back, here or elsewhere, holds as many people as it did.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from chase.annotation.opinions import RULES
from chase.core.errors import LabelError
from chase.home.home import Home

DECISION = "decision"
"""The rule of a label that an adjudicator decided."""


def stamp(seconds: float | None) -> str:
    """A moment as ISO 8601, UTC."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def number(value: Any) -> float | None:
    """A number of 0 or more, None for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and found >= 0 else None


def moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 moment, None for anything else."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Line:
    """An answer as a file has it."""

    where: str
    """Where in the file, for messages."""
    sample: int | None = None
    name: str = ""
    label: int | None = None
    class_name: str = ""
    reason: str = ""
    annotator: str = ""
    seconds: float | None = None
    answered_at: float | None = None
    saw_model: bool = False
    unsure: bool = False
    comment: str = ""
    decides: bool = False
    """A decision of an adjudicator."""
    corrects: str = ""
    """Whose answer this one was made of; by another person, it corrects the label as a decision does."""


Row = Mapping[str, Any]


def answers_by_sample(home: Home) -> dict[int, list[Row]]:
    """Every person's answer in force to each sample, oldest first."""
    found: dict[int, dict[str, Row]] = {}
    for row in home.ledger.answers():
        of = found.setdefault(row["sample"], {})
        of.pop(row["annotator"], None)
        of[row["annotator"]] = row
    return {sample: list(of.values()) for sample, of in found.items()}


def authors_of(label: Row, said: Sequence[Row]) -> list[Row]:
    """The answers among those to a sample that its label is made of; the label itself if none is in force any more."""
    if label["rule"] in RULES:
        meant = (label["label"], label["reason"])
        found = [one for one in said if (one["label"], one["reason"]) == meant and not one["decides"]]
    else:
        found = [one for one in said if one["answer"] == label["answer"]]
    return found or [dict(label) | {"decides": label["rule"] == DECISION}]


def told(answer: Row, classes: Sequence[str]) -> dict[str, Any]:
    """What one person said, as files carry it; what is empty is left out."""
    found = {
        "annotator": answer["annotator"],
        "class": "" if answer["label"] is None else classes[answer["label"]],
        "reason": answer["reason"],
        "answered_at": stamp(answer["answered_at"]),
        "seconds": answer["seconds"],
        "saw_model": bool(answer["saw_model"]),
        "unsure": bool(answer["unsure"]),
        "comment": answer["comment"],
        "decides": bool(answer["decides"]),
    }
    return {key: value for key, value in found.items() if value not in ("", None, False)}


def as_told(line: Line, one: Row) -> Line:
    """The line as the answer of one of its authors."""
    return replace(
        line,
        annotator=str(one.get("annotator", "")),
        seconds=number(one.get("seconds")),
        answered_at=moment(str(one.get("answered_at", ""))),
        saw_model=one.get("saw_model") is True,
        unsure=one.get("unsure") is True,
        comment=str(one.get("comment", "")),
        decides=one.get("decides") is True,
    )


def split_authors(line: Line, rule: str, answers: str) -> list[Line]:
    """The line of a label as one line for each of its authors.

    ``answers`` is what each of them said. A class that was changed in the file is nobody's answer so far: it is one
    correction, by whoever imports it. Older files have the authors' names only.
    """
    if rule not in RULES:
        return [replace(line, decides=rule == DECISION)]
    if not answers:
        names = next(csv.reader([line.annotator], skipinitialspace=True), [])
        return [replace(line, annotator=name, seconds=None, comment="", unsure=False) for name in names] or [line]
    try:
        found = [dict(one) for one in json.loads(answers)]
    except (ValueError, TypeError):
        raise LabelError(f"{line.where}: 'answers' must be as `chase label export` wrote it, or empty") from None
    if any((one.get("class", ""), one.get("reason", "")) != (line.class_name, line.reason) for one in found):
        return [replace(line, annotator="", seconds=None, comment="", unsure=False, answered_at=None)]
    return [as_told(line, one) for one in found]
