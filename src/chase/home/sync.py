"""Questions to a running Label Studio server and answers back, by its SDK; to be repeated as often as one likes.

A project belongs to one home: each task carries the home's identity and the sample. A sync first pulls every annotation
(one opinion of its author, who may correct it there), removes tasks of closed questions that nobody has touched, and
pushes the open questions that have no task yet, with the model's prediction. The state is on the server
and in the inbox, nowhere else, so a sync that was cut short is completed by the next.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.home.exchange import ImportResult, import_lines
from chase.home.home import Home
from chase.home.label_studio import label_studio_config, lines_of, task_of
from chase.home.views import SampleView

MOST_BYTES = 20_000_000
"""Tasks are sent in requests of about so many bytes."""
PAGE = 100
MARK = "chase_home"
"""The key in a task's data that names its home."""


@dataclass
class Synced:
    """What a sync did."""

    project: int
    title: str
    created: bool
    pulled: ImportResult
    pushed: int = 0
    removed: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Samples that cannot be shown, so no task was made of them."""


@contextmanager
def connected(url: str, key: str) -> Iterator[Any]:
    """The SDK's client of a server. Samples leave this machine encrypted or not at all."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LabelError(f"'{url}' is not the address of a Label Studio server; one looks like http://localhost:8080")
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise LabelError(f"{url} is another machine, so samples need encryption on the way: use its https:// address")
    if not key:
        raise LabelError(
            "a Label Studio server needs your access token (there: Account & Settings): "
            "set LABEL_STUDIO_API_KEY or give --key-file"
        )
    try:
        import httpx
        from label_studio_sdk import LabelStudio
    except ImportError:
        raise LabelError("this needs the Label Studio SDK: pip install 'chase-fal[label-studio]'") from None
    # No proxy and no redirect: samples go to the server that was named and nowhere else.
    with (
        httpx.Client(timeout=60, follow_redirects=False, trust_env=not _is_here(parts.hostname)) as plain,
        _sentences(url),
    ):
        yield LabelStudio(base_url=url.rstrip("/"), api_key=key, httpx_client=plain)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _sentences(where: str) -> Iterator[None]:
    """What the SDK raises, as a sentence."""
    import httpx
    from label_studio_sdk.core.api_error import ApiError

    try:
        yield
    except ApiError as error:
        if error.status_code in (401, 403):
            raise LabelError(
                f"{where} refuses the access token: take a new one there under Account & Settings, "
                "and check that this user may use the project"
            ) from None
        raise LabelError(f"{where} refuses the request ({error.status_code}): {_short(error.body)}") from None
    except (httpx.HTTPError, OSError) as error:
        raise LabelError(f"Label Studio cannot be reached at {where}: {error}. Is the server running?") from None


def _short(body: Any) -> str:
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    return text if len(text) <= 300 else f"{text[:300]} ..."


def sync(home: Home, view: SampleView, client: Any, url: str, title: str = "") -> Synced:
    """Pull what was answered, push what is open; ``client`` is connected to ``url``."""
    project, created = _project(home, client, title or f"{home.card.name} ({home.database.identity})")
    tasks = [_slim(task) for task in client.tasks.list(project=project.id, page_size=PAGE)]
    strange = sum(task["data"].get(MARK) != home.database.identity for task in tasks)
    if strange:
        raise LabelError(
            f"project '{project.title}' at {url} has {strange} tasks that are not of this home: "
            "sync with a project of its own (--project TITLE)"
        )
    pulled = _pull(home, client, tasks, bool(getattr(project, "show_collab_predictions", True)))
    done = Synced(project.id, project.title, created, pulled)
    _remove_closed(home, client, tasks, done)
    _push(home, view, client, tasks, done)
    return done


def _project(home: Home, client: Any, title: str) -> tuple[Any, bool]:
    """The project of that title, new if need be, with the classes of the home."""
    if len(title) > 50:
        raise LabelError(f"a Label Studio project's title has at most 50 characters, not {len(title)}: give --project")
    found = [one for one in client.projects.list(title=title, page_size=PAGE) if one.title == title]
    if len(found) > 1:
        raise LabelError(f"the server has {len(found)} projects called '{title}': rename one, or give --project TITLE")
    if found:
        project = client.projects.get(found[0].id)
        if _choices(project.label_config) != sorted(home.card.classes):
            raise LabelError(
                f"project '{title}' has other classes than this home: give another --project, or set its labelling "
                "interface to what `chase label export HOME --format label-studio-config` prints"
            )
        return project, False
    policy = home.policies.read()
    made = client.projects.create(
        title=title,
        label_config=label_studio_config(home),
        maximum_annotations=policy.answers_per_sample,
        show_collab_predictions=policy.reveal == "before",
    )
    return client.projects.get(made.id), True


def _choices(config: str) -> list[str]:
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError:
        return []
    tag = next((one for one in root.iter("Choices") if one.get("name") == "label"), None)
    return [] if tag is None else sorted(str(one.get("value")) for one in tag.iter("Choice"))


def _slim(task: Any) -> dict[str, Any]:
    """What is needed of a task; the picture inside is dropped at once."""
    data = {key: value for key, value in (task.data or {}).items() if key not in ("image", "text")}
    return {"id": task.id, "data": data, "annotations": task.annotations or [], "drafts": task.drafts}


def _pull(home: Home, client: Any, tasks: Sequence[Mapping[str, Any]], shown: bool) -> ImportResult:
    users = {one.id: one.email for one in client.users.list()}
    told = ((f"task {task['id']}", dict(task) | {"data": task["data"] | {"saw_model": shown}}) for task in tasks)
    return import_lines(home, lines_of(told, users), keep_good=True, merge=True, by=operator())


def _remove_closed(home: Home, client: Any, tasks: Sequence[Mapping[str, Any]], done: Synced) -> None:
    """Tasks that nobody has touched and whose question is closed would be work for nothing."""
    still = {question["sample"] for question in home.ledger.open_questions()}
    for task in tasks:
        if task["data"].get("sample") not in still and not task["annotations"] and not task["drafts"]:
            client.tasks.delete(str(task["id"]))
            done.removed += 1


def _push(home: Home, view: SampleView, client: Any, tasks: Sequence[Mapping[str, Any]], done: Synced) -> None:
    there = {task["data"].get("sample") for task in tasks}
    fresh = [question for question in home.ledger.open_questions() if question["sample"] not in there]
    for batch in _batches(fresh, lambda question: _task(home, view, question, done)):
        client.projects.import_tasks(id=done.project, request=batch)
        done.pushed += len(batch)


def _task(home: Home, view: SampleView, question: dict[str, Any], done: Synced) -> dict[str, Any] | None:
    try:
        task = task_of(home, view, question)
    except LabelError as error:
        done.unreadable.append(str(error))
        return None
    task.pop("id")  # the server numbers its tasks itself
    task["data"][MARK] = home.database.identity
    return task


def _batches(
    questions: Sequence[dict[str, Any]], make: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> Iterator[list[dict[str, Any]]]:
    """Tasks made one by one, in lists of about ``MOST_BYTES``."""
    batch: list[dict[str, Any]] = []
    size = 0
    for question in questions:
        task = make(question)
        if task is None:
            continue
        size += len(json.dumps(task))
        batch.append(task)
        if size >= MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
