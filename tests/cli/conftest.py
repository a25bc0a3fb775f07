"""Commands as a user runs them, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from chase.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left on the screen."""

    code: int
    out: str
    err: str


@pytest.fixture
def chase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs ``chase ARGUMENTS`` and catches its exit code and output."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["chase", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run
