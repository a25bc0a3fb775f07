"""Label Studio's task and annotation JSON, out and in.

Label Studio refuses annotators it does not know, so our files say who gave each annotation in a task's data instead of
``completed_by``. An annotation that comes back unchanged is still theirs; one that was changed there, or made there,
belongs to the person at Label Studio who did that.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from xml.sax.saxutils import quoteattr

from chase.annotation.opinions import listed
from chase.core.errors import LabelError
from chase.home.answer_lines import Line, Row, answers_by_sample, as_told, authors_of, moment, number, stamp, told
from chase.home.exchange import json_list, read_json
from chase.home.home import Home
from chase.home.inbox import REASONS, SKIPS
from chase.home.views import SampleView

KEEP = ("sample", "name", "round", "turn", "strategy", "ev", "score")
ANSWERS = "answers"
"""The key in a task's data that says who gave which of its annotations, by their number, and how."""
AT_ONCE = 2.0
"""Seconds from which a change of an annotation is a correction: the server notes one when it is made, too."""


def to_label_studio(home: Home, view: SampleView, waiting: bool = False, answers: bool = False) -> str:
    """Label Studio tasks with samples inside; answers as annotations, the model's predictions as predictions.

    A label's annotations are the answers that it is made of; with ``answers``, a task has every person's answer.
    """
    if waiting:
        return _dump([task_of(home, view, row) for row in home.ledger.open_questions()])
    said = answers_by_sample(home)
    if answers:
        return _dump([task_of(home, view, one[-1], one) for _, one in sorted(said.items())])
    return _dump(
        [task_of(home, view, row, authors_of(row, said.get(row["sample"], []))) for row in home.ledger.labels()]
    )


def _dump(tasks: list[dict[str, Any]]) -> str:
    return json.dumps(tasks, indent=1, ensure_ascii=False)


def task_of(home: Home, view: SampleView, row: Row, said: Sequence[Row] = ()) -> dict[str, Any]:
    """A waiting question as a task, or what was ``said`` of a sample."""
    data = {key: row[key] for key in KEEP if row.get(key) not in (None, "")}
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
    if said:
        data["annotator"] = listed(one["annotator"] for one in said)
        data[ANSWERS] = {str(one["answer"]): told(one, home.card.classes) for one in said}
        task["annotations"] = [_annotation(home, one) for one in said]
    return task


def _annotation(home: Home, answer: Row) -> dict[str, Any]:
    return {
        "id": answer["answer"],
        "result": [] if answer["label"] is None else [_choice(home, answer["label"])],
        "was_cancelled": answer["label"] is None,
        "lead_time": answer["seconds"],
        "created_at": stamp(answer["answered_at"]),
    }


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


def read_any_json(text: str) -> list[Line]:
    """A JSON list of tasks, or of labels as ``exchange.to_json`` writes them."""
    is_ours = any(isinstance(one, dict) and not one.keys() & {"data", "annotations"} for one in json_list(text))
    return read_json(text) if is_ours else read_label_studio(text)


def read_label_studio(text: str) -> list[Line]:
    """Every annotation of each task of a Label Studio JSON export, oldest first; tasks without any are skipped."""
    return lines_of((f"task {place}", task) for place, task in enumerate(json_list(text), 1))


def lines_of(tasks: Iterable[tuple[str, Any]], users: Mapping[int, str] | None = None) -> list[Line]:
    """Every annotation of each task, oldest first; ``users`` are the names that a server has for its numbers."""
    lines, names, every = [], dict(users or {}), list(tasks)
    for where, task in every:
        with _reading(where):
            people = map(_completed_by, task.get("annotations") or [])
            names |= {one["id"]: one["email"] for one in people if one.get("id") and one.get("email")}
    for where, task in every:
        with _reading(where):
            data, annotations = task["data"], task.get("annotations") or []
            told = [one for one in annotations if one.get("result") or one.get("was_cancelled")] or annotations[-1:]
            found = [_annotated(where, data, one, names) for one in told]
            lines += sorted(found, key=lambda line: line.answered_at or 0.0)
    return lines


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """What is not where a task has it is told with the task."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise LabelError(f"{where} is not a Label Studio task: {type(error).__name__} {error}") from None


def _completed_by(annotation: Mapping[str, Any]) -> dict[str, Any]:
    by = annotation.get("completed_by")
    return by if isinstance(by, dict) else {"id": by}


def _author(annotation: Mapping[str, Any], users: Mapping[int, str]) -> str:
    """Who made an annotation or, if somebody else has changed it since, who did that."""
    by: Any = _completed_by(annotation)
    by = by.get("email") or by.get("id")
    made, changed = (moment(str(annotation.get(key) or "")) for key in ("created_at", "updated_at"))
    editor = annotation.get("updated_by")
    if isinstance(editor, int) and made is not None and changed is not None and changed - made > AT_ONCE:
        by = editor
    if isinstance(by, int):
        by = users.get(by) or f"Label Studio user {by}"
    return str(by or "")


def _annotated(where: str, data: dict[str, Any], annotation: dict[str, Any], users: Mapping[int, str]) -> Line:
    """An annotation as a line: that of its author here if it is as it left, otherwise of whoever made it there.

    To change what somebody else had said here is a correction of the label, as a decision is.
    """
    sample = data.get("sample")
    chosen = [r["value"]["choices"][0] for r in annotation.get("result") or [] if r.get("type") == "choices"]
    skipped = bool(annotation.get("was_cancelled")) or not chosen
    exported = data.get(ANSWERS)
    # The server gives every annotation a number of its own and keeps the one that it came with.
    left = (exported or {}).get(str(annotation.get("import_id" if "import_id" in annotation else "id")))
    same = left is not None and left.get("class", "") == ("" if skipped else str(chosen[0]))
    known = left.get("reason") if left is not None and same else data.get("reason") if exported is None else ""
    line = Line(
        where,
        sample if isinstance(sample, int) else None,
        str(data.get("name", "")),
        class_name="" if skipped else str(chosen[0]),
        reason=(str(known) if known in REASONS else SKIPS[0]) if skipped else "",
        annotator=_author(annotation, users) or ("" if exported is not None else str(data.get("annotator") or "")),
        seconds=number(annotation.get("lead_time")),
        answered_at=moment(str(annotation.get("updated_at") or annotation.get("created_at") or "")),
        saw_model=(exported is None and bool(data.get("saw_model"))) or annotation.get("parent_prediction") is not None,
    )
    if left is None:
        return line
    return as_told(line, left) if same else replace(line, corrects=str(left.get("annotator", "")))
