"""Where the runs of a study's jobs are: in a directory of their name, and aside where an exported one began again."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from chase.core.files import read_jsonl

ASIDE = "aside"
"""Exported runs that began again for more rounds are here, as NUMBER/NAME: too deep to be taken for runs beside it."""


def put_aside(where: Path) -> None:
    """An exported run that is not done has no checkpoint: it is kept while the run begins again, and after it."""
    if not exported(where):
        return
    aside = where.parent / ASIDE
    place = next(place for n in count(1) if not (place := aside / str(n) / where.name).exists())
    place.parent.mkdir(parents=True, exist_ok=True)
    where.rename(place)


def exported(where: Path) -> bool:
    """Whether a run was exported: its lines are packed, and it has no checkpoint."""
    return (where / "metrics.jsonl.gz").is_file()


def run_place(directory: Path, name: str, rounds: int | None = None) -> Path:
    """The run of a job that has most of the rounds wanted (None: of all): the one to continue, unless it is behind."""
    places = [directory / name, *(directory / ASIDE).glob(f"*/{name}")]
    if len(places) == 1:
        return places[0]
    return max(places, key=lambda place: len(saved_lines(place)[:rounds]))


def saved_lines(where: Path) -> list[dict[str, Any]]:
    """The lines of a run up to its newest checkpoint; all of an exported one. Later lines are done again."""
    lines = read_jsonl(where / "metrics.jsonl")
    if exported(where):
        return lines
    saved = max((int(file.stem) for file in (where / "checkpoint").glob("[0-9]*.json")), default=0)
    return [line for line in lines if line["round"] <= saved]
