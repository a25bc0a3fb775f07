"""Label Studio's task and annotation JSON, out and in.

Label Studio refuses annotators it does not know, so our files name the annotator in a task's data instead of
``completed_by``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any
from xml.sax.saxutils import quoteattr

from chase.core.errors import LabelError
from chase.home.exchange import Line, moment, number, stamp
from chase.home.home import Home
from chase.home.inbox import SKIPS
from chase.home.views import SampleView


def to_label_studio(home: Home, view: SampleView, waiting: bool = False) -> str:
    """Label Studio tasks with samples inside; answers as annotations, the model's predictions as predictions."""
    rows = home.ledger.open_questions() if waiting else home.ledger.labels()
    return json.dumps([task_of(home, view, row) for row in rows], indent=1, ensure_ascii=False)


def task_of(home: Home, view: SampleView, row: dict[str, Any]) -> dict[str, Any]:
    """A label or a waiting question as a task."""
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


def read_label_studio(text: str) -> list[Line]:
    """Every annotation of each task of a Label Studio JSON export, oldest first; tasks without any are skipped."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabelError(f"the file is not JSON: {error}") from None
    if not isinstance(tasks, list):
        raise LabelError("a Label Studio file is a JSON list of tasks")
    return lines_of((f"task {place}", task) for place, task in enumerate(tasks, 1))


def lines_of(tasks: Iterable[tuple[str, Any]], users: Mapping[int, str] | None = None) -> list[Line]:
    """Every annotation of each task, oldest first; ``users`` are the names that a server has for its numbers."""
    lines = []
    for where, task in tasks:
        try:
            data, annotations = task["data"], task.get("annotations") or []
            told = [one for one in annotations if one.get("result") or one.get("was_cancelled")] or annotations[-1:]
            found = (_annotated(where, data, one, users or {}) for one in told)
            lines += sorted(found, key=lambda line: line.answered_at or 0.0)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise LabelError(f"{where} is not a Label Studio task: {type(error).__name__} {error}") from None
    return lines


def _annotated(where: str, data: dict[str, Any], annotation: dict[str, Any], users: Mapping[int, str]) -> Line:
    sample = data.get("sample")
    by = annotation.get("completed_by")
    if isinstance(by, dict):
        by = by.get("email") or by.get("id")
    if isinstance(by, int):
        by = users.get(by) or f"Label Studio user {by}"
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
        seconds=number(annotation.get("lead_time")),
        answered_at=moment(str(annotation.get("updated_at") or annotation.get("created_at") or "")),
        saw_model=bool(data.get("saw_model")) or annotation.get("parent_prediction") is not None,
    )
