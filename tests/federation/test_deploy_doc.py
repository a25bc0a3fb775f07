"""docs/deploy.md: its loopback version, run as it is written there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from chase.cli.main import app
from chase.core.processes import group_lives
from chase.federation.diary import events
from chase.federation.ops.processes import signal_groups, take_down
from chase.run.record import Record

DOC = Path(__file__).parents[2] / "docs" / "deploy.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOC.read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_the_loopback_version_runs_as_written(tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(blocks("bash"))
    beside = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=850)
        assert shell.returncode == 0, said
        assert "finished: all 2 rounds done" in said
        assert said.count("may connect") == 3
        assert said.count("disconnected") == 3
        assert "taken down" in said
        assert not group_lives(shell.pid)
        metrics = Record.open(tmp_path / "fed" / "run").metrics
        assert [line["took_part"] for line in metrics] == [3, 3]
        assert metrics[-1]["site_count"] > 50
        assert sorted(e["site"] for e in events(tmp_path / "fed" / "run") if e["what"] == "joined") == [
            "site-a",
            "site-b",
            "site-c",
        ]
    finally:
        for registry in tmp_path.glob("*/processes.json"):
            take_down(registry)
        signal_groups([shell.pid], signal.SIGKILL)
        shell.wait()


def test_every_command_and_option_that_it_names_exists() -> None:
    text = DOC.read_text(encoding="utf-8").replace("\\\n", " ")
    assert len(blocks("ini")) == 4
    assert len(blocks("nginx")) == 1
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for group, command in sorted(set(re.findall(r"chase (federation|site) ([a-z]+)", text))):
        known = {option for p in groups[group].commands[command].params for option in p.opts}
        lines = [line for line in text.splitlines() if f"chase {group} {command} " in line]
        used = {option for line in lines for option in re.findall(r" (--[a-z-]+)", line)}
        assert used <= known, (group, command)
