"""Own data on which nobody has put a label yet: people are the only annotators, and nothing is measured by default."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import chase
from chase.annotation.annotator import Question
from chase.cli.main import app
from chase.cli.people import page_beside
from chase.cli.progress import RunProgress
from chase.core.errors import DataError, RunDirectoryError, SettingsError
from chase.data import sources
from chase.export.card_text import model_card
from chase.export.trained import read_trained
from chase.home.inbox import Given
from chase.report.html import report_run
from chase.report.runs import read_run
from chase.report.tables import round_by_round, summary
from chase.run.experiment import Experiment
from chase.settings import Settings, from_mapping
from chase.simulation.recommended import own_values
from chase.simulation.world import answer_rows

CHASE = [sys.executable, "-c", "from chase.cli import main; main()"]
CLASSES = "benign,malign"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


def pictures(place: Path, count: int = 60) -> dict[str, str]:
    """A folder of pictures without any class; gives what a person would say of each."""
    place.mkdir()
    truth = {}
    for n in range(count):
        name = f"Befund {n:02d} ä.png"
        stripes = np.broadcast_to(np.arange(12) // 3 % 2 * 150, (12, 12))
        pixels = np.random.default_rng(n).integers(0, 90, (12, 12)) + (stripes if n % 2 else stripes.T)
        Image.fromarray(pixels.astype(np.uint8)).save(place / name)
        truth[name] = CLASSES.split(",")[n % 2]
    return truth


def chosen(data: Path, **changes: Any) -> Settings:
    """The settings of ``chase run FOLDER --annotator page``, small."""
    given = {"annotator": "page", "classes": CLASSES, "rounds": 4, "budget": 6, "engine": "inprocess"} | changes
    return from_mapping(own_values(str(data), given) | given).resolved()


def answers(experiment: Experiment, truth: dict[str, str]) -> Callable[[dict[str, Any]], None]:
    """A person who answers all that is asked after each round."""
    home = experiment.open_home()
    anna, classes = home.people.named("anna").id, list(home.card.classes)

    def answer_all(metrics: dict[str, Any]) -> None:
        for question in home.inbox.next_for(anna, 100, shown=100):
            home.inbox.answer(Given(question["sample"], classes.index(truth[question["name"]]), anna))

    return answer_all


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A finished run on pictures without a label."""
    truth = pictures(tmp_path / "pictures")
    experiment = Experiment.begin(chosen(tmp_path / "pictures"), tmp_path / "run")
    experiment.run(answers(experiment, truth))
    return tmp_path / "run"


