"""``chase predict`` calls a sample what ``labels.csv``, the page and ``selections.jsonl`` call it: they join by id."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from typer.testing import CliRunner

from chase.cli.main import app
from chase.cli.people import keep_labels
from chase.core.errors import DataError
from chase.home.inbox import Given
from chase.run.experiment import Experiment
from chase.settings import from_mapping
from chase.simulation.recommended import own_values

COUNT = 24


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))


def session(data: Path, **changes: Any) -> Path:
    """A finished page session on the data, in which somebody answers every question."""
    given = {"annotator": "page", "classes": "a,b", "rounds": 3, "budget": 6, "engine": "inprocess"}
    given |= {"text_features": 64} | changes  # few directions: the time goes into names
    settings = from_mapping(own_values(str(data), given) | given).resolved()
    run = data.parent / "run"
    experiment = Experiment.begin(settings, run)
    home = experiment.open_home()
    anna = home.people.named("anna").id

    def answer_all(metrics: dict[str, Any]) -> None:
        for question in home.inbox.next_for(anna, 100, shown=100):
            home.inbox.answer(Given(question["sample"], question["sample"] % 2, anna))

    experiment.run(answer_all)
    home.close()
    keep_labels(experiment)
    return run


def names_of(run: Path) -> set[str]:
    """The ids in ``labels.csv``, which are those in ``selections.jsonl`` too."""
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        labels = {row["name"] for row in csv.DictReader(file)}
    lines = (run / "selections.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["name"] for line in lines} <= labels
    assert len(labels) >= 6
    return labels


def predicted(run: Path, *paths: str | Path, code: int = 0) -> list[str]:
    """The ids of predictions, the same as JSON, as CSV and in the table."""
    done = CliRunner().invoke(app, ["predict", str(run), *map(str, paths), "--json"])
    assert done.exit_code == code, done.output
    ids = [line["id"] for line in json.loads(done.stdout)]
    table = CliRunner().invoke(app, ["predict", str(run), *map(str, paths), "--csv"])
    assert [row["id"] for row in csv.DictReader(table.stdout.splitlines())] == ids
    return ids


def picture(file: Path, number: int) -> None:
    stripes = np.broadcast_to(np.arange(12) // 3 % 2 * 150, (12, 12))
    pixels = np.random.default_rng(number).integers(0, 90, (12, 12)) + (stripes if number % 2 else stripes.T)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(file)


def flat_folder(place: Path) -> Path:
    for n in range(COUNT):
        picture(place / "scans" / f"Befund {n:02d} ä.png", n)
    return place / "scans"


def class_folders(place: Path) -> Path:
    for n in range(COUNT):
        picture(place / "scans" / ("unlabeled" if n > 3 else "ab"[n % 2]) / f"{n:02d}.png", n)
    return place / "scans"


def parted_folder(place: Path) -> Path:
    for n in range(COUNT):
        picture(place / "scans" / "train" / "unlabeled" / f"{n:02d}.png", n)
    for n in range(4):
        picture(place / "scans" / "test" / "ab"[n % 2] / f"{n:02d}.png", n + 100)
    return place / "scans"


def paths_in_a_csv(place: Path) -> Path:
    for n in range(COUNT):
        picture(place / "scans" / f"{n:02d}.png", n)
    rows = [f"./scans/{n:02d}.png" for n in range(COUNT)]
    (place / "scans.csv").write_text("path\n" + "\n".join(rows) + "\n")
    return place / "scans.csv"


WORDS = ("red green blue", "one two three")


def texts_by_line(place: Path) -> Path:
    rows = [f'"{WORDS[n % 2]}\n{n}"' for n in range(COUNT)]  # two lines each
    (place / "notes.csv").write_text("text\n" + "\n".join(rows) + "\n")
    return place / "notes.csv"


def texts_by_id(place: Path) -> Path:
    rows = [f"N/{n};{WORDS[n % 2]} {n}" for n in range(COUNT)]
    (place / "notes.csv").write_bytes(("Befund_ID;text\n" + "\n".join(rows) + " ä\n").encode("latin-1"))
    return place / "notes.csv"


def cells(n: int) -> tuple[float, str]:
    return float(np.random.default_rng(n).normal(3 * (n % 2))), "mf"[n % 2]


def table_by_line(place: Path) -> Path:
    rows = [f"{cells(n)[0]:.3f},{cells(n)[1]}" for n in range(COUNT)]
    (place / "rows.csv").write_text("score,sex\n" + "\n".join(rows) + "\n")
    return place / "rows.csv"


def table_by_id(place: Path) -> Path:
    rows = [f"p-{n},{cells(n)[0]:.3f},{cells(n)[1]}" for n in range(COUNT)]
    (place / "rows.csv").write_text("patient,score,sex\n" + "\n".join(rows) + "\n")
    return place / "rows.csv"


def table_of_visits(place: Path) -> Path:
    """Ids that are not unique name no row here, but would in a part of the table."""
    rows = [f"{n // 2},{cells(n)[0]:.3f},{cells(n)[1]}" for n in range(COUNT)]
    (place / "rows.csv").write_text("patient_id,score,sex\n" + "\n".join(rows) + "\n")
    return place / "rows.csv"


def parquet_file(place: Path) -> Path:
    rows = pa.table({"text": [f"{WORDS[n % 2]} {n}" for n in range(COUNT)]})
    pyarrow.parquet.write_table(rows, place / "notes.parquet")
    return place / "notes.parquet"


def parquet_shards(place: Path) -> Path:
    (place / "set" / "data").mkdir(parents=True)
    for shard in range(2):
        rows = pa.table({"text": [f"{WORDS[n % 2]} {n}" for n in range(shard * 12, shard * 12 + 12)]})
        pyarrow.parquet.write_table(rows, place / "set" / "data" / f"train-0000{shard}-of-00002.parquet")
    return place / "set"


def picture_shards(place: Path) -> Path:
    """Files of the Hugging Face library: the paths beside the pictures begin anew in every file."""
    (place / "set" / "data").mkdir(parents=True)
    for n in range(COUNT):
        picture(place / "pictures" / f"{n:02d}.png", n)
    for shard in range(2):
        taken = [(place / "pictures" / f"{n + 12 * shard:02d}.png").read_bytes() for n in range(12)]
        cells = pa.table({"image": [{"bytes": content, "path": f"{n}.png"} for n, content in enumerate(taken)]})
        pyarrow.parquet.write_table(cells, place / "set" / "data" / f"train-0000{shard}-of-00002.parquet")
    return place / "set"


def csv_shards(place: Path) -> Path:
    (place / "set").mkdir(parents=True)
    for shard in range(2):
        rows = [f"{WORDS[n % 2]} {n}" for n in range(shard * 12, shard * 12 + 12)]
        (place / "set" / f"train-0000{shard}-of-00002.csv").write_text("text\n" + "\n".join(rows) + "\n")
    return place / "set"


KINDS = [flat_folder, class_folders, parted_folder, paths_in_a_csv, texts_by_line, texts_by_id]
KINDS += [table_by_line, table_by_id, table_of_visits, parquet_file, parquet_shards, picture_shards, csv_shards]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_predictions_and_labels_of_the_same_data_join_by_id(make: Callable[[Path], Path], tmp_path: Path) -> None:
    data = make(tmp_path)
    run = session(data)
    ids = predicted(run, data)
    assert len(set(ids)) == len(ids)
    assert names_of(run) <= set(ids)
    if data.is_dir() and "shards" in make.__name__:
        assert [name for file in sorted(data.rglob("train-*")) for name in predicted(run, file)] == ids


def test_a_folder_has_the_same_ids_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = class_folders(tmp_path)
    run = session(data)
    known = set(predicted(run, data))
    assert names_of(run) < known == {str(file.relative_to(data)) for file in data.rglob("*.png")}
    assert set(predicted(run, f"{data}/")) == known
    (tmp_path / "link").symlink_to(data)
    assert set(predicted(run, tmp_path / "link")) == known
    monkeypatch.chdir(tmp_path)
    assert set(predicted(Path("run"), "scans")) == known
    monkeypatch.chdir(data / "a")
    assert set(predicted(run, "..")) == known
    assert set(predicted(run, os.path.relpath(data))) == known
    shutil.copytree(data, tmp_path / "elsewhere" / "copy")
    assert set(predicted(run, tmp_path / "elsewhere" / "copy")) == known


def test_a_part_of_the_training_folder_keeps_the_ids_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = class_folders(tmp_path)
    run = session(data)
    assert names_of(run) <= set(predicted(run, data / "unlabeled")) | {f"{c}/0{n}.png" for n, c in enumerate("abab")}
    assert predicted(run, data / "unlabeled" / "07.png", data / "a" / "00.png") == ["unlabeled/07.png", "a/00.png"]
    monkeypatch.chdir(data / "unlabeled")
    assert predicted(run, "07.png") == ["unlabeled/07.png"]
    assert predicted(run, ".")[0] == "unlabeled/04.png"
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.move(run, moved / "run")
    shutil.move(data, moved / "scans")
    monkeypatch.chdir(tmp_path)
    assert predicted(moved / "run", moved / "scans" / "unlabeled" / "07.png") == ["unlabeled/07.png"]


def test_other_files_are_called_as_they_lie_in_their_folder(tmp_path: Path) -> None:
    run = session(flat_folder(tmp_path))
    picture(tmp_path / "new" / "deep" / "1.png", 1)
    picture(tmp_path / "more" / "deep" / "1.png", 2)
    picture(tmp_path / "more" / "2.png", 3)
    assert predicted(run, tmp_path / "new") == ["deep/1.png"]
    assert predicted(run, tmp_path / "new" / "deep" / "1.png") == [str(tmp_path / "new" / "deep" / "1.png")]
    both = predicted(run, tmp_path / "new", tmp_path / "more")
    assert both == [f"{tmp_path}/new/deep/1.png", "2.png", f"{tmp_path}/more/deep/1.png"], "no id stands for two files"


def test_a_broken_file_is_named_as_the_others(tmp_path: Path) -> None:
    data = flat_folder(tmp_path)
    run = session(data)
    (data / "Befund 03 ä.png").write_bytes(b"nothing")
    ids = predicted(run, data, code=1)
    assert len(ids) == COUNT
    assert "Befund 03 ä.png" in ids


def test_a_file_name_that_is_not_text_is_predicted(tmp_path: Path) -> None:
    data = flat_folder(tmp_path)
    run = session(data)
    os.rename(data / "Befund 03 ä.png", os.fsencode(data) + b"/\xe4.png")
    assert "?.png" in predicted(run, data)


def test_ids_found_in_the_training_table_count_for_a_part_of_it(tmp_path: Path) -> None:
    """A column that names the rows here need not look like one in a smaller table, and the other way round."""
    data = table_of_visits(tmp_path)
    run = session(data)
    lines = data.read_text().splitlines()
    data.write_text("\n".join([lines[0], *lines[1::2]]) + "\n")  # now every patient has one row
    assert predicted(run, data)[0] == "rows.csv:2"


def test_names_like_formulas_are_the_same_in_both_files(tmp_path: Path) -> None:
    rows = [f"{'-=+@'[n % 4]}{n},{cells(n)[0]:.3f},{cells(n)[1]}" for n in range(COUNT)]
    (tmp_path / "rows.csv").write_text("patient,score,sex\n" + "\n".join(rows) + "\n")
    run = session(tmp_path / "rows.csv", id_column="patient")
    table = CliRunner().invoke(app, ["predict", str(run), str(tmp_path / "rows.csv"), "--csv"])
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        labels = {row["name"] for row in csv.DictReader(file)}
    assert labels <= {row["id"] for row in csv.DictReader(table.stdout.splitlines())}


def test_data_that_moved_alone_is_found_again_and_keeps_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = class_folders(tmp_path)
    run = session(data)
    (tmp_path / "away").mkdir()
    shutil.move(data, tmp_path / "away" / "scans")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as refused:
        Experiment.resume(run, {})
    assert str(refused.value).count(str(data)) == 1, "the same place is not named twice"
    Experiment.resume(run, {"data": "away/scans", "rounds": 4})
    monkeypatch.chdir(tmp_path / "away")
    Experiment.resume(run, {})
    assert predicted(run, "scans/unlabeled/07.png") == ["unlabeled/07.png"]
