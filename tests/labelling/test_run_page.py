"""A run in which a person labels one client."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from homes import ask, certificate, image_home
from support import CHASE
from typer.testing import CliRunner

from chase.cli.main import app
from chase.cli.people import page_beside, wait_for_answers
from chase.core.errors import LabelError, SettingsError
from chase.core.weights import digest
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.page.serving import Address, bind
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.settings import from_mapping

SMALL: dict[str, Any] = {
    "clients": 3,
    "rounds": 5,
    "local_epochs": 3,
    "behaviour": "AbCo",
    "budget": 5,
    "lr": 0.02,
    "engine": "inprocess",
    "answer_delay": 1,
}


def begin(path: Path, **changes: Any) -> Experiment:
    return Experiment.begin(from_mapping(SMALL | changes).resolved(), path)


def truthful(experiment: Experiment) -> Callable[[dict[str, Any]], None]:
    """A person who answers everything rightly after each round."""
    home, truth = experiment.open_home(), experiment.data.train_labels
    anna = home.people.named("anna").id

    def answer_all(metrics: dict[str, Any]) -> None:
        for question in home.inbox.next_for(anna, 100, shown=100):
            home.inbox.answer(Given(question["sample"], int(truth[question["sample"]]), anna))

    return answer_all


def final_weights(experiment: Experiment) -> str:
    checkpoint = Checkpoint(experiment.record.path / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    return digest(checkpoint.read_arrays(manifest.server))


def test_a_person_who_answers_as_the_oracle_would_gives_the_same_run(tmp_path: Path) -> None:
    simulated = begin(tmp_path / "oracle")
    simulated.run()
    page = begin(tmp_path / "page", annotator="page", page_client=1)
    metrics = page.run(truthful(page))
    assert final_weights(page) == final_weights(simulated)
    assert metrics[-1]["clients"]["1"]["labels"] == 15
    home = Home(tmp_path / "page/home")
    question = home.ledger.labels()[-1]
    assert question["strategy"] == "chase"
    people = [line for line in home.ledger.labels() if line["annotator"] == "anna"]
    assert len(people) == 20, "the last round's answers wait for a run that goes on"
    assert all(line["score"] == line["ev"] for line in people)
    thoughts = [json.loads(line["thoughts"]) for line in people]
    assert all(len(t) == 3 and 0 < t[0][1] <= 1 and t[0][1] >= t[1][1] for t in thoughts)
    assert any(t[0][1] != round(t[0][1], 4) for t in thoughts), "the page rounds what it shows; nobody before it"


def answers_for_all(experiment: Experiment) -> Callable[[dict[str, Any]], None]:
    """People who answer whatever is on the page, for every client."""
    home, truth = experiment.open_home(), experiment.data.train_labels
    ben = home.people.named("ben").id

    def answer_all(metrics: dict[str, Any]) -> None:
        while questions := home.inbox.next_for(ben, 100, shown=100):
            for question in questions:
                home.inbox.answer(Given(question["sample"], int(truth[question["sample"]]), ben))

    return answer_all


def test_one_page_for_all_clients_gives_the_run_of_the_oracle(tmp_path: Path) -> None:
    simulated = begin(tmp_path / "oracle")
    told = simulated.run()
    page = begin(tmp_path / "page", annotator="page", page_client="all", wait=0)  # so the last round asks too
    metrics = page.run(answers_for_all(page))
    assert final_weights(page) == final_weights(simulated)
    assert [line["labels"] for line in metrics] == [line["labels"] for line in told]
    home = Home(tmp_path / "page/home")
    assert home.card.name == "digits, all 3 clients"
    asked = {line["sample"] for line in home.ledger.labels() if line["annotator"] == "ben"}
    lines = [json.loads(text) for text in (tmp_path / "page/selections.jsonl").read_text().splitlines()]
    assert {line["client"] for line in lines} == {0, 1, 2}
    assert asked == {line["sample"] for line in lines}


def test_a_run_with_one_page_for_all_clients_resumes_and_loses_no_answer(tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", annotator="page", page_client="all", wait=0)
    whole.run(answers_for_all(whole))
    first = begin(tmp_path / "parts", annotator="page", page_client="all", wait=0, rounds=3)
    first.run(answers_for_all(first))
    again = Experiment.resume(tmp_path / "parts", {"rounds": 5})
    again.run(answers_for_all(again))
    assert final_weights(again) == final_weights(whole)


def test_a_run_with_a_person_resumes_where_it_was(tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", annotator="page")
    whole.run(truthful(whole))
    begin(tmp_path / "parts", annotator="page", rounds=3).run(truthful(begin_again(tmp_path / "parts", 3)))
    newest = max((tmp_path / "parts/checkpoint").glob("[0-9]*.json"))
    newest.unlink()  # as if killed after the home had committed round 3 and before the run had
    parts = begin_again(tmp_path / "parts", 5)
    parts.run(truthful(parts))
    assert final_weights(parts) == final_weights(whole)


def begin_again(path: Path, rounds: int) -> Experiment:
    return Experiment.resume(path, {"rounds": rounds})


def test_rounds_go_on_without_an_answer(tmp_path: Path) -> None:
    experiment = begin(tmp_path / "run", annotator="page")
    home = experiment.open_home()
    metrics = experiment.run()
    assert len(metrics) == 5
    assert home.ledger.open_count() == 5, "a client asks no more than its budget while nobody answers"
    assert metrics[-1]["clients"]["0"]["labels"] == 0
    assert metrics[-1]["clients"]["1"]["labels"] > 0


def test_waiting_ends_with_the_answers_or_the_time(tmp_path: Path) -> None:
    home = image_home(tmp_path / "home")
    start = time.monotonic()
    wait_for_answers(home, 30)
    assert time.monotonic() - start < 5
    ask(home, [1])
    start = time.monotonic()
    wait_for_answers(home, 0.3)
    assert time.monotonic() - start >= 0.3


def test_a_client_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="numbered 0 to 2"):
        from_mapping(SMALL | {"annotator": "page", "page_client": 3}).resolved()


def post(line: http.client.HTTPConnection, headers: dict[str, str], path: str, body: dict[str, Any]) -> dict[str, Any]:
    line.request("POST", path, json.dumps(body), headers)
    response = line.getresponse()
    found: dict[str, Any] = json.loads(response.read())
    assert response.status == 200, found
    if cookie := response.getheader("set-cookie"):
        headers["cookie"] = cookie.partition(";")[0]
    return found


def connected(line: http.client.HTTPConnection) -> http.client.HTTPConnection:
    for _ in range(200):
        try:
            line.connect()
            return line
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the page was not served within 20 seconds")


def test_the_command_prints_a_link_and_waits_for_the_person(tmp_path: Path) -> None:
    options = [f"--set={key}={value}" for key, value in (SMALL | {"rounds": 3, "clients": 2}).items()]
    command = [*CHASE, "run", "digits", "--annotator", "page", "--wait", "60", "--page-port", "0"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run"), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        found = None
        while found is None:
            text = run.stdout.readline()
            assert text, "the run ended without a link"
            found = re.search(r"label \S+, client 0 at http://(\S+)/#token=(\S+)", text)
        line, headers = connected(http.client.HTTPConnection(found[1])), {"content-type": "application/json"}
        headers["origin"] = f"http://{found[1]}"
        post(line, headers, "/api/enter", {"token": found[2]})
        queue: list[dict[str, Any]] = []
        for _ in range(600):
            queue = post(line, headers, "/api/next", {"want": 9})["queue"]
            if queue or run.poll() is not None:
                break
            time.sleep(0.1)
        assert len(queue) == 5
        answers = []
        for question in queue:
            line.request("GET", f"/api/samples/{question['sample']}", headers=headers)
            response = line.getresponse()
            response.read()
            answers.append({"sample": question["sample"], "label": 3, "seen": response.getheader("x-chase-seen")})
        post(line, headers, "/api/answer", {"answers": answers})
        line.close()
        out, err = run.communicate(timeout=100)
    assert run.returncode == 0, err
    assert "all 3 rounds done" in out
    metrics = [json.loads(text) for text in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [m["clients"]["0"]["labels"] for m in metrics] == [0, 0, 5]


def test_label_serves_over_tls_and_ends_quietly(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path).values()
    image_home(tmp_path / "home").close()
    command = [*CHASE, "label", str(tmp_path / "home"), "--port", "0", "--host", "0.0.0.0", "--name", "localhost"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("chase: 0.0.0.0 can be reached from other machines")
    tls = ["--tls-cert", str(cert), "--tls-key", str(key), "-a", "anna", "-a", "ben"]
    with subprocess.Popen([*command, *tls], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        links = [page.stdout.readline() for _ in range(2)]
        found = re.match(r"anna: https://localhost:(\d+)/#token=(\S+)", links[0])
        assert found is not None
        assert links[1].startswith("ben: https://localhost")
        trusting = ssl.create_default_context(cafile=str(cert))
        line = connected(http.client.HTTPSConnection("localhost", int(found[1]), context=trusting))
        headers = {"origin": f"https://localhost:{found[1]}", "content-type": "application/json"}
        post(line, headers, "/api/enter", {"token": found[2]})
        line.request("GET", "/api/me", headers=headers)
        assert json.loads(line.getresponse().read())["annotator"] == "anna"
        line.close()
        os.kill(page.pid, signal.SIGINT)
        _, err = page.communicate(timeout=30)
    assert (page.returncode, err) == (0, "")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with bind(Address(port=0)) as first, pytest.raises(LabelError, match="choose another port"):
        bind(Address(port=first.getsockname()[1]))


def test_a_run_whose_page_has_no_port_leaves_nothing_behind(tmp_path: Path) -> None:
    with bind(Address(port=0)) as taken:
        options = ["--page-port", str(taken.getsockname()[1]), "--out", str(tmp_path / "run")]
        refused = CliRunner().invoke(app, ["run", "digits", "--annotator", "page", *options])
    assert isinstance(refused.exception, LabelError)
    assert not (tmp_path / "run").exists()


def test_a_run_says_how_to_go_on_with_what_is_left(tmp_path: Path) -> None:
    experiment, said = begin(tmp_path / "run", annotator="page"), list[str]()
    with page_beside(experiment, 0, said.append):
        ask(experiment.open_home(), experiment.open_home().samples()[0][:2].tolist())
    assert said[-1].startswith("2 samples still wait for you: chase label")
