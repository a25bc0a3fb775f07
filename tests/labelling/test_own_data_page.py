"""A page session on a user's own data: every label is found again in the user's file by the user's own id.

From a working directory that is neither that of the data nor of the run, with blanks in every path.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from support import CHASE
from typer.testing import CliRunner

from chase.cli.main import app

CLASSES = ("bag", "coat")


def pixels(n: int) -> Image.Image:
    made = np.random.default_rng(n).integers(0, 90, (16, 16)) + 130 * (n % 2)
    return Image.fromarray(made.astype(np.uint8))


def folder(place: Path) -> tuple[Path, dict[str, str]]:
    """Pictures in folders of classes; a sample's own id is its path."""
    truth = {}
    for n in range(60):
        name = f"{CLASSES[n % 2]}/picture {n}.png"
        (place / "my pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        pixels(n).save(place / "my pictures" / name)
        truth[name] = CLASSES[n % 2]
    return place / "my pictures", truth


def listed(place: Path) -> tuple[Path, dict[str, str]]:
    """A table of paths of pictures with ids of its own, not in their order."""
    folder(place)
    ids = np.random.default_rng(1).permutation(60)
    lines = [f"P{1000 + ids[n]},my pictures/{CLASSES[n % 2]}/picture {n}.png,{CLASSES[n % 2]}" for n in range(60)]
    (place / "items.csv").write_text("id,path,label\n" + "\n".join(lines) + "\n")
    return place / "items.csv", {line.split(",")[0]: line.split(",")[2] for line in lines}


def written(place: Path) -> tuple[Path, dict[str, str]]:
    """Texts with ids of their own."""
    lines = [f"T-{7 * n},a {'large' if n % 2 else 'small'} thing number {n},{CLASSES[n % 2]}" for n in range(60)]
    (place / "my texts.csv").write_text("id,text,label\n" + "\n".join(lines) + "\n")
    return place / "my texts.csv", {line.split(",")[0]: line.split(",")[2] for line in lines}


def measured(place: Path) -> tuple[Path, dict[str, str]]:
    """Rows of a table, with semicolons."""
    lines = [f"case {n};{50 + 9 * (n % 2) + n % 5};{'mf'[n % 3 % 2]};{CLASSES[n % 2]}" for n in range(60)]
    (place / "patients.csv").write_text("patient_id;age;sex;label\n" + "\n".join(lines) + "\n")
    return place / "patients.csv", {line.split(";")[0]: line.split(";")[3] for line in lines}


def answer(link: str, truth: dict[str, str], run: subprocess.Popen[str]) -> dict[str, str]:
    """Label what the page asks for, each sample by the id that the page shows, until the run ends."""
    where, token = re.match(r"(http://[^/]+)/#token=(\S+)", link).groups()  # type: ignore[union-attr]
    given: dict[str, str] = {}
    shown = {name.removeprefix(f"{label}/"): name for name, label in truth.items()}  # folders would tell the class
    with httpx.Client(base_url=where, headers={"origin": where}, timeout=30) as page:
        page.post("/api/enter", json={"token": token}).raise_for_status()
        classes = page.get("/api/me").json()["classes"]
        while run.poll() is None:
            try:
                for question in page.post("/api/next", json={"want": 9, "shown": 9}).json()["queue"]:
                    seen = page.get(f"/api/samples/{question['sample']}").headers["x-chase-seen"]
                    name = shown[question["name"]]
                    label = truth[name]
                    one = {"sample": question["sample"], "label": classes.index(label), "seen": seen}
                    page.post("/api/answer", json={"answers": [one]}).raise_for_status()
                    given[name] = label
            except httpx.TransportError:  # the run ended
                break
            time.sleep(0.05)
    return given


def session(command: list[str], cwd: Path, truth: dict[str, str]) -> dict[str, str]:
    """A command that serves a page, labelled until it ends."""
    with subprocess.Popen(
        [*CHASE, *command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        said, found = "", None
        while found is None:
            line = run.stdout.readline()
            said += line
            assert line, said
            found = re.search(r"http://\S+/#token=\S+", line)
        given = answer(found[0], truth, run)
        said += run.communicate(timeout=100)[0]
    assert run.returncode == 0, said
    return given


@pytest.mark.parametrize("make", [folder, listed, written, measured])
def test_every_label_of_a_session_is_found_again_by_its_own_id(
    make: Callable[[Path], tuple[Path, dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "a cache"))
    for name in ("my data", "elsewhere", "my runs"):
        (tmp_path / name).mkdir()
    data, truth = make(tmp_path / "my data")
    run = tmp_path / "my runs" / "run one"
    options = ["--annotator", "page", "--page-client", "all", "--page-port", "0", "--wait", "60", "--rounds", "3"]
    small = ["clients=2", "budget=3", "text_features=16", "initial_labels=0.1", "engine=inprocess"]
    given = session(
        ["run", f"../{data.relative_to(tmp_path)}", "--out", str(run), *options, *(f"--set={one}" for one in small)],
        data.parent,
        truth,
    )
    assert len(given) >= 6
    out = tmp_path / "elsewhere" / "the labels.csv"
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["label", "export", str(run / "home"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    with out.open(newline="", encoding="utf-8") as file:
        people = {row["name"]: row["class"] for row in csv.DictReader(file) if row["annotator"] == "annotator"}
    assert people == given
    assert all(truth[name] == label for name, label in people.items())
    lines = [json.loads(line) for line in (run / "selections.jsonl").read_text().splitlines()]
    assert {line["name"] for line in lines} <= set(truth)
    assert set(given) <= {line["name"] for line in lines}
