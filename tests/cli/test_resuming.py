"""A run of a federation is not resumed as a simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from federation.real import federation_settings

from chase.federation.ops.setup import Loopback
from chase.federation.rules import Rules


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    Loopback.prepare(tmp_path / "fed", federation_settings(rounds=2), Rules(), secure=False)
    return tmp_path / "fed"


@pytest.mark.parametrize("more", [(), ("--rounds", "9")])
def test_resume_refuses_the_run_of_a_federation_and_names_the_command(
    chase: Callable[..., object], federation: Path, more: tuple[str, ...]
) -> None:
    run = federation / "run"
    before = sorted((f.name, f.read_bytes()) for f in run.iterdir())
    for directory in (run, federation):
        done = chase("resume", directory, *more)
        assert done.code == 2
        assert f"chase federation up {federation}" in done.err
    assert sorted((f.name, f.read_bytes()) for f in run.iterdir()) == before


def test_show_and_report_name_the_command_that_fits(chase: Callable[..., object], federation: Path) -> None:
    assert f"resume with: chase federation up {federation}" in chase("show", federation / "run").out
    assert f"chase federation up {federation}" in chase("report", federation / "run").err
