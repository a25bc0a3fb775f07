"""The fault and attack matrix of docs/security.md, as the one command that measures it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "security.md"
HEADER = "| fault or attack | detected and named | survived, nothing lost |"
NEEDS_ROOT = ("another Unix user", "full disk at a site", "full disk at the server")


def rows(lines: list[str]) -> dict[str, list[str]]:
    """Table rows after the header, by their first cell."""
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| ") and line != HEADER]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells if row[0].strip() != "---"}


def documented() -> dict[str, list[str]]:
    """The table as the page shows it."""
    after = DOC.read_text(encoding="utf-8").partition(HEADER)[2]
    return rows(after.partition("\n\n")[0].splitlines())


def test_the_page_shows_every_row_as_held() -> None:
    assert len(documented()) == 20
    assert {name: cells for name, cells in documented().items() if cells[-1] != "yes" or not cells[0]} == {}


@pytest.mark.federation
@pytest.mark.timeout(3600)
def test_every_fault_and_attack_is_detected_named_and_survived() -> None:
    command = [sys.executable, "-m", "benchmarks.attacks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3500)
    lines = done.stdout.splitlines()
    print(done.stdout)  # the table for docs/security.md: `pytest -rP` shows it
    found, outcome = rows(lines), json.loads(lines[-1])
    assert outcome["failed"] == [], done.stdout + done.stderr[-3000:]
    assert done.returncode == 0
    assert found.keys() | set(NEEDS_ROOT) == documented().keys()
    assert {name for name, cells in found.items() if cells[-1] not in ("yes", "-")} == set()
