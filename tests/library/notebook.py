"""Runs a notebook in a Jupyter kernel of this Python, as a person does who presses "run all".

``python tests/library/notebook.py docs/notebooks/library.ipynb`` writes the outputs into the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

SECONDS = 600
"""How long a cell may take."""


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of all its cells; the first cell that fails is raised."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
    return book


if __name__ == "__main__":
    ran = run_notebook(Path(sys.argv[1]))
    nbformat.write(ran, Path(sys.argv[2] if len(sys.argv) > 2 else sys.argv[1]))
