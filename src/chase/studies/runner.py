"""Runs the jobs of a study, some at a time, each in a process of its own with one thread.

What a job has done is read from its run directory, so that progress needs no line between the
processes, and a job that went on by itself, or was finished by another study, counts all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chase.core.errors import MissingData, RunDirectoryError
from chase.core.files import Held, locked, write_atomically
from chase.run.record import LOCK, kernels_before
from chase.settings import Settings
from chase.studies.estimate import seconds_per_round, seconds_to_start
from chase.studies.job import failure_of, is_done, log_of
from chase.studies.places import run_place, saved_lines
from chase.studies.plan import StudyJob, StudyPlan

POLL = 0.5
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class Progress:
    """How far one job is."""

    job: StudyJob
    expected: float
    """Seconds per round by the estimate."""
    state: str = "waiting"
    """waiting, running, done or failed; in a dry run also missing: its data is not here."""
    rounds: int = 0
    at_start: int = 0
    """Rounds that were done before this runner began."""
    seconds: float = 0.0
    """Seconds of the rounds since."""
    accuracy: float | None = None
    problem: str = ""
    start_seconds: float = 0.0
    """Seconds that its process needs before the first round, by the estimate."""
    began: float = 0.0
    """When its process was started, by the monotonic clock."""
    notes: list[str] = field(default_factory=list)
    """What happened to it that did not end it, such as a node that died; shown as it happens."""
    _at: int = field(default=0, repr=False)
    """Where in the file the last line that was read begins."""
    _last: bytes = field(default=b"", repr=False)

    def update(self, directory: Path) -> None:
        """Read the lines that the job has written since the last look."""
        path = directory / self.job.name / "metrics.jsonl"
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._at)
            if file.read(len(self._last)) != self._last:  # a resumed job cuts off what has no checkpoint, and goes on
                self._at, self._last, self.rounds, self.seconds = 0, b"", 0, 0.0
                file.seek(0)
            for text in file:
                if not text.endswith(b"\n"):  # its end is still to come
                    break
                try:
                    line = json.loads(text)
                except ValueError:  # damaged: everything from here on is cut off when the job is resumed
                    break
                self._at, self._last = self._at + len(self._last), text
                self._take(line)

    def _take(self, line: dict[str, object]) -> None:
        self.rounds = int(str(line["round"]))
        if self.rounds > self.at_start:
            self.seconds += float(str(line["seconds"]))
        if line.get("test_accuracy") is not None:
            self.accuracy = float(str(line["test_accuracy"]))

    @property
    def rounds_left(self) -> float:
        """Seconds that the rounds left take by the estimate."""
        if self.state in ("done", "failed", "missing"):
            return 0.0
        return max(0, self.job.settings.rounds - self.rounds) * self.expected

    @property
    def start_left(self) -> float:
        """Seconds until its first round, by the estimate."""
        if self.state == "waiting":
            return self.start_seconds
        starting = self.state == "running" and self.rounds == self.at_start
        return max(0.0, self.start_seconds - (time.monotonic() - self.began)) if starting else 0.0

    @property
    def left(self) -> float:
        """Seconds to its end by the estimate."""
        return self.rounds_left + self.start_left


def seconds_left(jobs: Sequence[Progress], workers: int) -> float:
    """Seconds to the end of all jobs: the estimate, that of rounds put right by how long finished ones took."""
    measured = sum(p.seconds for p in jobs)
    expected = sum(p.expected * (p.rounds - p.at_start) for p in jobs)
    pace = measured / expected if measured and expected else 1.0
    left = [pace * p.rounds_left + p.start_left for p in jobs]
    return max(sum(left) / workers, max(left, default=0.0))


def look(plan: StudyPlan, jobs: Sequence[StudyJob], dry: bool = False) -> list[Progress]:
    """Where each job stands; the same run in two parts of a study is one job.

    ``dry``: nothing is run after this, so skip data that is missing.
    """
    once: dict[str, StudyJob] = {}
    for job in jobs:
        if job.name not in once or once[job.name].settings.rounds < job.settings.rounds:
            once[job.name] = job
    found: list[Progress] = []
    missing: dict[str, str] = {}
    for job in once.values():
        progress = Progress(job, 1.0)
        progress.update(plan.directory)
        if is_done(plan.directory, job):
            progress.state = "done"
            progress.rounds = len(
                saved_lines(run_place(plan.directory, job.name, job.settings.rounds))
            )  # packed, if exported
        else:
            _estimate(progress, computed(plan, job), missing if dry else None)
        progress.at_start, progress.seconds = progress.rounds, 0.0
        found.append(progress)
    return found


def computed(plan: StudyPlan, job: StudyJob) -> Settings:
    """The settings of a job with what computes it."""
    kernels = job.settings.kernels if plan.kernels is None else kernels_before(job.settings, plan.kernels)
    return job.settings.model_copy(update={"kernels": kernels})


def _estimate(progress: Progress, settings: Settings, missing: dict[str, str] | None) -> None:
    """Seconds of a job that is not done; data that is missing is remembered, so that it is looked for once.

    ``missing`` None: missing data is refused.
    """
    place = f"{settings.data}|{settings.data_dir}"
    if missing is None or place not in missing:
        try:
            progress.expected = seconds_per_round(settings)
            progress.start_seconds = seconds_to_start(settings)
            return
        except MissingData as error:
            if missing is None:
                raise
            missing[place] = str(error)
    progress.state, progress.problem = "missing", missing[place]


class Running:
    """A job's process and its log."""

    def __init__(self, plan: StudyPlan, progress: Progress) -> None:
        self.progress = progress
        self._log = log_of(plan.directory, progress.job.name)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._failure = failure_of(plan.directory, progress.job.name)
        self._failure.unlink(missing_ok=True)
        command = [sys.executable, "-m", "chase.studies.job", str(plan.path), progress.job.name]
        command += ["", str(progress.job.settings.rounds)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD}
            )
        progress.state = "running"

    def ended(self) -> bool:
        """Whether the process has ended; its outcome is then in the progress."""
        code = self.process.poll()
        if code is None:
            return False
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.progress.state = "done" if code == 0 else "failed"
        if code:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            self.progress.problem = lines[-1] if lines else f"ended with exit code {code}"
            write_atomically(self._failure, self.progress.problem.encode())
        return True

    def stop(self) -> None:
        """End the process at once: its last whole round is saved."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def held(directory: Path, study: str) -> Iterator[None]:
    """A directory for one study at a time: its plan is written and its jobs are run by whoever holds it."""
    try:
        with locked(directory / LOCK, study):
            yield
    except Held as error:
        raise RunDirectoryError(
            f"a study is being run in {directory} already ({error.holder}): watch it with `chase watch {directory}`"
        ) from None


class RunningJob(Protocol):
    """A job that was started, on this machine or elsewhere."""

    progress: Progress

    def ended(self) -> bool:
        """Whether it has ended; its outcome is then in the progress."""
        ...

    def stop(self) -> None:
        """End it at once."""
        ...


def run_jobs(
    plan: StudyPlan,
    jobs: Sequence[Progress],
    workers: int,
    on_change: Callable[[Sequence[Progress]], None],
    start: Callable[[StudyPlan, Progress], RunningJob] = Running,
) -> None:
    """Run what is not done, in order, ``workers`` at a time; a job that fails does not stop the others.

    For use within ``held``. ``start`` begins a job: in a process here, or on a cluster.
    """
    waiting = [progress for progress in jobs if progress.state == "waiting"]
    running: list[RunningJob] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(start(plan, waiting.pop(0)))
                running[-1].progress.began = time.monotonic()
            for entry in running:
                entry.progress.update(plan.directory)
            running = [entry for entry in running if not entry.ended()]
            on_change(jobs)
            if running:
                time.sleep(POLL)
    finally:
        for entry in running:
            entry.stop()


def check(jobs: Sequence[Progress]) -> None:
    """Say which jobs failed, and why."""
    failed = [p for p in jobs if p.state == "failed"]
    if failed:
        reasons = "; ".join(f"{p.job.name}: {p.problem}" for p in failed[:3])
        raise RunDirectoryError(
            f"{len(failed)} of {len(jobs)} jobs failed: {reasons}; the same command runs them again"
        )
