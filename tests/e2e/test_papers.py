"""The papers are true: their commands run, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from chase.cli import main
from chase.cli.main import app
from chase.settings import load, parse_changes, presets

ROOT = Path(__file__).parents[2]
PAPERS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SMALL = ["--set", "clients=3", "--set", "local_epochs=2", "--set", "engine=inprocess"]


def commands(paper: Path) -> list[list[str]]:
    """The `chase` lines of the shell blocks, comments off."""
    blocks = re.findall(r"```sh\n(.*?)```", paper.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["chase"]]


def quick(command: list[str]) -> list[str]:
    """The same with few rounds; a later --set goes before an earlier one."""
    if command[0] == "run":
        rounds = [] if any("rounds=" in part for part in command) else ["--set", "rounds=2"]
        command = [*command, *rounds, *SMALL]
    return [re.sub(r"^rounds=(\d+)$", lambda m: f"rounds={max(2, int(m[1]) // 15)}", part) for part in command]


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = commands(ROOT / "README.md")
    assert len(found) > 4
    for command in found:
        monkeypatch.setattr(sys, "argv", ["chase", *quick(command)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code in (0, None), command


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_name_what_there_is(paper: Path) -> None:
    group = typer.main.get_command(app)
    for command in commands(paper):
        with group.make_context("chase", list(command)) as context:
            name, found, rest = group.resolve_command(context, list(command))
            with found.make_context(name, rest, parent=context) as inner:
                parse_changes(inner.params.get("change") or [])
                if name == "run" and inner.params["preset"] in presets():
                    load(inner.params["preset"], parse_changes(inner.params["change"] or []))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(paper: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", paper.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (paper.parent / target).exists(), target
