"""Killed at any moment and gone on with, a run ends with the same metrics and the same weights, bit for bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from killing import POINTS
from support import CHASE, final_weights, timeless

from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.settings import load, parse_changes

CHANGES = ["clients=4", "local_epochs=2", "engine=inprocess", "answer_delay=1", "dropout=0.2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def changes(rounds: int, *more: str) -> list[str]:
    return [part for pair in [*CHANGES, f"rounds={rounds}", *more] for part in ("--set", pair)]


def reference(out: Path, rounds: int) -> Record:
    settings = load("digits", parse_changes([*CHANGES, f"rounds={rounds}"]))
    experiment = Experiment.begin(settings, out)
    experiment.run()
    return experiment.record


def same(path: Path, whole: Record) -> None:
    found = Record.open(path)
    assert timeless(found.metrics) == timeless(whole.metrics)
    assert found.selections == whole.selections
    assert final_weights(path) == final_weights(whole.path)
    left_over = [p.name for p in (path / "checkpoint").iterdir() if p.name.endswith(".tmp")]
    assert left_over == []


def kill(*lines: str) -> list[int]:
    """Run the commands to their named ends; the signal that ended each."""
    script = str(Path(__file__).with_name("killing.py"))
    done = subprocess.run(
        [sys.executable, script, *lines], env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=200
    )
    return [int(line) for line in done.stdout.splitlines() if line.lstrip("-").isdigit()]


SAVING = [point for point in POINTS if not point.startswith(("resume", "merging", "never"))]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record, list[int]]:
    """A whole run, one killed at every step of saving, and one killed again and again."""
    where = tmp_path_factory.mktemp("killed")
    line = " ".join(changes(5))
    ends = kill(
        *(f"{point} run digits --out {where / point} {line}" for point in SAVING),
        f"metrics-done run digits --out {where / 'again'} {line}",
        f"resume-metrics resume {where / 'again'}",
        f"resume-selections resume {where / 'again'}",
        f"resume-state resume {where / 'again'}",
        f"never resume {where / 'again'}",
    )
    return where, reference(where / "whole", 5), ends


@pytest.mark.parametrize("point", SAVING)
def test_killed_at_every_step_of_saving(scene: tuple[Path, Record, list[int]], point: str) -> None:
    where, whole, ends = scene
    assert ends[SAVING.index(point)] == signal.SIGKILL
    killed = Record.open(where / point)
    assert len(killed.metrics) < 5
    assert timeless(killed.metrics) == timeless(whole.metrics[: len(killed.metrics)])
    Experiment.resume(where / point).run()
    same(where / point, whole)


def test_killed_again_while_going_on(scene: tuple[Path, Record, list[int]]) -> None:
    where, whole, ends = scene
    assert ends[len(SAVING) :] == [signal.SIGKILL] * 4 + [0]
    same(where / "again", whole)


def test_killed_while_segments_are_merged(tmp_path: Path) -> None:
    """Few of the clients take part, so that old segments stay in use until they are merged."""
    few = ["clients=30", "share_of_clients=0.03"]
    line = " ".join(changes(15, *few))
    assert kill(f"merging run digits --out {tmp_path / 'killed'} {line}") == [signal.SIGKILL]
    experiment = Experiment.begin(load("digits", parse_changes([*CHANGES, "rounds=15", *few])), tmp_path / "whole")
    experiment.run()
    resumed = Experiment.resume(tmp_path / "killed")
    assert 1 < resumed.saved_rounds < 15
    resumed.run()
    same(tmp_path / "killed", experiment.record)


def wait_for(path: Path, lines: int, process: subprocess.Popen[Any]) -> None:
    """Until the run has done so many rounds."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        assert process.poll() is None, "the run ended before it was stopped"
        time.sleep(0.01)
    raise AssertionError(f"no {lines} rounds within four minutes")


def start(out: Path, rounds: int, *more: str) -> subprocess.Popen[str]:
    command = [*CHASE, "run", "digits", "--out", str(out), *changes(rounds, *more)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_killed_from_outside_at_random_moments(tmp_path: Path) -> None:
    """A run in one process, resumed by the command, and one with workers."""
    rounds = 12
    whole = reference(tmp_path / "whole", rounds)
    for number, more in enumerate([(), ("engine=workers", "workers=2")]):
        out = tmp_path / str(number)
        process = start(out, rounds, *more)
        wait_for(out / "metrics.jsonl", 1, process)
        time.sleep(random.uniform(0.0, 0.3))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        done = len(Record.open(out).metrics)
        assert 1 <= done < rounds, "killed too late to prove anything"
        if number == 0:
            resumed = subprocess.run(
                [*CHASE, "resume", str(out)], env=ENVIRONMENT, capture_output=True, text=True, timeout=200
            )
            assert resumed.returncode == 0, resumed.stderr
        else:
            Experiment.resume(out, {"engine": "inprocess"}).run()
        same(out, whole)


@pytest.mark.parametrize("more", [(), ("engine=workers", "workers=2")], ids=["inprocess", "workers"])
def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path: Path, more: tuple[str, ...]) -> None:
    out = tmp_path / "run"
    process = start(out, 10_000, *more)
    wait_for(out / "metrics.jsonl", 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    said, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complained == ""
    saved = max(int(p.stem) for p in (out / "checkpoint").glob("[0-9]*.json"))
    rounds = "1 round is saved" if saved == 1 else f"{saved} rounds are saved"
    assert f"stopped; {rounds}. Resume with: chase resume {out}" in said
    assert Experiment.resume(out).saved_rounds == saved
    shutil.rmtree(out)
