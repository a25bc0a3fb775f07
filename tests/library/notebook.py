"""Runs the code cells of a notebook in order, as Jupyter would, and keeps what each cell shows.

``python tests/library/notebook.py docs/notebooks/library.ipynb`` writes the outputs into the file.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one cell; its printed text and its last expression, as outputs of a notebook."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        outputs.append({"output_type": "display_data", "data": shown(value), "metadata": {}})
    return outputs


def shown(value: Any) -> dict[str, list[str]]:
    """A value in the forms in which it shows itself."""
    forms = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}
    found = {kind: getattr(value, name)() for kind, name in forms.items() if hasattr(value, name)}
    return {kind: text.splitlines(True) for kind, text in {**found, "text/plain": repr(value)}.items() if text}


def run_notebook(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of all its cells."""
    book = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = run_cell("".join(cell["source"]), names)
    return book


if __name__ == "__main__":
    ran = json.dumps(run_notebook(Path(sys.argv[1])), indent=1, ensure_ascii=False) + "\n"
    Path(sys.argv[2] if len(sys.argv) > 2 else sys.argv[1]).write_text(ran, encoding="utf-8")
