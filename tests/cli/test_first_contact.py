"""First contact: own data without a settings file, help at once, one setting explained."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from chase.brief import COMMANDS, HELP
from chase.cli.coverage import coverage_table
from chase.cli.help_texts import help_texts
from chase.data.coverage import coverage
from chase.data.resident import DataSet
from chase.simulation.recommended import own_values


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


def refused(done):
    assert done.code == 2
    return done.err


def write_table(path):
    draw = np.random.default_rng(0)
    rows = [f"p{n};{draw.normal(n % 2):.3f};{'mf'[n % 2]};{'ab'[n % 2]}" for n in range(120)]
    path.write_text("patient;score;sex;label\n" + "\n".join(rows) + "\n")
    return path


def test_a_table_runs_by_its_path_alone_and_labels_lead_back_to_it(chase, tmp_path):
    path = write_table(tmp_path / "items.csv")
    done = chase("run", path, "--out", tmp_path / "run", "--rounds", "2")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "run" / "selections.jsonl").read_text().splitlines()]
    assert all(line["name"] in path.read_text() for line in lines)
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_folder_gets_settings_that_fit_it(tmp_path):
    from PIL import Image

    for name in "ab":
        (tmp_path / "x" / name).mkdir(parents=True)
        for n in range(30):
            Image.new("L", (40 + n % 2, 30), n).save(tmp_path / "x" / name / f"{n}.png")
    values = own_values(str(tmp_path / "x"), {})
    assert values["image_size"] == 30
    assert (values["partition"], values["clients"]) == ("iid", 1)


def write_pictures(folder, sizes, depth=np.uint8):
    """``items.csv`` with a picture per line, of the sizes in turn."""
    from PIL import Image

    for name in "ab":
        (folder / "scans" / name).mkdir(parents=True)
    rows = []
    for n in range(60):
        width, height = sizes[n % len(sizes)]
        values = np.full((height, width), (100 + n) * (8 if depth == np.uint16 else 1), dtype=depth)
        values[0, 0] = 0
        Image.fromarray(values).save(folder / "scans" / "ab"[n % 2] / f"{n}.png")
        rows.append(f"scans/{'ab'[n % 2]}/{n}.png,{'ab'[n % 2]}\n")
    (folder / "items.csv").write_text("image,label\n" + "".join(rows))
    return folder / "items.csv"


@pytest.mark.parametrize(("sizes", "chosen"), [([(40, 30), (41, 30)], 30), ([(200, 200)], 64), ([(20, 20)], None)])
def test_pictures_of_a_table_get_a_size_too(tmp_path, sizes, chosen):
    path = write_pictures(tmp_path / "x", sizes)
    assert own_values(str(path), {}).get("image_size") == chosen
    assert "image_size" not in own_values(str(path), {"image_size": 24})


def test_pictures_of_different_sizes_in_a_table_run_by_its_path_alone(chase, tmp_path):
    path = write_pictures(tmp_path / "x", [(40, 30), (41, 30)])
    done = chase("run", path, "--out", tmp_path / "run", "--rounds", "1")
    assert done.code == 0, done.err


def test_inspect_reads_own_pictures_as_a_run_does_and_prints_their_range(chase, tmp_path):
    path = write_pictures(tmp_path / "x", [(40, 30), (41, 30)], np.uint16)
    for place in (path, path.parent / "scans"):
        done = chase("data", "inspect", place)
        assert done.code == 0, done.err
        assert "images of 1x30x30" in done.out
        assert "the pictures were resized" in done.out
        assert "values of the pictures go from 0 to 1272: set pixel_range for another range" in done.out


def test_many_classes_and_few_samples_leave_something_to_ask_for(tmp_path):
    rows = "".join(f"text number {n} of topic {n % 20},t{n % 20}\n" for n in range(200))
    (tmp_path / "x.csv").write_text(f"text,label\n{rows}")
    values = own_values(str(tmp_path / "x.csv"), {})
    assert values["initial_labels"] == 0.5
    assert values["temperature"] == "leave-one-out"


def test_a_name_that_is_nothing_is_still_an_unknown_preset(chase):
    assert "unknown preset 'digitts'" in refused(chase("run", "digitts"))
    assert "does not exist" in refused(chase("run", "nowhere/items.csv"))


def test_a_file_without_data_is_refused(chase, tmp_path):
    (tmp_path / "a.toml").write_text("rounds = 1\n")
    assert "does not say which data to use" in refused(chase("run", tmp_path / "a.toml"))


def test_data_is_found_beside_its_file(chase, tmp_path, monkeypatch):
    write_table(tmp_path / "items.csv")
    (tmp_path / "a.toml").write_text(
        'data = "items.csv"\nnet = "mlp"\nclients = 2\npartition = "iid"\n'
        'rounds = 1\nstrategy = "random"\nlocal_epochs = 1\n'
    )
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert chase("run", "../a.toml", "--out", "run").code == 0


def test_help_and_version_come_at_once_and_help_names_every_command():
    from chase.cli.main import app

    named = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert set(COMMANDS) == named
    for argument in ("--help", "--version"):
        before = os.times().children_user
        run = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "chase", argument], capture_output=True, text=True
        )
        assert run.returncode == 0
        assert "chase" in run.stdout
        assert "torch" not in run.stderr
        assert os.times().children_user - before < 0.5


@pytest.mark.parametrize("words", [["run", "--help"], ["list", "settings"]])
def test_a_reader_that_stops_reading_gets_no_traceback(words):
    """As in `chase run --help | head -1`."""
    pipe = subprocess.Popen(
        [sys.executable, "-m", "chase", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert pipe.stdout is not None
    pipe.stdout.close()
    _, err = pipe.communicate(timeout=120)
    assert err == ""
    assert pipe.returncode == 141


def test_the_kept_help_is_that_of_the_commands(chase):
    from chase.cli.main import app

    assert help_texts(app) == json.loads(HELP.read_text()), "run: python -m chase.cli.help_texts"
    assert chase("site", "init", "--help").out.split() == help_texts(app)["site init"].split()


HELP_OF_ALL = """
import contextlib, io, json, sys
from chase import __main__ as command
from chase.brief import HELP
for name in json.loads(HELP.read_text()):
    sys.argv = ["chase", *name.split(), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        command.main()
    assert f"Usage: chase {name} " in said.getvalue(), name
    slow = {"torch", "numpy", "pydantic", "typer"} & set(sys.modules)
    assert not slow, (name, slow)
"""


def test_help_of_every_command_loads_nothing_that_runs_need():
    before = os.times().children_user
    run = subprocess.run([sys.executable, "-c", HELP_OF_ALL], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert os.times().children_user - before < 0.5  # for all of them


def test_one_setting_is_explained(chase):
    out = chase("list", "bad_images").out
    assert 'default: "fail"' in out
    assert "allowed: fail, skip" in out
    assert "allowed: a number, more than 0" in chase("list", "lr").out
    both = chase("list", "data").out  # a setting and a group
    assert "default: " in both
    assert "settings: data (" in both
    assert "[classes]" in chase("list", "settings").out.replace("\n", "")  # not swallowed as markup


def test_client_names_stay_whole_at_80_columns(digits: DataSet):
    names = [f"university-hospital-of-town-{n}" for n in range(3)]
    classes = tuple(f"a-rather-long-name-of-a-class-{c}" for c in range(10))
    parts = list(np.array_split(np.arange(300), 3))
    table = coverage(digits.train_labels, classes, parts, [part[:10] for part in parts], names)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(coverage_table(table))
    shown = console.export_text()
    assert all(name in shown for name in names)


def test_the_head_of_the_client_table_stays_whole_too(digits: DataSet):
    classes = tuple(f"a-rather-long-name-of-a-class-{c}" for c in range(10))
    parts = list(np.array_split(np.arange(300), 3))
    table = coverage(digits.train_labels, classes, parts, [part[:10] for part in parts])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(coverage_table(table))
    assert "client " in console.export_text().splitlines()[0]


def test_data_with_one_class_is_refused(chase, tmp_path):
    (tmp_path / "one.csv").write_text("text,label\n" + "\n".join(f"t{n},same" for n in range(50)) + "\n")
    assert "has one class only ('same')" in refused(chase("run", tmp_path / "one.csv", "--out", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_usual_columns_are_found_whatever_their_case(chase, tmp_path):
    rows = "\n".join(f"t{n},{'ab'[n % 2]},{'xy'[n % 2]}" for n in range(60))
    (tmp_path / "a.csv").write_text(f"Text,Diagnosis,Hospital\n{rows}\n")
    found = json.loads(chase("data", "inspect", tmp_path / "a.csv", "--json").out)
    assert (found["kind"], list(found["classes"]), found["owners"]) == ("text", ["a", "b"], {"x": 24, "y": 24})


def test_the_time_left_does_not_count_the_start(monkeypatch):
    from chase.cli import progress
    from chase.settings import load

    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    line = {"round": 1, "test_accuracy": 0.5, "labels": 0, "mean_ev": None, "seconds": 2.0}
    shown = progress.RunProgress(load("digits", {"rounds": 11}), quiet=True)
    now[0] = 100.0  # starting took 98 s
    shown.round_done(line)
    assert "20 s left" in shown.line(line)
    now[0] = 104.0
    shown.round_done(line | {"round": 2, "seconds": 1.0})
    assert "36 s left" in shown.line(line | {"round": 2, "seconds": 1.0})  # 4 s for a round, waiting included


def test_an_unknown_list_names_each_choice_once(chase):
    choices = refused(chase("list", "zzzzqq")).partition("known: ")[2].strip().split(", ")
    assert {"annotator", "clients", "data", "engine", "model"} <= set(choices)
    assert len(choices) == len(set(choices))


def test_a_command_is_made_from_its_own_module_and_any_other_word_names_them_all(chase):
    from chase.cli.main import MODULES, commands

    assert set(MODULES) == set(COMMANDS)
    for name in MODULES:
        made = commands(name)
        assert name in {one.name for one in (*made.registered_commands, *made.registered_groups)}
    assert "No such command 'lisst'. Did you mean 'list'?" in refused(chase("lisst"))


RUN_DIGITS = """
import sys
sys.argv = "chase run digits --rounds 1 --set clients=2 --set engine=inprocess --out run".split()
from chase import __main__ as command
try:
    command.main()
finally:
    assert "torch" in sys.modules
    slow = {"sklearn", "scipy.stats", "pandas", "flwr", "ray", "opacus", "datasets"} & set(sys.modules)
    assert not slow, slow
"""


def test_a_run_loads_nothing_that_it_does_not_need(tmp_path):
    run = subprocess.run([sys.executable, "-c", RUN_DIGITS], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("words", [("--strategy", "random"), ("--strategy", "margin", "--set", "learner=network")])
def test_texts_run_by_their_path_with_a_network_too(chase, tmp_path, words):
    rows = "".join(f"{'good' if n % 2 else 'bad'} thing number {n},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "x.csv").write_text("text,label\n" + rows)
    done = chase("run", tmp_path / "x.csv", "--out", tmp_path / "run", "--rounds", "1", *words)
    assert (done.code, done.err) == (0, "")
