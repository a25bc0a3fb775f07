"""``chase label sync`` with the real Label Studio server, from its package.

The server needs an environment of its own, as its dependencies do not fit beside others: ``make test-label-studio``
makes it. These tests are not part of the usual ones: the server's first start makes its tables, which takes minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from homes import ask, image_home, text_home
from typer.testing import CliRunner

from chase.cli.main import app
from chase.core.errors import LabelError
from chase.home.exchange import import_lines
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.label_studio import label_studio_config, read_any_json, to_label_studio
from chase.home.sync import Synced, connected, sync
from chase.home.views import HomeView

SERVER = os.environ.get("CHASE_LABEL_STUDIO") or shutil.which("label-studio")
KEY = "abcdef0123456789abcdef0123456789abcdef01"
BOSS = "kim@clinic.example"
QUIET = {
    "COLLECT_ANALYTICS": "False",
    "LATEST_VERSION_CHECK": "False",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
    "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
}
"""Nothing of the server reaches the internet."""
MINUTES = 10


def needs_server(test: Callable[..., None]) -> Callable[..., None]:
    """With the real server only: `make test-label-studio`."""
    reason = "no Label Studio server: install label-studio elsewhere and name its command in CHASE_LABEL_STUDIO"
    for mark in (
        pytest.mark.label_studio,
        pytest.mark.skipif(not SERVER, reason=reason),
        pytest.mark.timeout(60 * (MINUTES + 5)),
    ):
        test = mark(test)
    return test


pytestmark = [  # raised inside the SDK
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]


@dataclass
class Studio:
    """A server and what people do there."""

    url: str
    client: Any

    def annotate(self, done: Synced, sample: int, label: str, **more: Any) -> Any:
        task = self.task(done, sample)
        value = {"from_name": "label", "to_name": "sample", "type": "choices", "value": {"choices": [label]}}
        return self.client.annotations.create(id=task, result=[value], **more)

    def task(self, done: Synced, sample: int) -> int:
        found = self.client.tasks.list(project=done.project)
        return next(one.id for one in found if one.data["sample"] == sample)

    def samples(self, done: Synced) -> list[int]:
        return sorted(one.data["sample"] for one in self.client.tasks.list(project=done.project))

    def sync(self, home: Home, title: str = "") -> Synced:
        return sync(home, HomeView(home), self.client, self.url, title)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    running = os.environ.get("CHASE_LABEL_STUDIO_URL")
    if running:
        with connected(running, KEY) as client:
            yield Studio(running, client)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, url = tmp_path_factory.mktemp("studio"), f"http://127.0.0.1:{port}"
    command = [str(SERVER), "start", "--no-browser", "-p", str(port), "--internal-host", "127.0.0.1", "--data-dir"]
    command += [str(data), "--username", BOSS, "--password", "long-password-1", "--user-token", KEY]
    with (data / "log").open("wb") as log:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | QUIET
        server = subprocess.Popen(
            [*command, "--enable-legacy-api-token"], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait(url, server, data / "log")
        with connected(url, KEY) as client:
            yield Studio(url, client)
    finally:
        server.terminate()
        server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(60 * MINUTES):
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            assert server.poll() is None, log.read_text()[-2000:]
            time.sleep(1)
    raise AssertionError(f"Label Studio did not start in {MINUTES} minutes: {log.read_text()[-2000:]}")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = image_home(tmp_path / "home")
    ask(home, range(6))
    return home


@needs_server
def test_questions_go_out_with_predictions_and_answers_come_back_once(studio: Studio, home: Home) -> None:
    first = studio.sync(home)
    assert (first.created, first.pushed, first.pulled.accepted) == (True, 6, 0)
    task = studio.client.tasks.get(str(studio.task(first, 2)))
    assert task.data["image"].startswith("data:image/png;base64,")
    assert task.predictions[0].result[0]["value"]["choices"] == ["cat"]
    assert task.predictions[0].score == 0.625
    again = studio.sync(home)
    assert (again.created, again.project, again.pushed) == (False, first.project, 0), "repeatable"
    studio.annotate(first, 2, "dog", lead_time=4.5)
    studio.annotate(first, 3, "horse", was_cancelled=True)
    pulled = studio.sync(home)
    assert (pulled.pulled.accepted, pulled.pulled.refused) == (2, [])
    lines = {line["sample"]: line for line in home.ledger.labels()}
    assert (lines[2]["label"], lines[2]["annotator"], lines[2]["seconds"]) == (1, BOSS, 4.5)
    assert (lines[3]["label"], lines[3]["reason"]) == (None, "cannot tell")
    assert abs(lines[2]["answered_at"] - time.time()) < 600
    once_more = studio.sync(home)
    assert (once_more.pulled.accepted, once_more.pulled.unchanged) == (0, 2)
    assert len(home.ledger.answers()) == 2


@needs_server
def test_a_correction_made_there_comes_in_and_one_made_here_stays(studio: Studio, home: Home) -> None:
    done = studio.sync(home)
    made = studio.annotate(done, 1, "dog")
    studio.annotate(done, 4, "dog")
    studio.sync(home)
    value = {"from_name": "label", "to_name": "sample", "type": "choices", "value": {"choices": ["horse"]}}
    studio.client.annotations.update(id=made.id, result=[value])
    home.inbox.answer(Given(4, 0, home.people.named(BOSS).id, revise=True))
    assert studio.sync(home).pulled.accepted == 1
    labels = {line["sample"]: line["label"] for line in home.ledger.labels()}
    assert labels == {1: 2, 4: 0}, "the later one of a person's answers holds, wherever it was given"


@needs_server
def test_several_annotators_of_a_task_are_several_opinions(studio: Studio, home: Home) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(6, 8))
    done = studio.sync(home)
    email = f"ben-{home.database.identity}@clinic.example"
    ben = studio.client.users.create(email=email, username=email, first_name="Ben", last_name="B")
    studio.annotate(done, 6, "dog")
    studio.annotate(done, 6, "horse", completed_by=ben.id)
    assert studio.sync(home).pulled.accepted == 2
    assert home.ledger.votes() == [(6, BOSS, 1), (6, email, 2)]
    assert [(r["sample"], r["why"]) for r in home.inbox.verdicts.reviews()] == [(6, "conflict")]
    lines = [line for line in home.audit.lines() if line["what"] == "import"]
    assert [(line["who"], line["sample"]) for line in lines] == [(BOSS, 6), (email, 6)]


@needs_server
def test_closed_questions_leave_and_touched_ones_stay(studio: Studio, home: Home) -> None:
    done = studio.sync(home)
    studio.annotate(done, 0, "cat")
    home.inbox.expire([0, 1])
    home.inbox.answer(Given(2, 2, home.people.named("anna").id))
    found = studio.sync(home)
    assert (found.removed, studio.samples(done)) == (2, [0, 3, 4, 5])
    assert {line["sample"]: line["annotator"] for line in home.ledger.labels()} == {0: BOSS, 2: "anna"}


@needs_server
def test_the_model_s_thought_is_hidden_there_unless_the_policy_shows_it(studio: Studio, home: Home) -> None:
    titles = [f"{word} {home.database.identity}" for word in ("hidden", "shown")]
    hidden = studio.sync(home, titles[0])
    studio.annotate(hidden, 0, "cat")
    home.policies.change({"reveal": "before"})
    shown = studio.sync(home, titles[1])
    studio.annotate(shown, 1, "cat")
    for title in titles:
        studio.sync(home, title)
    assert {line["sample"]: line["saw_model"] for line in home.ledger.labels()} == {0: 0, 1: 1}


@needs_server
def test_the_command_and_its_refusals(studio: Studio, home: Home, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    arguments = ["label", "sync", str(home.path), "--url", studio.url, "--key-file", str(key)]
    result = CliRunner().invoke(app, arguments)
    assert "0 answers pulled, 0 known already, 6 questions pushed, 0 closed ones removed" in result.output
    assert "0 questions pushed" in CliRunner().invoke(app, arguments).output
    key.write_text("0" * 40)
    with pytest.raises(LabelError, match="refuses the access token"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    title = studio.sync(home).title
    other = text_home(tmp_path / "texts", ["one", "two"], ("a", "b"))
    ask(other, [0, 1])
    with pytest.raises(LabelError, match="has other classes than this home"):
        studio.sync(other, title)
    same = image_home(tmp_path / "other")
    with pytest.raises(LabelError, match="6 tasks that are not of this home"):
        studio.sync(same, title)
    assert studio.sync(other).pushed == 2


@needs_server
def test_a_file_of_several_people_goes_through_the_server_and_stays_theirs(
    studio: Studio, home: Home, tmp_path: Path
) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(10, 13))
    anna, ben, eva = (home.people.named(name).id for name in ("anna", "ben", "eva"))
    for sample, hers, his in ((10, 1, 1), (11, 0, 2), (12, 2, 0)):
        home.inbox.answer(Given(sample, hers, anna, seconds=2.5, saw_model=True, comment="clear"))
        home.inbox.answer(Given(sample, his, ben, unsure=True))
    home.inbox.answer(Given(11, 1, eva, decides=True))
    tasks = json.loads(to_label_studio(home, HomeView(home), answers=True))
    made = studio.client.projects.create(
        title=f"file {home.database.identity}", label_config=label_studio_config(home), maximum_annotations=5
    )
    studio.client.projects.import_tasks(id=made.id, request=tasks)
    ours = {
        (task.data["sample"], one["import_id"]): one["id"]
        for task in studio.client.tasks.list(project=made.id)
        for one in task.annotations
    }
    changed = next(a["answer"] for a in home.ledger.answers() if (a["sample"], a["annotator"]) == (12, "ben"))
    time.sleep(2.1)  # a change at once is not told from the import itself
    value = {"from_name": "label", "to_name": "sample", "type": "choices", "value": {"choices": ["horse"]}}
    studio.client.annotations.update(id=ours[12, changed], result=[value])
    export = f"{studio.url}/api/projects/{made.id}/export?exportType=JSON"
    with httpx.Client(trust_env=False, timeout=60) as plain:
        text = plain.get(export, headers={"Authorization": f"Token {KEY}"}).text
    twin = image_home(tmp_path / "twin")
    assert import_lines(twin, read_any_json(text)).accepted == 7
    keep = ("sample", "annotator", "label", "seconds", "saw_model", "unsure", "comment", "decides")
    before, after = ({tuple(a[k] for k in keep) for a in one.ledger.answers()} for one in (home, twin))
    (lost,) = before - after
    (new,) = after - before
    assert (lost[:3], new[0], new[2]) == ((12, "ben", 0), 12, 2)
    assert new[1] in (BOSS, "Label Studio user 1"), "who changed it there"
    assert {line["sample"]: line["label"] for line in twin.ledger.labels()} == {10: 1, 11: 1, 12: 2}


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("http://clinic.example:8080", KEY, "use its https:// address"),
        ("clinic:8080", KEY, "not the address of a Label Studio server"),
        ("http://localhost:8080", "", "set LABEL_STUDIO_API_KEY or give --key-file"),
    ],
)
def test_an_address_or_key_that_does_not_fit_is_refused(url: str, key: str, words: str) -> None:
    with pytest.raises(LabelError, match=words), connected(url, key):
        pass


def test_a_server_that_is_not_there_is_named(home: Home) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(LabelError, match="cannot be reached at"), connected(url, KEY) as client:
        sync(home, HomeView(home), client, url)
