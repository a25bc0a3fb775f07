"""The width of prose in Markdown.

Code blocks, tables, headings and HTML are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 120
ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)(?=\S)")
MARKER = re.compile(r"^([-*+>|#]|#+|\d+[.)])$")
"""Words that would begin a list, a quotation, a table or a heading at the start of a line."""
WORD = re.compile(r"(?:`[^`]*`|[^\s`]|`)+")
"""A word; text between backticks is not broken."""
FIXED = re.compile(r"^\s*(\||<|#|>|---|!\[)")


def wrap(words: list[str], first: str, rest: str) -> Iterator[str]:
    """Words in lines of at most ``WIDTH``; no line but the first begins with a word that Markdown would read."""
    line: list[str] = []
    prefix = first
    for word in words:
        if line and len(prefix) + len(" ".join([*line, word])) > WIDTH:
            carried: list[str] = []
            while MARKER.match([*carried, word][0]) and len(line) > 1:
                carried.insert(0, line.pop())
            yield prefix + " ".join(line)
            line, prefix = carried, rest
        line.append(word)
    if line:
        yield prefix + " ".join(line)


def reflow(text: str) -> str:
    """The text with every paragraph and list item wrapped."""
    out: list[str] = []
    words: list[str] = []
    first = rest = ""
    fenced = listed = coded = False

    def flush() -> None:
        nonlocal words
        out.extend(wrap(WORD.findall(" ".join(words)), first, rest))
        words = []

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        item = ITEM.match(line)
        if line[:1].strip():
            listed = item is not None
        coded = line.startswith("    ") and not listed and (coded or not words)
        if fence or fenced or coded or not line.strip() or FIXED.match(line):
            flush()
            out.append(line)
            fenced ^= fence
        elif item:
            flush()
            first, rest = item.group(0), " " * len(item.group(0))
            words = line[len(first) :].split()
        else:
            if not words:
                first = rest = line[: len(line) - len(line.lstrip())]
            words += line.split()
    flush()
    return "\n".join(out)


def too_wide(text: str) -> list[int]:
    """The numbers of lines that a reflow would shorten."""
    narrow = set(reflow(text).split("\n"))
    return [n for n, line in enumerate(text.split("\n"), 1) if len(line) > WIDTH and line not in narrow]
