"""The notebook of docs/library.md runs from its first cell to its last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOTEBOOK = HERE.parents[1] / "docs" / "notebooks" / "library.ipynb"


def test_the_notebook_runs_and_shows_frames_and_figures(tmp_path: Path) -> None:
    out = tmp_path / "ran.ipynb"
    command = [sys.executable, str(HERE / "notebook.py"), str(NOTEBOOK), str(out)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    outputs = [output for cell in json.loads(out.read_text())["cells"] for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/svg+xml") >= 2
    assert kinds.count("text/html") >= 2
    printed = "".join(text for output in outputs for text in output.get("text", []))
    assert "round 4:" in printed
    assert "was passed as an object from Python" in printed
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["chase", "own", "uncertain"]


def test_the_page_names_all_public_names() -> None:
    import chase

    text = (NOTEBOOK.parents[1] / "library.md").read_text()
    assert [name for name in chase.__all__ if f"`{name}" not in text and f"chase.{name}" not in text] == []
