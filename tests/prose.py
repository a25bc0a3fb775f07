"""The width of prose in Markdown: ``python tests/prose.py`` wraps every paragraph and list item at 120 characters.

Pages that a command writes are wrapped by it, and checked here too.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from chase.core.prose import reflow, too_wide  # noqa: E402


def pages() -> list[Path]:
    """All Markdown; the page of settings holds only tables."""
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "settings.md"]
    return [*docs, *sorted(ROOT.glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if too_wide(before):
            page.write_text(reflow(before), encoding="utf-8")
            print(f"wrapped {page.relative_to(ROOT)}")
