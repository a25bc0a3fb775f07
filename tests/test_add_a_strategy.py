"""docs/add-a-strategy.md does what it says: its module is written out and its commands are run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import small_settings
from typer.testing import CliRunner

from chase.acquisition.strategy import NEEDS
from chase.cli.main import app
from chase.core.errors import SettingsError
from chase.run.record import Record

PAGE = (Path(__file__).parents[1] / "docs" / "add-a-strategy.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("chase.report.html.write_report", lambda runs, out: out)
    monkeypatch.setattr("chase.report.html.report_run", lambda path: path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_the_page_works(here: Path) -> None:
    (module,) = blocks("python")
    (here / "mine.py").write_text(module)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("chase ")]
    assert len(commands) == 3
    for command in commands:
        words = [*shlex.split(command)[1:], "--set=clients=3", "--set=local_epochs=2", "--set=engine=inprocess"]
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert len(Record.open(here / "runs/mine").metrics) == 3
    assert {line["strategy"] for line in Record.open(here / "runs/mine").selections} == {"mine:Pick"}
    frozen = Record.open(here / "runs/mine-frozen").metrics[-1]
    assert frozen["pools"]["dormant"] > 0
    assert {path.parent.name for path in (here / "runs/against-random").glob("*/settings.toml")} == {
        "mine.Pick-seed0",
        "mine.Pick-seed1",
        "random-seed0",
        "random-seed1",
    }


def test_the_page_names_every_need() -> None:
    assert {need for need in NEEDS if f'| `"{need}"` |' in PAGE} == set(NEEDS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("class Pick:\n    pass", "needs an attribute `needs` and a method `select`"),
        ("class Pick:\n    needs = frozenset({'modle'})\n    def select(self): ...", "did you mean 'model'"),
        ("raise ZeroDivisionError('oh')", r"cannot import 'mine' \(ZeroDivisionError: oh\)"),
    ],
)
def test_what_is_wrong_with_ones_own_strategy_is_said(body: str, said: str, here: Path) -> None:
    (here / "mine.py").write_text(body)
    with pytest.raises(SettingsError, match=said):
        small_settings(strategy="mine:Pick")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [("pool.ids", "chose [0-9]+ samples, but 2 may be asked for"), ("pool.ids[:1] * 0 - 1", "chose sample -1")],
)
def test_a_choice_that_is_none_is_refused(chosen: str, said: str, here: Path) -> None:
    lines = [
        "class Pick:",
        "    needs = frozenset()",
        "    def select(self, pool, budget, rng):",
        f"        return {chosen}",
    ]
    (here / "mine.py").write_text("\n".join(lines))
    changes = {"rounds": 2, "clients": 2, "behaviour": "AbCo", "budget": 5, "engine": "inprocess"}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(app, ["run", "digits", "-s", "mine:Pick", *words])
    assert re.search(said, str(result.exception))
