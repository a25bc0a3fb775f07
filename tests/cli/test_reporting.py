from __future__ import annotations

import csv
import json
import shutil

import pytest

from chase.cli.progress import RunProgress
from chase.report.quality import in_words
from chase.server.server import Server
from chase.studies.catalog import find_study
from chase.studies.plan import Options, plan, write_plan

SMALL = ("--set", "clients=2", "--set", "engine=inprocess")


def test_a_run_ends_with_a_table_and_a_report(chase, tmp_path):
    out = tmp_path / "r"
    done = chase("run", "digits", "-s", "random", "--set", "rounds=2", *SMALL, "--out", out)
    assert done.code == 0
    assert "random on digits: all 2 rounds done" in done.out
    assert f"report: {out}/report.html" in done.out
    assert "Accuracy over rounds" in (out / "report.html").read_text()


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_stopped_run_has_a_report_of_what_is_saved(chase, tmp_path, monkeypatch):
    monkeypatch.setattr(RunProgress, "round_done", interrupt)
    out = tmp_path / "r"
    done = chase("run", "digits", "--set", "rounds=3", *SMALL, "--out", out)
    assert done.code == 130
    assert f"stopped; 1 round is saved. Resume with: chase resume {out}" in done.out
    assert f"report: {out}/report.html" in done.out
    assert (out / "report.html").is_file()


def test_a_run_stopped_before_its_first_round_has_none(chase, tmp_path, monkeypatch):
    monkeypatch.setattr(Server, "orders", interrupt)
    done = chase("run", "digits", "--set", "rounds=3", *SMALL, "--out", tmp_path / "r")
    assert done.code == 130
    assert not (tmp_path / "r" / "report.html").exists()


def test_show_is_a_table_or_json(chase, run_dir):
    shown = chase("show", run_dir)
    assert shown.code == 0
    assert "chase on digits, seed 0: 3 of 3 rounds done" in shown.out
    found = json.loads(chase("show", run_dir, "--json").out)
    assert [line["round"] for line in found["metrics"]] == [1, 2, 3]
    assert found["settings"]["clients"] == 3
    assert found["environment"]["packages"]["torch"]


def test_show_has_what_the_end_of_a_run_says_of_the_accuracy(chase, run_dir):
    said = in_words(json.loads((run_dir / "confusion.json").read_text())["quality"])
    assert "most frequent class" in said
    assert "95 % interval" in said
    assert said in chase("show", run_dir).out
    with (run_dir / "metrics.jsonl").open("a") as file:  # as a run that was made longer and stopped in between
        last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
        file.write(json.dumps(last | {"round": 4}) + "\n")
    assert "most frequent class" not in chase("show", run_dir).out


def test_report_compares_all_runs_of_a_directory(chase, run_dir, tmp_path):
    two = shutil.copytree(run_dir, run_dir.parent / "two")
    changed = (two / "settings.toml").read_text().replace('strategy = "chase"', 'strategy = "random"')
    (two / "settings.toml").write_text(changed)
    done = chase("report", run_dir.parent)
    assert done.code == 0
    assert f"report: {run_dir.parent}/report.html" in done.out
    assert "<title>chase and random on digits</title>" in (run_dir.parent / "report.html").read_text()
    page = tmp_path / "new" / "page.html"
    found = json.loads(chase("report", run_dir, two, "--out", page, "--json").out)
    assert found["report"] == str(page)
    assert [m["method"] for m in found["methods"]] == ["chase", "random"]
    assert page.is_file()


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("made", [True, False])
def test_a_directory_without_a_run_is_one_sentence_and_exit_code_2(chase, tmp_path, command, made):
    place = tmp_path / "nothing"
    if made:
        place.mkdir()
    done = chase(command, place)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"chase: {place} ")
    assert done.err.count("\n") == 1


def test_a_study_without_a_finished_round_is_one_sentence(chase, tmp_path):
    write_plan(tmp_path, "ablation", plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1)))
    shown = chase("report", tmp_path)
    assert shown.code == 2
    assert "no round of its studies is finished yet" in shown.err


def test_a_report_has_its_tables_beside_it(chase, run_dir, tmp_path):
    shown = chase("report", run_dir, "--out", tmp_path / "page.html")
    assert f"tables: {tmp_path / 'page-tables'}" in shown.out
    names = {path.name for path in (tmp_path / "page-tables").iterdir()}
    assert {"summary.csv", "accuracy.tex", "settings.csv", "versions.tex"} <= names
    assert "results.csv" not in names, "one method is compared with nothing"
    rows = list(csv.DictReader((tmp_path / "page-tables" / "summary.csv").read_text().splitlines()))
    assert 0 < float(rows[0]["accuracy, %"]) <= 100


def test_show_of_many_runs_points_to_report(chase, run_dir):
    done = chase("show", run_dir.parent)
    assert done.code == 2
    assert "chase report" in done.err


def test_a_page_that_cannot_be_written_is_one_sentence(chase, run_dir):
    done = chase("report", run_dir, "--out", run_dir / "settings.toml" / "page.html")
    assert done.code == 2
    assert done.err.startswith("chase: cannot write")


@pytest.mark.parametrize("command", ["show", "report"])
def test_help_has_an_example(chase, command):
    assert f"Example: chase {command}" in chase(command, "--help").out
