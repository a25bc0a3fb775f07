"""Files that are whole at every moment, lines of JSON, and the one lock.

A file is replaced atomically: a reader, or a kill, sees the old content or the new. A lock is a file that the system
frees when its holder ends, however it ends; beside it stands who holds it.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from chase.core.errors import ChaseError, RunDirectoryError

GLANCE = 0.3
"""Seconds within which a lock that only another observer holds becomes free."""
POLL = 0.005
LOCK = ".lock"
"""Lock file of a run directory: held by whoever runs its rounds, simulation or server alike."""


@contextmanager
def writing(what: Path, refusal: type[ChaseError] = RunDirectoryError) -> Iterator[None]:
    """Turn a full disk or a missing permission into one sentence."""
    try:
        yield
    except OSError as error:
        there = what.name == LOCK and what.parent.is_dir()  # `chase resume` has no --out
        elsewhere = "copy the directory to another place" if there else "choose another directory with --out"
        reasons = {
            errno.ENOSPC: "no space is left on the disk: free some and resume",
            errno.EDQUOT: "the disk quota is used up: free some space and resume",
            errno.EACCES: f"no permission to write there: {elsewhere}",
            errno.EROFS: f"the file system is read-only: {elsewhere}",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise refusal(f"cannot write {what}: {reason}") from error


def write_atomically(
    path: Path, content: bytes, *, durable: bool = False, refusal: type[ChaseError] = RunDirectoryError
) -> None:
    """Write a file so that a reader, or a kill, sees the old content or the new; ``durable``: a power cut too."""
    with writing(path, refusal):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if durable:
            _sync_directory(path.parent)


def write_private(path: Path, content: bytes, *, refusal: type[ChaseError] = RunDirectoryError) -> None:
    """A new file that only its owner may read; it appears with all its content, and an existing one is refused."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _name_new(temporary, path)
    except FileExistsError:
        raise refusal(f"{path} exists already: a key is not overwritten; remove it to create a new one") from None
    except OSError as error:
        raise refusal(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _name_new(temporary: Path, path: Path) -> None:
    """Give a finished file its name, which no file may have."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: nearly as good
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file, or directory, that becomes ``path`` if all goes well and is removed otherwise."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:  # a full disk must not stay full of halves
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def _sync_directory(path: Path) -> None:
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def to_jsonl(lines: Iterable[Mapping[str, Any]]) -> str:
    """A line of JSON for each."""
    return "".join(json.dumps(dict(line)) + "\n" for line in lines)


def append_jsonl(path: Path, lines: Iterable[Mapping[str, Any]], *, durable: bool = False) -> None:
    """Add lines at the end of a file and flush them; they never continue a line that was torn, by a full disk say.

    ``durable``: they outlive a power cut.
    """
    with writing(path), path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        whole = file.read(1) in (b"", b"\n")
        file.write((b"" if whole else b"\n") + to_jsonl(lines).encode())
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable and not end:
        _sync_directory(path.parent)


def read_jsonl(path: Path, skip_torn: bool = False) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file, plain or with ``.gz`` after its name, up to one that is torn.

    ``skip_torn``: also those after a torn one, for files whose lines do not build on each other.
    """
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and not packed.exists():
        return []
    if not path.exists():
        return _unpacked(packed)
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            if not skip_torn:
                break
    return lines


def _unpacked(path: Path) -> list[dict[str, Any]]:
    """The lines of a compressed file, which is whole or of no use."""
    try:
        text = gzip.decompress(path.read_bytes()).decode("utf-8") if path.stat().st_size else None
        if text is not None:
            return [json.loads(line) for line in text.splitlines()]
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError, json.JSONDecodeError):
        pass
    raise RunDirectoryError(f"{path} is damaged or was not copied whole: copy it again, or export the study again")


@dataclass(frozen=True)
class LockHolder:
    """Who holds a lock, as they wrote beside it."""

    pid: int
    name: str = ""

    def __str__(self) -> str:
        return f"process {self.pid}" if self.pid else "another process"


class Held(ChaseError):
    """Somebody else holds the lock."""

    def __init__(self, path: Path, holder: LockHolder) -> None:
        self.holder = holder
        super().__init__(f"{path} is held by {holder}")


@contextmanager
def locked(path: Path, name: str = "", *, wait: bool = False, patience: float = GLANCE) -> Iterator[None]:
    """Hold the lock file ``path``, under a name where one helps; raises ``Held`` if it is taken.

    With ``wait``, wait until it is free. A kill frees it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=-1 if wait else patience, poll_interval=POLL)
        try:
            lock.acquire()
        except Timeout:
            raise Held(path, _holder(path)) from None
    try:
        write_atomically(_holder_file(path), json.dumps({"pid": os.getpid(), "name": name}).encode())
        yield
    finally:
        lock.release()


def held_by(path: Path) -> LockHolder | None:
    """Who holds a lock file; None where nobody does."""
    if not path.exists():
        return None
    try:
        with FileLock(path, timeout=GLANCE, poll_interval=POLL):
            return None
    except Timeout:
        return _holder(path)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        # of another user, or on a disk that is read-only: all that can be seen is whether the last holder still runs
        last = _holder(path)
        return last if last.pid and psutil.pid_exists(last.pid) else None


def _holder_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.holder")


def _holder(path: Path) -> LockHolder:
    try:
        return LockHolder(**json.loads(_holder_file(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return LockHolder(0)
