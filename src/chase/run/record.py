"""A run is a directory.

    settings.toml      resolved settings
    environment.json   versions, source, machine, run id
    model.json         the network, its classes and its input: enough to use the model without the data
    coverage.json      samples and initial labels by client and class (simulation only)
    metrics.jsonl      a line a round, flushed
    selections.jsonl   who asked for which sample, when and why (simulation only)
    checkpoint/        the last two rounds, each named by a manifest that is replaced atomically
    confusion.json     at the end: how many test samples of each class were taken for each class
    report.html

The metrics line of a round is written before its checkpoint. On resume everything after the last
whole checkpoint is cut off and done again, so a kill at any moment loses at most one round.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chase.core.errors import RunDirectoryError
from chase.core.provenance import provenance
from chase.settings import Settings, from_mapping, read_file, to_toml

MAY_CHANGE = frozenset({"rounds", "target_accuracy", "total_budget", "data_dir", "engine", "workers", "wait", "log_to"})
"""Settings that a resumed run may change: what was computed so far stays as it is."""


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into one sentence."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "no space is left on the disk: free some and resume",
            errno.EDQUOT: "the disk quota is used up: free some space and resume",
            errno.EACCES: "no permission to write there: choose another directory with --out",
            errno.EROFS: "the file system is read-only: choose another directory with --out",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise RunDirectoryError(f"cannot write {what}: {reason}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a kill, sees the old content or the new, never a part."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(content)
            temporary.replace(path)
        except BaseException:  # a full disk must not stay full of halves
            temporary.unlink(missing_ok=True)
            raise


def environment(run: str, settings: Settings) -> dict[str, Any]:
    """What a result depends on besides its settings."""
    return {"run": run, **provenance(), "command": sys.argv, "settings": settings.model_dump()}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file, plain or with ``.gz`` after its name; a torn last line is left out."""
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and not packed.exists():
        return []
    if not path.exists():
        with gzip.open(packed, "rt", encoding="utf-8") as file:
            return [json.loads(text) for text in file]
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def check_unchanged(path: Path, before: Mapping[str, Any], settings: Settings) -> None:
    """Refuse settings that differ from those a run was begun with, except where that changes no result."""
    for key, now in settings.model_dump().items():
        if key not in MAY_CHANGE and before.get(key, now) != now:
            raise RunDirectoryError(
                f"{path} was begun with {key} = {before[key]!r}, not {now!r}: start a new run for that; "
                f"only {', '.join(sorted(MAY_CHANGE))} may change on resume"
            )


class Record:
    """Writes and reads one run directory."""

    def __init__(self, path: Path, settings: Settings, run: str) -> None:
        self.path, self.settings, self.run = path, settings, run

    @classmethod
    def create(cls, path: Path, settings: Settings, model: Mapping[str, Any] | None = None) -> Record:
        """A new run directory; one that holds a run already is refused, and a refusal leaves no directory behind."""
        run = secrets.token_hex(8)
        with writing(path):
            if (path / "settings.toml").exists():
                raise RunDirectoryError(
                    f"{path} holds a run already: go on with `chase resume {path}` or choose another --out"
                )
            new = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
        try:
            write_atomically(path / "environment.json", json.dumps(environment(run, settings), indent=2).encode())
            if model is not None:
                write_atomically(path / "model.json", json.dumps(model, indent=2).encode())
            write_atomically(path / "settings.toml", to_toml(settings).encode())
        except RunDirectoryError:
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path, settings, run)

    @classmethod
    def open(cls, path: Path) -> Record:
        """An existing run directory."""
        if not os.path.isfile(path / "settings.toml"):  # unlike Path.is_file, never raises
            hint = "it has no settings.toml" if os.path.exists(path) else "it does not exist"
            raise RunDirectoryError(f"{path} is not a run directory: {hint}; `chase run --out {path}` makes one")
        settings = from_mapping(read_file(path / "settings.toml")).resolved()
        try:
            around = json.loads((path / "environment.json").read_text(encoding="utf-8"))
            run, begun_with = str(around["run"]), dict(around["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{path}/environment.json cannot be read: {error}") from None
        check_unchanged(path, begun_with, settings)
        return cls(path, settings, run)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Held while rounds are run: a second process in the same directory is refused. A kill frees it."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunDirectoryError(
                    f"{self.path} is being run by another process: watch it with `chase watch {self.path}`"
                ) from None
            yield
        finally:
            os.close(directory)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Change settings that do not touch what was computed so far, such as ``rounds``."""
        settings = from_mapping(self.settings.model_dump() | dict(changes)).resolved()
        check_unchanged(self.path, self.settings.model_dump(), settings)
        write_atomically(self.path / "settings.toml", to_toml(settings).encode())
        self.settings = settings

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A dictionary a round."""
        return read_jsonl(self.path / "metrics.jsonl")

    @property
    def selections(self) -> list[dict[str, Any]]:
        """A dictionary a question."""
        return read_jsonl(self.path / "selections.jsonl")

    def append(self, metrics: Mapping[str, Any], selections: list[dict[str, Any]]) -> None:
        """Add a round's lines and flush them."""
        self._append("selections.jsonl", selections)
        self._append("metrics.jsonl", [dict(metrics)])

    def _append(self, name: str, lines: list[dict[str, Any]]) -> None:
        path = self.path / name
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def add_notes(self, notes: Sequence[str]) -> None:
        """Keep what the user should know of the run, for its report; what is there already is not repeated."""
        path = self.path / "notes.json"
        known = list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []
        more = [note for note in dict.fromkeys(notes) if note not in known]
        if more:
            write_atomically(path, json.dumps([*known, *more], indent=1).encode())

    def cut_after(self, round: int) -> None:
        """Drop all lines of rounds later than ``round``: they will be done again. Lines must lead up to it."""
        found = [line["round"] for line in self.metrics]
        if found[:round] != list(range(1, round + 1)):
            raise RunDirectoryError(
                f"{self.path}/metrics.jsonl is damaged: the checkpoint is of round {round}, "
                f"but only {len(found)} lines can be read"
            )
        for name in ("metrics.jsonl", "selections.jsonl"):
            kept = [line for line in read_jsonl(self.path / name) if line["round"] <= round]
            write_atomically(self.path / name, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path)
