"""What a site's processes load: an idle site must stay small and a worker must start quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "import sys, {module}; print(sorted({{m.partition('.')[0] for m in sys.modules}} & set(sys.argv[1:])))"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("chase.flower.node", ["torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"]),
        ("chase.flower.worker", ["sklearn", "pandas", "matplotlib", "datasets"]),
    ],
)
def test_a_sites_processes_load_nothing_heavy_that_they_do_not_need(module: str, heavy: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module), *heavy], capture_output=True, text=True, timeout=200
    )
    assert done.stdout.strip() == "[]", done.stderr
