"""The notebook of docs/library.md runs in a Jupyter kernel, from its first cell to its last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

HERE = Path(__file__).parent
NOTEBOOK = HERE.parents[1] / "docs" / "notebooks" / "library.ipynb"

CELLS = (
    """import os
from pathlib import Path

import chase

class First:
    needs = frozenset()

    def __init__(self, seen):
        self.seen = seen

    def select(self, pool, budget, rng):
        (Path(self.seen) / str(os.getpid())).touch()
        return pool.ids[:budget]

for name in ("in-two", "in-one"):
    Path(name).mkdir()""",
    """size = dict(clients=4, rounds=3, local_epochs=1, report=False)
two = chase.run_experiment(
    "digits", "two", strategy=First(str(Path("in-two").resolve())), engine="workers", workers=2, **size
)
one = chase.run_experiment("digits", "one", strategy=First(str(Path("in-one").resolve())), engine="inprocess", **size)
assert two.metrics["test_accuracy"].tolist() == one.metrics["test_accuracy"].tolist()
assert two.selections["sample"].tolist() == one.selections["sample"].tolist()
os.getpid()""",
)


def run(book: Path, at: Path) -> list[Any]:
    """The outputs of all cells of a notebook, run by a kernel in a directory."""
    out = at / "ran.ipynb"
    around = {**os.environ, "IPYTHONDIR": str(at / ".ipython"), "JUPYTER_RUNTIME_DIR": str(at / ".runtime")}
    command = [sys.executable, str(HERE / "notebook.py"), str(book), str(out)]
    ended = subprocess.run(command, cwd=at, capture_output=True, text=True, env=around)
    assert ended.returncode == 0, ended.stderr
    return [output for cell in nbformat.read(out, as_version=4).cells for output in cell.get("outputs", [])]


def test_the_notebook_runs_and_shows_frames_and_figures(tmp_path: Path) -> None:
    outputs = run(NOTEBOOK, tmp_path)
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/svg+xml") >= 2
    assert kinds.count("text/html") >= 2
    printed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert "round 4:" in printed
    assert "was passed as an object from Python" in printed
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["chase", "own", "uncertain"]


def test_a_class_of_a_cell_runs_in_worker_processes_of_a_kernel(tmp_path: Path) -> None:
    """The selection happens in two workers besides the kernel (which tries a strategy first), with the same result."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbformat.write(book, tmp_path / "own.ipynb")
    *_, last = run(tmp_path / "own.ipynb", tmp_path)
    kernel = {last["data"]["text/plain"]}
    assert {seen.name for seen in (tmp_path / "in-one").iterdir()} == kernel
    assert len({seen.name for seen in (tmp_path / "in-two").iterdir()} - kernel) == 2


def test_the_page_names_all_public_names() -> None:
    import chase

    text = (NOTEBOOK.parents[1] / "library.md").read_text()
    assert [name for name in chase.__all__ if f"`{name}" not in text and f"chase.{name}" not in text] == []
