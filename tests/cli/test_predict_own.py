"""Predictions for own data: folders, rows of tables with their ids, a bad file among good ones; exports and cards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from chase.export.card_text import model_card
from chase.export.trained import read_trained


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table_run(chase, tmp_path):
    draw = np.random.default_rng(0)
    rows = [f"p{n};{draw.normal(3 * (n % 2)):.3f};{'mf'[n % 2]};{'ab'[n % 2]}" for n in range(120)]
    (tmp_path / "items.csv").write_text("patient;score;sex;label\n" + "\n".join(rows) + "\n")
    options = ["net=mlp", "clients=2", "partition=iid", "rounds=3", "strategy=random", "lr=0.1", "local_epochs=3"]
    sets = [part for option in options for part in ("--set", option)]
    toml = tmp_path / "a.toml"
    toml.write_text('data = "items.csv"\n')
    assert chase("run", toml, "--out", tmp_path / "run", *sets).code == 0
    return tmp_path / "run"


def test_rows_of_a_table_are_predicted_by_their_ids(chase, table_run, tmp_path):
    (tmp_path / "new.csv").write_text("patient,sex,score,label\nx1,m,0.0,\nx2,f,3.0,\nx3,,,\n")
    found = json.loads(chase("predict", table_run, tmp_path / "new.csv", "--top", "2", "--json").out)
    assert [p["id"] for p in found] == ["x1", "x2", "x3"]
    assert all(sum(t["probability"] for t in p["top"]) == pytest.approx(1) for p in found)
    rows = chase("predict", table_run, tmp_path / "new.csv", "--csv", "--top", "2").out.splitlines()
    assert rows[0] == "id,class,probability,note,error,class_2,probability_2"


def test_the_exported_programs_and_the_card_agree_with_the_run(chase, table_run, tmp_path):
    assert chase("export", table_run, "--format", "onnx", "--which", "best").code == 0  # executed before it counts
    assert chase("export", table_run).code == 0
    card = (table_run / "export" / "MODEL_CARD.md").read_text()
    assert "balanced accuracy: " in card
    assert "| class | sensitivity | specificity | AUC | test samples |" in card
    assert "| site | samples | initial labels | accuracy on its classes |" in card
    assert "to be filled in" in card
    assert "- input: rows of a table with the columns score (number), sex (one of f, m)\n" in card
    assert "| a |" in card
    best = read_trained(table_run, "best")
    scores = [line["test_accuracy"] for line in best.metrics]
    assert best.test_accuracy == max(scores)
    assert best.round == scores.index(max(scores)) + 1


def test_the_card_of_the_best_round_has_interval_baseline_and_sensitivity(chase, table_run):
    metrics = table_run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[1] |= {"test_accuracy": 23 / 24, "per_class": [1.0, 11 / 12]}  # so that the best is not the last
    lines[2] |= {"test_accuracy": 0.5}
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = model_card(replace(read_trained(table_run), round=2, metrics=tuple(lines)))
    assert "- accuracy: 95.8% (95 % interval 79.8% to 99.3%, 24 test samples)" in shown
    assert "- always the most frequent class: 50.0%" in shown
    assert "- balanced accuracy: 95.8%" in shown
    assert "| b | 91.7% | 12 |" in shown
    assert "The round was chosen by these figures, so they are somewhat too good for new samples." in shown


def test_a_folder_goes_on_past_a_bad_file_and_says_so(chase, tmp_path):
    for name, level in (("a", 40), ("b", 200)):
        (tmp_path / "x" / name).mkdir(parents=True)
        for n in range(20):
            Image.fromarray(np.full((8, 8), level + n, dtype=np.uint8)).save(tmp_path / "x" / name / f"{n}.png")
    (tmp_path / "a.toml").write_text(
        'data = "x"\nclients = 2\npartition = "iid"\nrounds = 1\nstrategy = "random"\ninitial_labels = 0.5\n'
    )
    assert chase("run", tmp_path / "a.toml", "--out", tmp_path / "run").code == 0
    Image.new("L", (20_000, 10_000)).save(tmp_path / "x" / "a" / "3.png")
    done = chase("predict", tmp_path / "run", tmp_path / "x", "--json")
    assert done.code == 1
    assert "1 of 40 samples could not be read" in done.err
    assert "more than 100,000,000" in done.err  # the reason, not just "it is not an image"
    assert "Warning" not in done.err
    found = json.loads(done.out)
    assert sum(bool(p["error"]) for p in found) == 1
    assert sum(p["class"] is not None for p in found) == 39
    report = (tmp_path / "run" / "report.html").read_text()
    assert "What was asked" not in report  # own samples stay out of reports unless gallery=true


@pytest.mark.parametrize("column", ["", "patient"])
def test_pictures_that_the_table_of_the_run_names_are_called_as_there(chase, tmp_path, monkeypatch, column):
    (tmp_path / "scans").mkdir()
    lines = []
    for n in range(40):
        Image.fromarray(np.full((8, 8), 40 + n + 120 * (n % 2), dtype=np.uint8)).save(tmp_path / f"scans/{n:02}.png")
        lines.append(f"./scans/{n:02}.png,{'ab'[n % 2]}" + (f",P{n:02}" if column else ""))
    head = "image,label" + (f",{column}" if column else "")
    (tmp_path / "items.csv").write_text("\n".join([head, *lines]) + "\n")
    sets = ("--set", "id_column=patient") if column else ()
    assert chase("run", tmp_path / "items.csv", "--out", tmp_path / "run", "--rounds", "2", *sets).code == 0
    asked = [json.loads(line)["name"] for line in (tmp_path / "run" / "selections.jsonl").read_text().splitlines()]
    Image.new("L", (8, 8)).save(tmp_path / "scans" / "new.png")
    found = {p["id"] for p in json.loads(chase("predict", tmp_path / "run", tmp_path / "scans", "--json").out)}
    assert asked
    assert set(asked) < found
    assert "new.png" in found  # the table does not have it
    monkeypatch.chdir(tmp_path / "scans")
    (one,) = json.loads(chase("predict", "../run", "07.png", "--json").out)
    assert one["id"] == ("P07" if column else "./scans/07.png")


def test_bad_rows_and_missing_paths_do_not_stop_the_others(chase, table_run, tmp_path):
    (tmp_path / "new.CSV").write_text("patient,sex,score\nx1,m,0.0\nx2,f,heavy\nx3,x,3.0\nx1,f,\n,f,1\n")
    ids = ("--set", "id_column=patient")
    done = chase("predict", table_run, tmp_path / "gone.csv", tmp_path / "new.CSV", *ids, "--json")
    assert done.code == 1
    assert "2 of 6 samples could not be read; the first: " in done.err
    gone, good, heavy, odd, twice, nameless = json.loads(done.out)
    assert "gone.csv does not exist" in gone["error"]
    assert good["class"] == "a"
    assert not good["note"]
    assert (heavy["id"], heavy["class"]) == ("x2", None)
    assert (
        heavy["error"] == "new.CSV, line 3: column 'score' holds numbers, but 'heavy' is not a number: correct the cell"
    )
    assert odd["class"]
    assert odd["note"] == "'x' of column 'sex' was not in the training data: taken as missing"
    assert (twice["id"], twice["note"]) == ("new.CSV:5", "id 'x1' is also that of new.CSV, line 2")
    assert (nameless["id"], bool(nameless["class"])) == ("new.CSV:6", True)
    shown = chase("predict", table_run, tmp_path / "new.CSV", tmp_path / "gone.csv", *ids).out
    assert next(line for line in shown.splitlines() if "x2" in line).rstrip().endswith(("-", "–"))
    assert "0.000" not in shown


def test_one_row_with_a_missing_number_is_predicted(chase, table_run, tmp_path):
    (tmp_path / "one.csv").write_text("patient,sex,score\nx1,m,\n")
    (found,) = json.loads(chase("predict", table_run, tmp_path / "one.csv", "--json").out)
    assert found["class"]


def test_a_table_without_rows_or_a_column_of_the_model_is_refused(chase, table_run, tmp_path):
    (tmp_path / "none.csv").write_text("patient,sex,score\n")
    (tmp_path / "less.csv").write_text("patient,sex\nx1,m\n")
    for name, said in (
        ("none.csv", "none.csv has no rows"),
        ("less.csv", "has no column 'score', which the model was"),
    ):
        done = chase("predict", table_run, tmp_path / name)
        assert done.code == 2
        assert said in done.err


def test_predict_can_be_told_which_column_is_what(chase, tmp_path):
    rows = "".join(f"{'good' if n % 2 else 'bad'} thing number {n},{'ab'[n % 2]}\n" for n in range(60))
    (tmp_path / "x.csv").write_text("text,label\n" + rows)
    assert chase("run", tmp_path / "x.csv", "--out", tmp_path / "run", "--rounds", "1").code == 0
    new = tmp_path / "new.csv"
    new.write_text("remark,nr,note\ngood thing,7,so\nbad thing,8,so\n")
    refused = chase("predict", tmp_path / "run", new)
    assert refused.code == 2
    assert "text_column" in refused.err
    done = chase("predict", tmp_path / "run", new, "--set", "text_column=remark", "--set", "id_column=nr", "--json")
    assert [p["id"] for p in json.loads(done.out)] == ["7", "8"]
    other = chase("predict", tmp_path / "run", new, "--set", "lr=1")
    assert other.code == 2
    assert "lr cannot be set for this model; what can be set here: text_column, id_column, encoding" in other.err
    assert chase("export", tmp_path / "run").code == 0
    card = (tmp_path / "run" / "export" / "MODEL_CARD.md").read_text()
    assert card.startswith("# Model card: closed-form learner on x.csv\n")


def loaded(export, *files):
    """What the exported loader says, with its exit code, in a process that cannot import chase."""
    command = [sys.executable, "-I", str(export / "load_model.py"), *map(str, files)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    return done.returncode, [line.split("\t") for line in done.stdout.splitlines()], done.stderr


def test_an_exported_model_of_a_table_reads_tables_without_chase(chase, table_run, tmp_path):
    (tmp_path / "new.csv").write_text('sex;"patient";score\nm;x1;0,0\nf;x2;3.1\n;"x\n3";NA\nx;x4;1.5\n')
    done = chase("export", table_run)
    assert "load_model.py ROWS.csv" in done.out
    here = json.loads(chase("predict", table_run, tmp_path / "new.csv", "--json").out)
    code, lines, said = loaded(table_run / "export", tmp_path / "new.csv")
    assert (code, said) == (0, "")
    assert [line[0] for line in lines] == [f"{tmp_path}/new.csv:{n}" for n in (2, 3, 4, 6)]
    assert [line[1] for line in lines] == [p["class"] for p in here]
    assert [float(line[2]) for line in lines] == pytest.approx([p["probability"] for p in here], abs=1e-4)
    (tmp_path / "bad.csv").write_text("sex,score\nm,heavy\n")
    (tmp_path / "other.csv").write_text("sex,weight\nm,1\n")
    code, lines, said = loaded(
        table_run / "export", tmp_path / "bad.csv", tmp_path / "other.csv", tmp_path / "new.txt", tmp_path / "new.csv"
    )
    assert (code, len(lines)) == (1, 4), "the others are read"
    assert "Traceback" not in said
    assert "bad.csv, line 2: column 'score' holds a text" in said
    assert "other.csv has no column 'score'; it has: sex, weight" in said
    assert "new.txt: this program takes CSV files" in said
