"""``chase federation up`` and ``down`` as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chase.core.processes import group_lives
from chase.federation.diary import state

pytestmark = [pytest.mark.federation, pytest.mark.timeout(900)]
UP = ["--sites", "2", "--set", "rounds=2", "--set", "local_epochs=2", "--set", "classes_per_client=5"]


def chase(*arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "chase", "federation", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]


def wait_until(what: Callable[[], bool], limit: float = 400.0) -> None:
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def groups(fed: Path) -> list[int]:
    body = json.loads((fed / "processes.json").read_text())
    return [int(entry["pid"]) for entry in body["jobs"].values()]


@pytest.mark.parametrize("how", ["Ctrl-C", "down"])
def test_it_comes_up_goes_down_and_goes_on_without_an_orphan(tmp_path: Path, how: str) -> None:
    fed = tmp_path / "fed"
    up = chase("up", str(fed), *UP, start_new_session=True)
    try:
        wait_until(lambda: up.poll() is not None or "training" in state(fed / "run").get("sites", {}).values())
        assert up.poll() is None, up.communicate()
        started = groups(fed)
        assert len(started) == 5  # SuperLink, SuperExec, two nodes and the page of the first site
        said = ""
        if how == "Ctrl-C":
            os.kill(up.pid, signal.SIGINT)
        else:
            said = chase("down", str(fed)).communicate(timeout=120)[0]
            assert "federation stopped" in said
        out, _ = up.communicate(timeout=120)
        assert up.returncode == 130, out
        assert "stopped. Resume with" in out
        assert [g for g in started if group_lives(g)] == []
        assert not (fed / "processes.json").exists()
        assert "nothing was running" in chase("down", str(fed)).communicate(timeout=120)[0]
    finally:
        up.kill()
        up.wait()


def test_an_insecure_one_is_loud_and_works(tmp_path: Path) -> None:
    fed = tmp_path / "fed"
    up = chase("up", str(fed), *UP, "--no-person", "--insecure", start_new_session=True)
    try:
        out, _ = up.communicate(timeout=800)
        assert up.returncode == 0, out
        assert "WARNING: --insecure" in out
        assert "INSECURE: no encryption" in out
        assert "finished: all 2 rounds done" in out
    finally:
        up.kill()
        up.wait()
