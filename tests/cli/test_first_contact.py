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

from chase.brief import COMMANDS
from chase.cli.coverage import coverage_table
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


def test_one_setting_is_explained(chase):
    out = chase("list", "bad_images").out
    assert 'default: "fail"' in out
    assert "allowed: fail, skip" in out
    assert "allowed: a number, more than 0" in chase("list", "lr").out
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