def test_a_folder_without_a_label_is_one_client_on_the_page_and_waits_for_people(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    settings = chosen(tmp_path / "pictures")
    assert (settings.clients, settings.people_only, settings.waits) == (1, True, math.inf)
    assert from_mapping({"annotator": "page"}).resolved().waits == 0, "simulated clients beside people do not wait"
    assert chosen(tmp_path / "pictures", wait=5).waits == 5


def test_known_labels_are_used_and_not_asked_again(tmp_path: Path) -> None:
    lines = [f"{n},{n % 7},{'ab'[n % 2] if n < 20 else ''}" for n in range(100)]
    (tmp_path / "rows.csv").write_text("id,value,label\n" + "\n".join(lines) + "\n")
    given = {"annotator": "page", "engine": "inprocess"}
    settings = from_mapping(own_values(str(tmp_path / "rows.csv"), given) | given).resolved()
    experiment = Experiment.begin(settings, tmp_path / "run")
    start = experiment.world().start(0)
    assert settings.people_only
    assert start.pools.labeled.size == int((experiment.data.train_labels >= 0).sum()) > 10
    assert (experiment.data.train_labels[start.pools.unlabeled] < 0).all()


def test_nothing_is_measured_and_nothing_pretends_to_be(done: Path) -> None:
    run = read_run(done)
    assert [line["test_accuracy"] for line in run.metrics] == [None] * 4
    assert run.metrics[1]["estimated_accuracy"] is None, "no label yet"
    assert run.metrics[-1]["estimated_accuracy"] > 0.8
    assert [line["labels"] for line in run.metrics] == [0, 0, 6, 12]
    assert [line["estimated_on"] for line in run.metrics] == [0, 0, 6, 12]
    shown = round_by_round(run)
    assert {row[list(shown.columns).index("accuracy")] for row in shown.rows} == {"not measured"}
    page = report_run(done)
    assert page is not None
    text = page.read_text(encoding="utf-8")
    assert "not measured" in text
    assert "Estimate over labels" in text
    assert not re.search(r">\s*nan\b", text, re.I)
    for command in (["show", str(done)], ["watch", str(done), "--once"], ["predict", str(done), str(done.parent)]):
        said = CliRunner().invoke(app, command)
        assert "not measured" in said.output, said.output
        assert "nan" not in said.output.lower()
    assert "Not measured: there was no test set." in model_card(read_trained(done))
    assert not (done / "best.safetensors").exists()
    with pytest.raises(RunDirectoryError, match=r"no round .* was measured"):
        read_trained(done, "best")


def test_runs_without_a_measurement_are_compared_without_one(done: Path, tmp_path: Path) -> None:
    truth = {f.name: CLASSES.split(",")[n % 2] for n, f in enumerate(sorted((tmp_path / "pictures").iterdir()))}
    other = Experiment.begin(chosen(tmp_path / "pictures", strategy="random"), tmp_path / "other")
    other.run(answers(other, truth))
    said = CliRunner().invoke(app, ["report", str(done), str(tmp_path / "other"), "-o", str(tmp_path / "both.html")])
    assert said.exit_code == 0, said.output
    assert said.output.count("not measured") == 2
    assert "nan" not in said.output.lower()
    from chase.report.runs import by_method

    cells = [str(cell) for row in summary(by_method([read_run(done)])).rows for cell in row]
    assert "not measured" in cells


def test_the_last_round_asks_for_nothing_that_it_would_not_use(done: Path) -> None:
    lines = [json.loads(line) for line in (done / "selections.jsonl").read_text().splitlines()]
    assert {line["round"] for line in lines} == {2, 3}
    more = Experiment.resume(done, {"rounds": 5})
    more.run()
    assert {json.loads(line)["round"] for line in (done / "selections.jsonl").read_text().splitlines()} == {2, 3}


def test_the_estimate_is_that_of_heads_that_have_not_seen_the_sample(done: Path) -> None:
    """Against the plain way: solve once per label, without it."""
    from chase.client.state import ClientState
    from chase.closed_form import ridge
    from chase.closed_form.feature_map import decode
    from chase.closed_form.model import ClosedFormNet
    from chase.closed_form.sums import Sums
    from chase.models.net import set_weights
    from chase.run.checkpoint import Checkpoint
    from chase.server.server import model_of

    experiment, checkpoint = Experiment.resume(done), Checkpoint(done / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    arrays, saved = checkpoint.read_arrays(manifest.server), checkpoint.where(0)
    assert saved is not None
    state = ClientState.from_arrays(checkpoint.read_client(saved))
    net, samples = experiment.world().net(), experiment.data.train
    assert isinstance(net, ClosedFormNet)
    set_weights(net, model_of(arrays))
    ids = state.pools.labeled
    labels, codes = state.labels_of(ids), net.codes(samples, samples.rows(ids))
    weight = float(arrays["server/solved"][0])
    right = []
    for n in range(ids.size):
        others = np.arange(ids.size) != n
        head = ridge.solve(Sums.of(codes[others], labels[others], 2), weight)
        right.append(int(head.scores(decode(codes[n : n + 1]).astype(np.float64)).argmax()) == labels[n])
    assert read_run(done).metrics[-1]["estimated_accuracy"] == np.mean(right)


def test_answers_that_only_measure_are_drawn_first_asked_first_and_never_trained_with(tmp_path: Path) -> None:
    truth = pictures(tmp_path / "pictures")
    settings = chosen(tmp_path / "pictures", test_answers=20, target=0.99, main_metric="balanced-accuracy")
    experiment = Experiment.begin(settings, tmp_path / "run")
    rows = answer_rows(settings, experiment.data)
    assert rows.size == 20
    assert not np.isin(experiment.parts[0], rows).any()
    home = experiment.open_home()
    asked = home.inbox.next_for(home.people.named("anna").id, 100, shown=100)
    assert sorted(question["sample"] for question in asked) == rows.tolist()
    metrics = experiment.run(answers(experiment, truth))
    assert metrics[0]["test_accuracy"] is None, "nobody had answered yet"
    assert metrics[-1]["test_accuracy"] > 0.8
    assert "estimated_accuracy" not in metrics[-1]
    whole = json.loads((tmp_path / "run/confusion.json").read_text())
    assert whole["quality"]["tested"] == 20
    trained = {json.loads(line)["sample"] for line in (tmp_path / "run/selections.jsonl").read_text().splitlines()}
    assert not trained & set(rows.tolist())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": 0.9}, "target = 0.9 needs labelled samples to measure on"),
        ({"main_metric": "auc"}, "main_metric = auc needs labelled samples"),
        ({"form": "isolated"}, "form = isolated needs labelled samples"),
        ({"keep_best": True}, "keep_best = true, but 'pictures' has no labelled samples"),
        ({"test_answers": 60}, "only 60 samples without a label"),
        ({"test_answers": 5, "page_client": 0}, "people must label for all clients"),
        ({"annotator": "oracle"}, "have people label with --annotator page"),
    ],
)
def test_what_needs_a_measurement_is_refused_in_a_sentence(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    with pytest.raises((SettingsError, DataError), match=re.escape(said)):
        Experiment.begin(chosen(tmp_path / "pictures", **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_labels_of_two_classes_leave_none_to_test_on(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\nx,1\ny,2\n")
    with pytest.raises(DataError, match=r"test on \(2 of 2 have a label\): .*label at least 2 samples of each class"):
        Experiment.begin(from_mapping({"data": str(tmp_path / "x.csv"), "clients": 1}).resolved(), tmp_path / "run")


def test_answers_to_measure_are_refused_where_there_is_a_test_part(tmp_path: Path) -> None:
    for n in range(40):
        folder = tmp_path / "set" / ("unlabeled" if n > 20 else CLASSES.split(",")[n % 2])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 12), n, dtype=np.uint8)).save(folder / f"{n}.png")
    with pytest.raises(SettingsError, match="has a test part of 4 samples to measure on"):
        Experiment.begin(chosen(tmp_path / "set", test_answers=5), tmp_path / "run")


def test_data_without_a_class_asks_for_the_names_of_the_classes(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    with pytest.raises(DataError, match="name them with the setting classes, for example --set classes="):
        sources.load(str(tmp_path / "pictures"))


def test_a_model_that_has_learnt_nothing_is_not_used(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    experiment = Experiment.begin(chosen(tmp_path / "pictures", rounds=2), tmp_path / "run")
    experiment.open_home().close()
    experiment.run()
    with pytest.raises(RunDirectoryError, match="has learnt nothing yet"):
        read_trained(tmp_path / "run")


def label(link: re.Match[str], truth: dict[str, str], run: subprocess.Popen[str], most: int) -> dict[str, str]:
    """Answer on the page until the run ends; interrupt it after ``most`` answers."""
    given: dict[str, str] = {}
    with httpx.Client(base_url=link[1], headers={"origin": link[1]}, timeout=30) as page:
        page.post("/api/enter", json={"token": link[2]}).raise_for_status()
        classes = page.get("/api/me").json()["classes"]
        while run.poll() is None and len(given) < most:
            try:
                for question in page.post("/api/next", json={"want": 3, "shown": 3}).json()["queue"]:
                    seen = page.get(f"/api/samples/{question['sample']}").headers["x-chase-seen"]
                    said = truth[question["name"]]
                    one = {"sample": question["sample"], "label": classes.index(said), "seen": seen}
                    page.post("/api/answer", json={"answers": [one]}).raise_for_status()
                    given[question["name"]] = said
            except httpx.TransportError:  # the run ended
                break
            time.sleep(0.05)
    if len(given) >= most:
        os.kill(run.pid, signal.SIGINT)
    return given


def session(command: list[str], truth: dict[str, str], most: int = 10_000) -> tuple[int, str, dict[str, str]]:
    with subprocess.Popen([*CHASE, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said, found = "", None
        while found is None:
            line = run.stdout.readline()
            assert line, said
            said += line
            found = re.search(r"(http://[^/]+)/#token=(\S+)", line)
        given = label(found, truth, run, most)
        said += run.stdout.read()
    return run.returncode, said, given


def test_a_doctor_labels_a_folder_stops_resumes_and_finds_every_label_by_its_name(tmp_path: Path) -> None:
    truth, run = pictures(tmp_path / "pictures"), tmp_path / "run"
    options = ["--annotator", "page", "--set", f"classes={CLASSES}", "--page-port", "0"]
    small = ["--rounds", "4", "--set", "budget=6", "--set", "engine=inprocess"]
    code, said, first = session(["run", str(tmp_path / "pictures"), "--out", str(run), *options, *small], truth, 3)
    assert code == 130, said
    assert "the run waits for your answers" in said
    assert "Traceback" not in said
    code, said, second = session(["resume", str(run), "--page-port", "0"], truth)
    assert code == 0, said
    assert "accuracy not measured: there is no test set; estimate" in said
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        kept = {row["name"]: row["class"] for row in csv.DictReader(file)}
    assert kept == first | second
    assert len(kept) == 12
    assert all(truth[name] == said for name, said in kept.items())


def test_questions_that_a_kill_kept_from_being_asked_are_asked_when_the_home_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path / "pictures")
    experiment = Experiment.begin(chosen(tmp_path / "pictures", test_answers=10), tmp_path / "run")

    def killed(*questions: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("chase.home.inbox.Inbox.file", killed)
        with pytest.raises(KeyboardInterrupt):
            experiment.open_home()
    home = experiment.open_home()
    assert home.ledger.open_count() == 10
    anna = home.people.named("anna").id
    home.inbox.answer(Given(home.inbox.next_for(anna, 1, shown=1)[0]["sample"], 0, anna))
    home.close()
    assert experiment.open_home().ledger.open_count() == 9, "none is asked twice"


def test_a_finished_run_does_not_wait_for_answers_that_nothing_would_use(done: Path) -> None:
    experiment = Experiment.resume(done, {})
    home = experiment.open_home()
    never = next(int(row) for row in experiment.world().parts[0] if not home.inbox.was_asked(int(row)))
    home.inbox.file([Question(never, 9, 9, "margin", 0)])
    said: list[str] = []
    with page_beside(experiment, 0, said.append):
        pass
    assert not any("waits for your answers" in text for text in said)
    assert any("1 sample still waits" in text for text in said)


def test_the_report_does_not_say_that_nobody_has_a_class_that_nobody_knows(done: Path) -> None:
    page = report_run(done)
    assert page is not None
    text = page.read_text(encoding="utf-8")
    assert "Nobody has" not in text
    assert "No class is known before people label." in text


def test_python_refuses_a_run_that_needs_the_page_to_resume(done: Path) -> None:
    with pytest.raises(SettingsError, match="use `chase resume"):
        chase.resume_experiment(done, rounds=6)


def test_a_learner_that_the_recommended_strategy_does_not_have_is_refused(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    with pytest.raises(SettingsError, match="leave learner out, or name a strategy"):
        chosen(tmp_path / "pictures", learner="network")


def test_at_most_half_of_the_samples_only_measure(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    with pytest.raises(SettingsError, match="at most half of them, 30"):
        Experiment.begin(chosen(tmp_path / "pictures", test_answers=31), tmp_path / "run")


def test_a_test_set_that_comes_later_is_refused_with_the_true_reason(done: Path, tmp_path: Path) -> None:
    pictures(tmp_path / "more", 4)
    with pytest.raises(RunDirectoryError, match=r"began without it.*start a new run with it"):
        Experiment.resume(done, {"test_data": str(tmp_path / "more"), "rounds": 6})


def test_answers_to_measure_are_asked_only_of_those_who_take_part(tmp_path: Path) -> None:
    lines = [f"{n},{n % 7},site {n % 4}" for n in range(80)]
    (tmp_path / "rows.csv").write_text("id,value,site\n" + "\n".join(lines) + "\n")
    given = {"partition": "natural", "clients": 2, "min_owned": 1, "test_answers": 15, "page_client": "all"}
    settings = chosen(tmp_path / "rows.csv", **given)
    experiment = Experiment.begin(settings, tmp_path / "run")
    assert experiment.data.groups is not None
    drawn = answer_rows(settings, experiment.data)
    of = {int(experiment.data.groups[row]) for part in experiment.parts for row in part.tolist()}
    assert len(of) == 2
    assert {int(experiment.data.groups[row]) for row in drawn} <= of
    assert sum(part.size for part in experiment.parts) == 40 - 15
    with pytest.raises(SettingsError, match="have only 40 samples without a label"):
        Experiment.begin(chosen(tmp_path / "rows.csv", **(given | {"test_answers": 21})), tmp_path / "other")


def test_progress_says_that_nothing_is_measured_yet(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    settings = chosen(tmp_path / "pictures", test_answers=20, main_metric="balanced-accuracy")
    line = {"round": 1, "mean_ev": None, "labels": 0, "seconds": 1.0, "test_accuracy": None, "per_class": None}
    shown = RunProgress(settings).line(line)
    assert "balanced accuracy not measured yet" in shown
    assert "accuracy -" not in shown
    assert "accuracy -" in RunProgress(settings.model_copy(update={"eval_every": 2})).line(line), "a round between"
