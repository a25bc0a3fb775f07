"""What runs noted about themselves: classes that nobody holds, clients that run out, a share that is too large."""

from __future__ import annotations

from collections.abc import Sequence

from chase.report.runs import MethodRuns

MOST = 8
"""Notes that are shown; the runs keep all of them."""


def run_notes(methods: Sequence[MethodRuns]) -> list[str]:
    """Each note once, with whose it is where not every run has it."""
    runs = [(method.label, run.seed, run.notes) for method in methods for run in method.runs]
    texts = list(dict.fromkeys(note for _, _, notes in runs for note in notes))
    said = []
    for text in texts[:MOST]:
        owners = [(label, seed) for label, seed, notes in runs if text in notes]
        said.append(_sentence(text) if len(owners) == len(runs) else f"{_whose(owners)}: {text}")
    if len(texts) > MOST:
        said.append(f"{len(texts) - MOST} more notes are in the runs' notes.json")
    return [f"{text}." for text in said]


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name such as ``items.csv``."""
    return f"{text[:1].upper()}{text[1:]}" if text.split(" ", 1)[0].isalpha() else text


def _whose(owners: Sequence[tuple[str, int]]) -> str:
    seeds: dict[str, list[int]] = {}
    for label, seed in owners:
        seeds.setdefault(label, []).append(seed)
    parts = []
    for label, own in seeds.items():
        parts.append(f"{label}, seed{'s' if len(own) > 1 else ''} {', '.join(map(str, sorted(own)))}")
    return "; ".join(parts)
