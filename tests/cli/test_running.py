from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from chase import __version__
from chase.brief import HELP
from chase.cli import main
from chase.federation.rules import Rules
from chase.settings import GROUPS, Settings

QUICK = ["--set", "clients=3", "--set", "local_epochs=2", "--set", "rounds=3", "--set", "engine=inprocess"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["chase", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_run_shows_its_rounds_and_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", "digits", "--strategy", "random", *QUICK) == 0
    said = capsys.readouterr().out
    assert "random  round 3/3  accuracy " in said
    assert "random on digits: all 3 rounds done" in said
    (out,) = (tmp_path / "runs").iterdir()
    assert out.name.startswith("digits-random-")
    assert f"run directory: runs/{out.name}" in said
    assert {"settings.toml", "environment.json", "metrics.jsonl", "selections.jsonl", "checkpoint"} <= {
        p.name for p in out.iterdir()
    }


def test_rounds_is_an_option_of_run_and_of_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert call(monkeypatch, "run", "digits", "--strategy", "random", "--out", out, *QUICK, "--rounds", "1") == 0
    assert call(monkeypatch, "resume", out, "--rounds", "2") == 0
    assert "random on digits: all 2 rounds done" in capsys.readouterr().out
    assert call(monkeypatch, "resume", out, "--rounds", "1") == 2
    assert "2 rounds" in capsys.readouterr().err


def test_json_is_one_object_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert call(monkeypatch, "run", "digits", "--json", "--out", str(out), *QUICK) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["directory"] == str(out)
    assert found["rounds"] == found["last"]["round"] == 3
    assert 0 <= found["last"]["test_accuracy"] <= 1


def test_the_list_names_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"chase", "ev", "random"} <= set(found["strategies"])
    assert set(found["settings"]) == set(Settings.model_fields)
    assert all(text for group in found.values() for text in group.values())
    assert call(monkeypatch, "list", "rules") == 0
    said = capsys.readouterr().out
    assert all(rule.name in said for rule in fields(Rules))
    for name in ("networks", "models"):
        assert call(monkeypatch, "list", name) == 0
        assert capsys.readouterr().out.startswith("networks")
    assert call(monkeypatch, "list") == 0
    text = capsys.readouterr().out
    assert all(name in text for group in found.values() for name in group)


def test_every_command_has_help_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"chase {__version__}\n"
    for command in ("run", "resume", "list"):
        assert call(monkeypatch, command, "--help") == 0
        assert f"Example: chase {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "resume", "export", "demo"])
def test_help_shows_defaults_and_an_example_without_stray_backslashes(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    said = capsys.readouterr().out
    assert f"Example: chase {command}" in said
    assert "[default: " in said or "[required]" in said
    assert "\\" not in said


@pytest.mark.parametrize("command", ["run", "resume", "study run", "federation init", "federation up", "site contract"])
def test_every_command_with_settings_names_their_groups(command: str) -> None:
    said = json.loads(HELP.read_text(encoding="utf-8"))[command]
    assert f"in groups: {', '.join(GROUPS)}." in " ".join(said.split())


def test_the_page_of_settings_is_up_to_date(monkeypatch, capsys):
    assert call(monkeypatch, "list", "--markdown") == 0
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    made = capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == made, "run: chase list --markdown > docs/settings.md"


def test_ctrl_c_while_workers_start_shows_no_traceback(tmp_path: Path) -> None:
    """A terminal sends it to every process of the run, workers that are still importing among them."""
    command = [sys.executable, "-m", "chase", "run", "digits", "--rounds", "50", "--out", str(tmp_path / "run")]
    options = ["--set", "engine=workers", "--set", "workers=2"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        while not any("chase.simulation.worker" in child.cmdline() for child in psutil.Process(run.pid).children()):
            assert run.poll() is None
            time.sleep(0.02)
        time.sleep(0.3)  # a worker has begun to import
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "Traceback" not in err
    assert "Resume with: chase resume" in out


def test_ctrl_c_in_code_made_from_text_ends_with_the_code_of_ctrl_c(tmp_path: Path) -> None:
    """As in the body of a dataclass that is being made: Python would end by the signal instead."""
    (tmp_path / "chase_interrupted.py").write_text("exec('raise KeyboardInterrupt')\n", encoding="utf-8")
    (tmp_path / "interrupted.py").write_text(
        "import sys\nfrom chase import __main__ as entry\n"
        "entry._answer = lambda: __import__('chase_interrupted')\nentry.main()\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert not done.stderr


@pytest.mark.parametrize("after", [0.3, 1.0])
def test_ctrl_c_while_the_command_itself_is_imported_ends_quietly(after: float, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chase", "run", "digits", "--rounds", "50", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        while psutil.Process(run.pid).cpu_times().user < after:  # not by the clock: other tests run beside this one
            assert run.poll() is None
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "Traceback" not in err
