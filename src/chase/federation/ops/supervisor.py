"""Starts processes, keeps them going and ends them all: no orphans.

Every process leads a group of its own, so that ending it ends its children too; on Linux it is also told when its
parent dies. What runs is written to a registry file, so that another process, or a later one, can end it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from chase.core.errors import ChaseError, FederationError
from chase.core.files import write_atomically
from chase.core.operator import check_owner
from chase.core.processes import ask_to_be_told, group_lives, is_same, started

GRACE = 10.0
"""Seconds between asking a process to end and killing it."""
LARGEST_LOG = 10 << 20
"""Bytes from which on a log is turned over: one older file is kept."""
SLOWEST = 15.0
"""Seconds at most between two starts of a process that keeps ending."""


def end_groups(groups: Sequence[int], grace: float = GRACE) -> list[int]:
    """Ask groups to end, kill those that do not; returns those that had to be killed."""
    signal_groups(groups, signal.SIGTERM)
    limit = time.monotonic() + grace
    left = [g for g in groups if group_lives(g)]
    while left and time.monotonic() < limit:
        time.sleep(0.1)
        left = [g for g in left if group_lives(g)]
    signal_groups(left, signal.SIGKILL)
    return left


def signal_groups(groups: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to groups; those that are gone are passed over."""
    for group in groups:
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            continue


@dataclass(frozen=True)
class ProcessSpec:
    """A process to keep going."""

    name: str
    command: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    again: bool = True
    """Start it again when it ends."""


def turn_over(log: Path) -> None:
    """Begin a new log where the old one is large; one old one is kept."""
    if log.exists() and log.stat().st_size > LARGEST_LOG:
        log.replace(log.with_name(f"{log.name}.1"))


def roll(log: Path) -> None:
    """The same while its process writes: the text is copied and the file emptied, which appending survives."""
    with suppress(OSError):  # no space for a copy: later
        if log.stat().st_size > LARGEST_LOG:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


@dataclass
class _Running:
    job: ProcessSpec
    process: subprocess.Popen[bytes]
    since: float
    ends: int = 0
    next_start: float = 0.0


class Supervisor:
    """Keeps jobs going until it is closed."""

    def __init__(self, registry: Path) -> None:
        self._registry = registry
        self._running: dict[str, _Running] = {}
        self.restarts: dict[str, int] = {}
        self._unwritten = False
        """Whether something runs that the registry does not name yet."""

    def __enter__(self) -> Supervisor:
        check_owner(self._registry.parent, FederationError)
        refuse_second(self._registry)
        self._write()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, job: ProcessSpec) -> None:
        """Start a job."""
        self._running[job.name] = _Running(job, self._spawn(job), time.monotonic())
        self._write()

    def _spawn(self, job: ProcessSpec) -> subprocess.Popen[bytes]:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        turn_over(job.log)
        try:
            with job.log.open("ab") as log:
                return subprocess.Popen(
                    job.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **job.env},
                    start_new_session=True,
                    preexec_fn=ask_to_be_told,
                )
        except OSError as error:
            raise FederationError(f"cannot start {job.command[0]}: {error.strerror or error}") from None

    def tend(self) -> list[str]:
        """Start again what has ended; says what ended."""
        said, now = [], time.monotonic()
        for name, running in self._running.items():
            code = running.process.poll()
            if code is None:
                roll(running.job.log)
                continue
            if running.next_start == 0.0:
                said.append(f"{name} ended with code {code}")
                end_groups([running.process.pid], 2.0)  # what it may have left behind
                running.ends = 1 if now - running.since > 60 else running.ends + 1
                running.next_start = now + min(SLOWEST, 0.5 * 2**running.ends)
            elif running.job.again and now >= running.next_start:
                try:
                    running.process, running.since, running.next_start = self._spawn(running.job), now, 0.0
                except (ChaseError, OSError) as error:  # a full disk, say: the others go on
                    running.next_start = now + SLOWEST
                    said.append(f"{name} cannot be started ({error})")
                    continue
                self.restarts[name], self._unwritten = self.restarts.get(name, 0) + 1, True
        if self._unwritten:
            with suppress(ChaseError, OSError):  # as soon as there is space
                self._write()
        return said

    def pid(self, name: str) -> int:
        """The process id of a job."""
        return self._running[name].process.pid

    def ended(self, name: str) -> int | None:
        """The exit code of a job that has ended."""
        return self._running[name].process.poll()

    def stop(self, name: str) -> None:
        """End one job for good."""
        running = self._running.pop(name)
        end_groups([running.process.pid])
        running.process.wait()
        self._write()

    def close(self) -> None:
        """End everything."""
        end_groups([r.process.pid for r in self._running.values()])
        for running in self._running.values():
            running.process.wait()
        self._running.clear()
        self._registry.unlink(missing_ok=True)

    def _write(self) -> None:
        body = {"supervisor": _entry(os.getpid())}
        body["jobs"] = {name: _entry(r.process.pid) for name, r in self._running.items()}
        write_atomically(self._registry, json.dumps(body).encode())
        self._unwritten = False


def _entry(pid: int) -> dict[str, Any]:
    return {"pid": pid, "started": started(pid)}


def _read(registry: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(registry.read_text(encoding="utf-8"))
        return body
    except FileNotFoundError:
        return {"supervisor": {"pid": 0, "started": 0}, "jobs": {}}
    except (OSError, ValueError) as error:
        raise FederationError(f"{registry} cannot be read: {error}") from None


def alive(entry: Mapping[str, Any]) -> bool:
    """Whether the process of a registry entry is still the one that runs."""
    return is_same(int(entry["pid"]), float(entry["started"] or 0))


def refuse_second(registry: Path) -> None:
    """Refuse to start where another supervisor is at work; what a killed one left behind is ended."""
    body = _read(registry)
    if alive(body["supervisor"]):
        raise FederationError(f"process {body['supervisor']['pid']} is already running ({registry}): stop it first")
    end_groups([int(e["pid"]) for e in body["jobs"].values() if _ours(e)])


def _ours(entry: Mapping[str, Any]) -> bool:
    """Whether a group may be ended: its leader is still the one we started, or has ended while its group has not."""
    return alive(entry) or (not started(int(entry["pid"])) and group_lives(int(entry["pid"])))


def running(registry: Path) -> dict[str, bool]:
    """The jobs of a registry and whether each is alive."""
    return {name: alive(entry) for name, entry in _read(registry)["jobs"].items()}


def take_down(registry: Path) -> bool:
    """End a supervisor and all that it started; False if nothing ran."""
    body = _read(registry)
    boss, found = body["supervisor"], False
    if alive(boss) and int(boss["pid"]) != os.getpid():
        found = True
        os.kill(int(boss["pid"]), signal.SIGTERM)
        limit = time.monotonic() + GRACE + 5
        while alive(boss) and time.monotonic() < limit:
            time.sleep(0.1)
    left = [int(e["pid"]) for e in body["jobs"].values() if _ours(e)]
    end_groups(left)
    registry.unlink(missing_ok=True)
    return found or bool(left)


class Ended(BaseException):
    """SIGTERM or SIGINT: unwinds like KeyboardInterrupt, so that everything is taken down on the way."""


def end_on_signals() -> None:
    """Turn SIGTERM, SIGINT and SIGHUP into ``Ended``; a second one while ending changes nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise Ended

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, stop)
