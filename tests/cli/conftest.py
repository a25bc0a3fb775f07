"""Commands as a user runs them, in this process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from chase import settings
from chase.cli import main
from chase.run.experiment import Experiment


@dataclass(frozen=True)
class CommandResult:
    """What a command left on the screen."""

    code: int
    out: str
    err: str


@pytest.fixture
def chase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Runs ``chase ARGUMENTS`` and catches its exit code and output."""

    def run(*arguments: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["chase", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capsys.readouterr()
        return CommandResult(code, out, err)

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds; not to be changed."""
    path = tmp_path_factory.mktemp("trained") / "run"
    small = {"rounds": 3, "clients": 3, "engine": "inprocess"}
    Experiment.begin(settings.load("digits", small), path).run()
    return path


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of three rounds, in a directory of its own."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "one"))
