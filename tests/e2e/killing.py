"""Runs ``chase`` in forked children that kill themselves (SIGKILL) at a named moment.

    python killing.py 'POINT COMMAND ...' ...

Prints one line a child: the signal that ended it, or its exit code as a negative number.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chase.cli import (
    main,
    running,  # once, before the children are born
)
from chase.core.files import to_jsonl
from chase.data.sources import load
from chase.run import checkpoint, record
from chase.run.checkpoint import Checkpoint
from chase.run.segments import SegmentWriter


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_replacing(name: str) -> Callable[[], None]:
    """The new content is in a temporary file; the old file stands."""
    plain = Path.replace

    def replace(self: Path, target: Path) -> Any:
        if Path(target).name.startswith(name):
            die()
        return plain(self, target)

    return lambda: setattr(Path, "replace", replace)


def while_writing(name: str) -> Callable[[], None]:
    """Half of the temporary file is written."""
    plain = Path.replace

    def replace(self: Path, target: Path) -> Any:
        if Path(target).name.startswith(name):
            self.write_bytes(self.read_bytes()[: self.stat().st_size // 2])
            die()
        return plain(self, target)

    return lambda: setattr(Path, "replace", replace)


def after_replacing(name: str) -> Callable[[], None]:
    plain = Path.replace

    def replace(self: Path, target: Path) -> Any:
        plain(self, target)
        if Path(target).name.startswith(name):
            die()

    return lambda: setattr(Path, "replace", replace)


def in_lines_of(name: str, round: int, share: float) -> Callable[[], None]:
    """A share of a round's lines is in the file."""
    plain = record.append_jsonl

    def append(path: Path, lines: list[dict[str, Any]], **options: bool) -> None:
        if path.name == name and lines and lines[0]["round"] == round:
            text = to_jsonl(lines)
            with path.open("a") as file:
                file.write(text[: int(share * len(text))])
            die()
        plain(path, lines, **options)

    return lambda: setattr(record, "append_jsonl", append)


def while_sweeping(round: int) -> Callable[[], None]:
    """One of the old files is gone, the others are not."""

    def sweep(self: Checkpoint) -> None:
        if (self.path / f"{round:06d}.json").exists():
            (self.path / f"{round - 2:06d}-main.states").unlink()
            die()

    return lambda: setattr(Checkpoint, "_sweep", sweep)


def in_state(number: int, round: int, share: float) -> Callable[[], None]:
    """A share of the round's nth state is in the segment."""
    plain, seen = SegmentWriter.add, [0]

    def add(self: SegmentWriter, blob: bytes, of_round: int) -> Any:
        seen[0] += of_round == round
        if of_round == round and seen[0] == number:
            with self.path.open("ab") as file:
                file.write(blob[: int(share * len(blob))])
            die()
        return plain(self, blob, of_round)

    return lambda: setattr(SegmentWriter, "add", add)


def while_merging() -> Callable[[], None]:
    """The merged segment is written, its index is not."""
    plain = checkpoint.merge

    def merge(directory: Path, name: str, states: Any) -> Any:
        before_replacing(name)()
        return plain(directory, name, states)

    return lambda: setattr(checkpoint, "merge", merge)


POINTS: dict[str, Callable[[], None]] = {
    "first-turn": in_state(2, 1, 0.0),
    "first-manifest": before_replacing("000001.json"),
    "state": in_state(3, 3, 0.5),
    "index": while_writing("000003.index"),
    "server-file": while_writing("server-000003"),
    "manifest": while_writing("000003.json"),
    "manifest-ready": before_replacing("000003.json"),
    "manifest-done": after_replacing("000003.json"),
    "selections": in_lines_of("selections.jsonl", 4, 0.5),
    "metrics": in_lines_of("metrics.jsonl", 4, 0.5),
    "metrics-done": in_lines_of("metrics.jsonl", 4, 1.0),
    "sweep": while_sweeping(4),
    "resume-metrics": before_replacing("metrics.jsonl"),
    "resume-selections": before_replacing("selections.jsonl"),
    "resume-state": in_state(2, 4, 1.0),
    "merging": while_merging(),
    "never": lambda: None,
}

if __name__ == "__main__":
    load("digits")  # once, before the children are born
    running.report_run = lambda path: None
    for text in sys.argv[1:]:
        point, *command = shlex.split(text)
        child = os.fork()
        if child == 0:
            POINTS[point]()
            sys.argv = ["chase", *command]
            main()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(-os.waitstatus_to_exitcode(status), flush=True)
