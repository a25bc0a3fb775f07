"""Labels as files: CSV, and Label Studio's task and annotation JSON, out and in.

What comes in passes the inbox's door like an answer on the page: a known sample, a known class, not
answered already. A file is taken in whole or, asked so, without the lines that the door refuses. Label
Studio refuses annotators it does not know, so our files name the annotator in a task's data instead of
``completed_by``.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import quoteattr

from chase.core.errors import LabelError
from chase.home.home import Home
from chase.home.inbox import SKIPS, AnswerRefused, Given
from chase.home.views import SampleView

COLUMNS = (
    "sample",
    "name",
    "class",
    "label",
    "reason",
    "annotator",
    "answered_at",
    "seconds",
    "source",
    "saw_model",
    "unsure",
    "comment",
    "rule",
    "round",
    "turn",
    "strategy",
    "ev",
    "score",
)

LONGEST_CELL = 100_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is run as a formula by spreadsheets."""


def stamp(seconds: float | None) -> str:
    """A moment as ISO 8601, UTC."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def neutral(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: one that begins like one gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def plain(cell: str) -> str:
    """What ``neutral`` made of a cell, undone."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def to_csv(home: Home, waiting: bool = False, answers: bool = False) -> str:
    """Every label in force with its annotator, every answer, or every question that waits, a line each."""
    ledger = home.ledger
    rows = ledger.open_questions() if waiting else ledger.answers() if answers else ledger.labels()
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        label = row.get("label")
        name = "" if label is None else home.card.classes[label]
        filled = row | {"class": name, "answered_at": stamp(row.get("answered_at"))}
        writer.writerow({key: neutral(value) for key, value in filled.items()})
    return file.getvalue()


def to_label_studio(home: Home, view: SampleView, waiting: bool = False) -> str:
    """Label Studio tasks with samples inside; answers as annotations, the model's thought as predictions."""
    rows = home.ledger.open_questions() if waiting else home.ledger.labels()
    return json.dumps([_task(home, view, row) for row in rows], indent=1, ensure_ascii=False)


def _task(home: Home, view: SampleView, row: dict[str, Any]) -> dict[str, Any]:
    keep = ("sample", "name", "round", "turn", "strategy", "ev", "score", "annotator", "reason", "source", "saw_model")
    data = {key: row[key] for key in keep if row.get(key) not in (None, "")}
    shown = view.show(row["sample"])
    if shown.media.startswith("text/"):
        data["text"] = shown.body.decode()
    else:
        data["image"] = f"data:{shown.media};base64,{base64.b64encode(shown.body).decode()}"
    task: dict[str, Any] = {"id": row["sample"], "data": data}
    thoughts = json.loads(row.get("thoughts") or "[]")
    if thoughts:
        best, chance = thoughts[0]
        task["predictions"] = [
            {
                "model_version": f"round {row['round']}",
                "score": chance,
                "result": [_choice(home, best)],
            }
        ]
    if "answer" in row:
        task["annotations"] = [
            {
                "id": row["answer"],
                "result": [] if row["label"] is None else [_choice(home, row["label"])],
                "was_cancelled": row["label"] is None,
                "lead_time": row["seconds"],
                "created_at": stamp(row["answered_at"]),
            }
        ]
    return task


def _choice(home: Home, label: int) -> dict[str, Any]:
    return {
        "from_name": "label",
        "to_name": "sample",
        "type": "choices",
        "value": {"choices": [home.card.classes[label]]},
    }


def label_studio_config(home: Home) -> str:
    """The labelling interface that our Label Studio files fit."""
    tag, value = ("Image", "$image") if home.card.kind == "image" else ("Text", "$text")
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in home.card.classes)
    return (
        f'<View>\n  <{tag} name="sample" value="{value}"/>\n'
        f'  <Choices name="label" toName="sample" choice="single" showInline="true">\n{choices}\n'
        "  </Choices>\n</View>\n"
    )


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


@dataclass
class ImportResult:
    """What became of a file."""

    accepted: int = 0
    unchanged: int = 0
    """Lines that say what is in force already."""
    refused: list[str] = field(default_factory=list)


def read_csv(text: str) -> list[Line]:
    """Lines of a CSV with a header: ``sample`` or ``name``, ``class`` or ``label``; the rest may be missing."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        return _csv_lines(reader)
    except csv.Error as error:
        raise LabelError(f"line {reader.line_num + 1} cannot be read as CSV: {error}") from None


def _csv_lines(reader: csv.DictReader[str]) -> list[Line]:
    header = set(reader.fieldnames or ())
    if not header & {"sample", "name"} or not header & {"class", "label"}:
        raise LabelError(
            f"a CSV of labels has a column 'sample' or 'name' and a column 'class' or 'label', not {sorted(header)}"
        )
    lines = []
    for row in reader:
        where = f"line {reader.line_num}"
        cell = {key: plain(value or "") for key, value in row.items() if isinstance(key, str)}
        if max(map(len, cell.values()), default=0) > LONGEST_CELL:
            raise LabelError(f"{where} cannot be read as CSV: a cell holds more than {LONGEST_CELL:,} characters")
        lines.append(
            Line(
                where,
                _whole(cell.get("sample", "").strip(), where, "sample"),
                cell.get("name", ""),
                _whole(cell.get("label", "").strip(), where, "label"),
                cell.get("class", ""),
                cell.get("reason", "").strip(),
                cell.get("annotator", "").strip(),
                _number(cell.get("seconds", "")),
                _moment(cell.get("answered_at", "")),
                cell.get("saw_model", "").strip() in ("1", "true", "True"),
                cell.get("unsure", "").strip() in ("1", "true", "True"),
                cell.get("comment", ""),
            )
        )
    return lines


def read_label_studio(text: str) -> list[Line]:
    """Every annotation of each task of a Label Studio JSON export, oldest first; tasks without any are skipped."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabelError(f"the file is not JSON: {error}") from None
    if not isinstance(tasks, list):
        raise LabelError("a Label Studio file is a JSON list of tasks")
    lines = []
    for place, task in enumerate(tasks, 1):
        where = f"task {place}"
        try:
            data, annotations = task["data"], task.get("annotations") or []
            told = [one for one in annotations if one.get("result") or one.get("was_cancelled")] or annotations[-1:]
            lines += sorted((_annotated(where, data, one) for one in told), key=lambda line: line.answered_at or 0.0)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise LabelError(f"{where} is not a Label Studio task: {type(error).__name__} {error}") from None
    return lines


