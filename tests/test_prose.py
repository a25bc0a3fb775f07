"""Prose in Markdown keeps one width."""

from __future__ import annotations

from pathlib import Path

import pytest
from prose import ROOT, pages

from chase.core.prose import WIDTH, reflow, too_wide

LONG = "word " * 40


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    wide = too_wide(page.read_text(encoding="utf-8"))
    assert not wide, f"lines {wide} are longer than {WIDTH} characters: run `python tests/prose.py`"


def test_paragraphs_and_items_are_wrapped_and_nothing_else() -> None:
    kept = f"# {LONG}\n\n| {LONG}|\n\n```\n{LONG}\n```\n"
    assert reflow(kept) == kept
    lines = reflow(f"{LONG}\n\n- {LONG}\n  more\n- short\n").split("\n")
    assert max(map(len, lines)) <= WIDTH
    assert [line[:2] for line in lines if line] == ["wo", "wo", "- ", "  ", "- "]
    assert reflow("\n".join(lines)).split("\n") == lines
    assert too_wide(LONG) == [1]


def test_commands_in_indented_blocks_keep_their_lines() -> None:
    kept = "First:\n\n    chase run digits\n    chase report runs\n\n    chase show runs\n"
    assert reflow(kept) == kept
    assert (
        reflow("- item\n\n    second\n    paragraph of the item\n").split("\n")[2] == "    second paragraph of the item"
    )


def test_no_line_begins_with_a_word_that_means_something_to_markdown() -> None:
    text = "a" * 110 + " bbbbb - 3. then"
    assert reflow(text).split("\n") == ["a" * 110, "bbbbb - 3. then"]
    assert reflow("a" * 110 + " `pip install chase` x").split("\n")[1] == "`pip install chase` x"
