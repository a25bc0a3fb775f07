"""Tables lose no column, however narrow the terminal."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from chase.cli.terminal import print_table
from chase.report.tables import ReportTable

ROW = ["chase", "53.2 (51.8–54.6)", "70.8 (64.6–76.9)", "85.5 (83.3–87.7)", "756 (755–756)", "0.61 (0.58–0.64)", "42"]
TABLE = ReportTable(
    ("method", "round 10", "round 20", "round 30", "labels", "seconds", "inferred per client"), [ROW], "Title"
)


@pytest.mark.parametrize("width", [40, 60, 80, 90, 200])
def test_every_figure_is_there_whole(width: int) -> None:
    paper = StringIO()
    print_table(TABLE, Console(file=paper, width=width))
    said = paper.getvalue()
    assert all(word in said for text in (*TABLE.columns, *ROW) for word in text.split())
    if width >= 80:
        assert max(map(len, said.splitlines())) <= width


def test_ctrl_c_while_everything_is_imported_is_no_traceback() -> None:
    interrupt = (
        "import builtins\n"
        "real = builtins.__import__\n"
        "def ours(name, *rest):\n"
        "    if name == 'chase.cli':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "from chase.__main__ import main\n"
        "builtins.__import__ = ours\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", interrupt], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
