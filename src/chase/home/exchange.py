"""Labels as files: export and import of CSV and JSON, and the one import of labels from elsewhere (``import_lines``).

An import passes the same checks as an answer on the page: a known sample, a known class, not
answered already. A file is imported completely or, on request, without the lines that are refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from chase.annotation.opinions import listed
from chase.core.errors import LabelError
from chase.home.answer_lines import (
    DECISION,
    Line,
    answers_by_sample,
    authors_of,
    moment,
    number,
    split_authors,
    stamp,
    told,
)
from chase.home.home import Home
from chase.home.inbox import AnswerRefused, Given
from chase.home.people import Person

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
    "answers",
)

LONGEST_CELL = 100_000
YES = ("1", "true", "True")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is run as a formula by spreadsheets."""


def neutral(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: one that begins like one gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def plain(cell: str) -> str:
    """What ``neutral`` made of a cell, undone."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _rows(home: Home, waiting: bool, answers: bool) -> list[dict[str, Any]]:
    """Every label in force with its annotators, every answer, or every question that waits, by column."""
    ledger, classes = home.ledger, home.card.classes
    rows = ledger.open_questions() if waiting else ledger.answers() if answers else ledger.labels()
    said = {} if waiting or answers else answers_by_sample(home)
    found = []
    for row in rows:
        label = row.get("label")
        more = {"class": "" if label is None else classes[label], "answered_at": stamp(row.get("answered_at"))}
        if answers:
            more["rule"] = DECISION if row["decides"] else ""
        filled = {column: (row | more).get(column) for column in COLUMNS}
        authors = authors_of(row, said.get(row["sample"], [])) if said else []
        if len(authors) > 1:
            filled["answers"] = [told(one, classes) for one in authors]
        found.append(filled)
    return found


def to_csv(home: Home, waiting: bool = False, answers: bool = False) -> str:
    """Every label in force with its annotators, every answer, or every question that waits, a line each."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(home, waiting, answers):
        cells = row | {"answers": json.dumps(row["answers"], ensure_ascii=False) if row["answers"] else ""}
        writer.writerow({key: neutral(value) for key, value in cells.items()})
    return file.getvalue()


def to_json(home: Home, waiting: bool = False, answers: bool = False) -> str:
    """The same as JSON: a list of objects."""
    return json.dumps(_rows(home, waiting, answers), indent=1, ensure_ascii=False)


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
        lines += _lines(where, cell)
    return lines


def read_json(text: str) -> list[Line]:
    """Lines of a JSON list of objects, as ``to_json`` writes it."""
    lines = []
    for place, row in enumerate(json_list(text), 1):
        if not isinstance(row, dict):
            raise LabelError(f"object {place} is no object but {type(row).__name__}")
        if not row.keys() & {"sample", "name"}:
            raise LabelError(f"object {place} names no sample: it needs 'sample' or 'name'")
        lines += _lines(f"object {place}", {key: _as_cell(value) for key, value in row.items()})
    return lines


def _as_cell(value: Any) -> str:
    """A value of JSON as a CSV has it; no value is an empty cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def json_list(text: str) -> list[Any]:
    """A file that is a JSON list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabelError(f"the file is not JSON: {error}") from None
    if not isinstance(found, list):
        raise LabelError("a JSON file of labels is a list of Label Studio tasks, or of objects like the lines of a CSV")
    return found


def _lines(where: str, cell: Mapping[str, str]) -> list[Line]:
    """A line of a file as one line for each person who is named as an author."""
    line = Line(
        where,
        _whole(cell.get("sample", "").strip(), where, "sample"),
        cell.get("name", ""),
        _whole(cell.get("label", "").strip(), where, "label"),
        cell.get("class", ""),
        cell.get("reason", "").strip(),
        cell.get("annotator", "").strip(),
        number(cell.get("seconds", "")),
        moment(cell.get("answered_at", "")),
        cell.get("saw_model", "").strip() in YES,
        cell.get("unsure", "").strip() in YES,
        cell.get("comment", ""),
    )
    return split_authors(line, cell.get("rule", "").strip(), cell.get("answers", "").strip())


def _whole(text: str, where: str, column: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        names = "; write names of classes into the column 'class'" if column == "label" else ""
        raise LabelError(f"{where}: '{column}' must be a whole number, not '{text}'{names}") from None


def import_lines(
    home: Home,
    lines: Sequence[Line],
    annotator: str = "",
    revise: bool = False,
    keep_good: bool = False,
    merge: bool = False,
    by: str = "",
) -> ImportResult:
    """Import the lines of a file; all of them, or with ``keep_good`` those that are valid.

    Lines of several people for one sample are several answers, beside those that are here. With ``merge`` every line
    is the opinion of its author beside all others: it replaces what the author said earlier and nothing else, and lines
    that were imported before change nothing. Only authors who work elsewhere, as ``merge`` says, can come again. The
    audit log names author and importer (``by``).
    """
    outcome = ImportResult()
    with home.database.transaction():
        lines = [replace(line, annotator=_named(annotator or line.annotator or "import")) for line in lines]
        spoken = _Spoken.of(home, lines)
        for line in lines:
            try:
                who = home.people.named(line.annotator, comes=merge)
                given = _opinion(home, line, who) if merge else _given(home, line, who, revise, spoken)
                if given is None:
                    outcome.unchanged += 1
                else:
                    home.answer(given, who.name, "import", answered_at=stamp(given.answered_at), imported_by=by)
                    outcome.accepted += 1
                    if merge:
                        home.people.comes(who.id)
            except AnswerRefused as refused:
                outcome.refused.append(f"{line.where}: {refused}")
        if outcome.refused and not keep_good:
            raise LabelError(_sentence(outcome.refused))
    return outcome


def _named(name: str) -> str:
    return " ".join(name.split())


def _sentence(refused: list[str]) -> str:
    more = f", and {len(refused) - 3} more" if len(refused) > 3 else ""
    fix = "--revise corrects what was answered, " if any("answered already" in one for one in refused) else ""
    return f"nothing was imported: {'; '.join(refused[:3])}{more} ({fix}--keep-good imports the rest)"


def _opinion(home: Home, line: Line, who: Person) -> Given | None:
    """The line as one person's opinion; None if they have said so, or something else later."""
    sample, label = find_sample(home, line), find_label(home.card.classes, line)
    opinions = home.inbox.verdicts.opinions(sample)
    mine = next((one for one in reversed(opinions) if one.annotator == who.id), None)
    if mine is not None:
        later = home.ledger.answered_at(mine.answer) >= (line.answered_at or 0.0)
        if later or (mine.label, mine.reason) == (label, "" if label is not None else line.reason):
            return None
    return _from(line, sample, label, who, revise=mine is not None, another=mine is None)


@dataclass
class _Spoken:
    """Who speaks of which sample in a file."""

    authors: dict[int, set[str]] = field(default_factory=dict)
    last: dict[tuple[int, str], Line] = field(default_factory=dict)
    """The last line of each author about each sample."""
    stored: set[tuple[int, str]] = field(default_factory=set)
    """Whose answer to what was stored from this file."""

    @classmethod
    def of(cls, home: Home, lines: Sequence[Line]) -> _Spoken:
        found = cls()
        for line in lines:
            with suppress(AnswerRefused):  # the line itself is refused when its turn comes
                sample = find_sample(home, line)
                found.authors.setdefault(sample, set()).add(line.annotator)
                found.last[sample, line.annotator] = line
        return found


def _given(home: Home, line: Line, who: Person, revise: bool, spoken: _Spoken) -> Given | None:
    """The line as an answer; None if it says what is here already.

    One author's line is the label: one that is in force already changes nothing, another needs ``revise``. Lines of
    several authors are their opinions beside what is here, and only their own earlier ones need ``revise``.
    """
    sample, label = find_sample(home, line), find_label(home.card.classes, line)
    meant, me = (label, "" if label is not None else line.reason), (sample, line.annotator)
    opinions = home.inbox.verdicts.opinions(sample)
    mine = next((one for one in reversed(opinions) if one.annotator == who.id), None)
    again, several = me in spoken.stored, len(spoken.authors[sample]) > 1
    if mine is not None and ((mine.label, mine.reason) == meant or not (again or spoken.last[me] is line)):
        return None
    current = home.inbox.current(sample)
    if not several and not again and current is not None and (current["label"], current["reason"]) == meant:
        return None
    overruled = {
        one.by for one in opinions if one.by not in spoken.authors[sample] and (one.label, one.reason) != meant
    }
    if not revise and (mine is not None and not again):
        raise AnswerRefused("already answered", f"sample {sample} was answered already, by {who.name}")
    decides = line.decides or line.corrects not in ("", line.annotator)
    if not revise and decides and overruled:
        raise AnswerRefused("already answered", f"sample {sample} was answered already, by {listed(overruled)}")
    spoken.stored.add(me)
    own = mine is not None
    given = _from(line, sample, label, who, revise=own or (revise and not several), another=several and not own)
    return replace(given, decides=decides)


def _from(line: Line, sample: int, label: int | None, who: Person, revise: bool, another: bool) -> Given:
    return Given(
        sample,
        label,
        who.id,
        line.reason if label is None else "",
        line.seconds,
        "import",
        revise=revise,
        answered_at=line.answered_at,
        another=another,
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
        raise AnswerRefused("unknown sample", f"there is no single sample called '{line.name}'")
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