def _annotated(where: str, data: dict[str, Any], annotation: dict[str, Any]) -> Line:
    sample = data.get("sample")
    by = annotation.get("completed_by")
    if isinstance(by, dict):
        by = by.get("email") or by.get("id")
    if isinstance(by, int):
        by = f"Label Studio user {by}"
    chosen = [r["value"]["choices"][0] for r in annotation.get("result") or [] if r.get("type") == "choices"]
    skipped = bool(annotation.get("was_cancelled")) or not chosen
    reason = data.get("reason") if data.get("reason") in SKIPS else SKIPS[0]
    return Line(
        where,
        sample if isinstance(sample, int) else None,
        str(data.get("name", "")),
        class_name="" if skipped else str(chosen[0]),
        reason=str(reason) if skipped else "",
        annotator=str(by or data.get("annotator") or ""),
        seconds=_number(annotation.get("lead_time")),
        answered_at=_moment(str(annotation.get("updated_at") or annotation.get("created_at") or "")),
        saw_model=bool(data.get("saw_model")) or annotation.get("parent_prediction") is not None,
    )


def _whole(text: str, where: str, column: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise LabelError(f"{where}: '{column}' must be a whole number, not '{text}'") from None


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and found >= 0 else None


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def take_in(
    home: Home, lines: Sequence[Line], annotator: str = "", revise: bool = False, keep_good: bool = False
) -> ImportResult:
    """Import the lines of a file through the door; all of them, or with ``keep_good`` those that fit.

    Several lines of different people for one sample are several answers.
    """
    outcome = ImportResult()
    here: dict[int, set[int]] = {}
    with home.database.transaction():
        for line in lines:
            try:
                given = _given(home, line, annotator, revise, here)
                if given is None:
                    outcome.unchanged += 1
                else:
                    home.inbox.answer(given)
                    outcome.accepted += 1
            except AnswerRefused as refused:
                outcome.refused.append(f"{line.where}: {refused}")
        if outcome.refused and not keep_good:
            raise LabelError(_sentence(outcome.refused))
        if outcome.accepted:
            home.audit.note(annotator or "import", "import", accepted=outcome.accepted, revise=revise)
    return outcome


def _sentence(refused: list[str]) -> str:
    more = f", and {len(refused) - 3} more" if len(refused) > 3 else ""
    return f"nothing was imported, for {'; '.join(refused[:3])}{more} (--keep-good imports the rest)"


def _given(home: Home, line: Line, annotator: str, revise: bool, here: dict[int, set[int]]) -> Given | None:
    """The line as an answer; None if it says what is in force already. ``here``: who spoke of what in this file."""
    sample = find_sample(home, line)
    label = find_label(home.card.classes, line)
    who = home.people.named(annotator or line.annotator or "import")
    others = here.setdefault(sample, set())
    opinions = home.inbox.verdicts.opinions(sample)
    mine = next((one for one in reversed(opinions) if one.annotator == who.id), None)
    said = mine is not None and (mine.label, mine.reason) == (label, "" if label is not None else line.reason)
    current = home.inbox.current(sample)
    same = current is not None and current["label"] == label and (label is not None or current["reason"] == line.reason)
    first, again = not others - {who.id}, who.id in others
    others.add(who.id)
    if said or (same and first):
        return None
    reason = line.reason if label is None else ""
    return Given(
        sample,
        label,
        who.id,
        reason,
        line.seconds,
        "import",
        revise=(revise and first) or again,
        answered_at=line.answered_at,
        another=not first,
        saw_model=line.saw_model,
        unsure=line.unsure,
        comment=line.comment,
    )


def find_sample(home: Home, line: Line) -> int:
    """The sample that a line means."""
    if line.sample is not None:
        if abs(line.sample) >= 2**63 or home.inbox.sample_name(line.sample) is None:
            raise AnswerRefused("unknown sample", f"sample {line.sample} is not one of this client's")
        return line.sample
    found = home.inbox.sample_named(line.name)
    if found is None:
        raise AnswerRefused("unknown sample", f"no one sample is called '{line.name}'")
    return found


def find_label(classes: Iterable[str], line: Line) -> int | None:
    """The class that a line means, None for a skip."""
    names = list(classes)
    if line.class_name:
        if line.class_name not in names:
            raise AnswerRefused("unknown class", f"there is no class '{line.class_name}'")
        meant = [number for number, name in enumerate(names) if name == line.class_name]
        if line.label is None:
            return meant[0]
        if line.label not in meant:
            raise AnswerRefused(
                "unknown class",
                f"class '{line.class_name}' is number {meant[0]}, not {line.label}: change both or empty one of them",
            )
    if line.label is None and not line.reason:
        raise AnswerRefused("unknown class", "neither a class nor a reason to skip is given")
    return line.label
