"""docs/deploy.md: its loopback version, run as it is written there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from chase.cli.main import app
from chase.core.processes import group_lives
from chase.federation.diary import events
from chase.federation.ops.supervisor import signal_groups, take_down
from chase.run.record import Record

DOC = Path(__file__).parents[2] / "docs" / "deploy.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOC.read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.federation
@pytest.mark.timeout(3700)
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
        said, _ = shell.communicate(timeout=3600)
        assert shell.returncode == 0, said
        assert "finished: all 2 rounds done" in said
        assert said.count("finished: all 3 rounds done") == 2
        assert said.count("may connect") == 3
        assert said.count("disconnected") == 4
        assert said.count("\nhealthy") == 2
        assert "chase_rounds_done 2\n" in said
        assert "no damage" in said
        assert "server certificate renewed" in said
        assert "round 2 is the last one now" in said
        assert said.count("accepted secure: False -> True") == 3
        assert "finished: all 4 rounds done" in said
        assert "federation stopped" in said
        assert not group_lives(shell.pid)
        metrics = Record.open(tmp_path / "fed" / "run").metrics
        assert [line["took_part"] for line in metrics] == [3, 3, 3, 3]
        assert [bool(line["clients"]) for line in metrics] == [True, True, True, False]  # then sums only
        assert metrics[-1]["site_count"] > 50
        joined = {e["site"] for e in events(tmp_path / "fed" / "run") if e["what"] == "joined"}
        assert joined == {"site-a", "site-b", "site-c"}
    finally:
        for registry in tmp_path.glob("*/processes.json"):
            take_down(registry)
        signal_groups([shell.pid], signal.SIGKILL)
        shell.wait()


@pytest.mark.federation
@pytest.mark.timeout(600)
def test_a_wheel_file_is_all_that_an_installation_needs(tmp_path: Path) -> None:
    """Built here and installed without an index; what it depends on is there already."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    root = DOC.parents[1]
    source = tmp_path / "source"
    shutil.copytree(root, source, ignore=shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__"))
    subprocess.run([*pip, "wheel", str(source), "--no-deps", "-w", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("chase_fal-*.whl")
    place = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", str(place), str(wheel)], check=True)
    env = {**os.environ, "PYTHONPATH": str(place)}

    def chase(*arguments: str) -> str:
        command = [sys.executable, "-m", "chase", *arguments]
        return subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert "serve" in chase("federation", "--help")
    where = [sys.executable, "-c", "import chase; print(chase.__file__)"]
    found = subprocess.run(where, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(place))
    assert "fingerprint of keys/ca.crt" in chase("federation", "init", "fed", "--port", "23092")
    for data in ("report/report.css", "settings/presets/digits.toml", "home/page", "report/templates"):
        assert (place / "chase" / data).exists(), data


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    text = DOC.read_text(encoding="utf-8")
    names = re.findall(r"/etc/systemd/system/(chase-[a-z]+\.service)", text)
    assert len(names) == len(blocks("ini")) == 4
    units = [tmp_path / name for name in names]
    for unit, body in zip(units, blocks("ini"), strict=True):
        unit.write_text(body.replace("/opt/chase/bin/chase", "/bin/true"))
    run = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    for unit in units:
        rate = ["systemd-analyze", "security", "--offline=true", "--threshold=40", str(unit)]
        assert subprocess.run(rate, capture_output=True, timeout=60).returncode == 0, unit.name


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
