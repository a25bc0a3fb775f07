"""Jobs of a study on the nodes of a Ray cluster.

A node that sees the study's directory (a shared file system) works in it. Elsewhere a job works in a directory of its
own, which begins with what its run directory holds here, and what it writes comes back every few seconds. A node that
dies costs the rounds since: the job goes on elsewhere from what came back.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chase.core.files import write_atomically
from chase.simulation.cluster import ClusterError, check_same, connect, versions
from chase.studies.job import failure_of, log_of
from chase.studies.plan import StudyPlan
from chase.studies.runner import ONE_THREAD, Progress

TRIES = 3
"""Nodes that one job may cost."""
PULL = 3.0
"""Seconds between two looks at a job."""
Files = dict[str, bytes]


def read_files(directory: Path, known: Mapping[str, tuple[int, int]]) -> tuple[Files, dict[str, tuple[int, int]]]:
    """The files that differ from what is known, and size and time of all."""
    found: dict[str, tuple[int, int]] = {}
    changed: Files = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name, about = path.relative_to(directory).as_posix(), path.stat()
        found[name] = about.st_size, about.st_mtime_ns
        if known.get(name) != found[name]:
            changed[name] = path.read_bytes()
    return changed, found


def write_files(directory: Path, changed: Mapping[str, bytes], names: frozenset[str]) -> None:
    """Make a directory hold these files; manifests last, so that a kill here leaves a checkpoint that is whole."""
    for name in sorted(changed, key=lambda n: (n.startswith("checkpoint/") and n.endswith(".json"), n)):
        write_atomically(directory / name, changed[name])
    for path in directory.rglob("*"):
        if path.is_file() and path.relative_to(directory).as_posix() not in names:
            path.unlink(missing_ok=True)


class JobOnNode:
    """One job in a process of its own, on whichever node this is."""

    def __init__(self, plan: bytes, where: str, job: str, token: str, files: Files) -> None:
        self._job, self._known = job, dict[str, tuple[int, int]]()
        there = Path(where)
        self._shared = (there.parent / token).is_file()
        self._place = there.parent if self._shared else Path(tempfile.mkdtemp(prefix="chase-job-"))
        if not self._shared:
            write_atomically(self._place / there.name, plan)
            write_files(self._place / job, files, frozenset(files))
            _, self._known = read_files(self._place / job, {})
        log = log_of(self._place, job)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "chase.studies.job", str(self._place / there.name), job]
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=said, env={**os.environ, **ONE_THREAD}
            )

    def about(self) -> dict[str, Any]:
        """Versions of what decides results on this node."""
        import ray

        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return {"node": node, **versions()}

    def look(self) -> dict[str, Any]:
        """How the job stands, what it says and, where the directory is not shared, what it has written since."""
        code = self._process.poll()
        changed: Files = {}
        if not self._shared:
            changed = self._changes(code)
        said = log_of(self._place, self._job).read_bytes()
        names = frozenset(self._known)
        if code is not None and not self._shared:
            shutil.rmtree(self._place, ignore_errors=True)
        return {"code": code, "said": said, "changed": changed, "names": names, "shared": self._shared}

    def _changes(self, code: int | None) -> Files:
        """What the job has written; it stands still meanwhile, so that the files belong together."""
        try:
            if code is None:
                self._process.send_signal(signal.SIGSTOP)
            changed, self._known = read_files(self._place / self._job, self._known)
        finally:
            if code is None:
                self._process.send_signal(signal.SIGCONT)
        return changed


class RunningOnRay:
    """A job on the cluster, as ``runner.Running`` is one on this machine."""

    def __init__(self, plan: StudyPlan, progress: Progress, ray: Any) -> None:
        self.progress, self._plan, self._ray = progress, plan, ray
        self._name, self._deaths = progress.job.name, 0
        self._token = f".on-ray-{secrets.token_hex(8)}"
        (plan.directory / self._token).touch()
        self._failure = failure_of(plan.directory, self._name)
        self._failure.unlink(missing_ok=True)
        self._start()
        progress.state = "running"

    def _start(self) -> None:
        run = self._plan.directory / self._name
        files, _ = read_files(run, {}) if run.is_dir() else ({}, {})
        remote = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(JobOnNode)
        path = self._plan.path.resolve()
        self._actor = remote.remote(path.read_bytes(), str(path), self._name, self._token, files)
        self._first, self._asked, self._last = self._actor.about.remote(), None, 0.0

    def ended(self) -> bool:
        """Whether the job has ended; its outcome is then in the progress."""
        if self._asked is None:
            if time.monotonic() - self._last < PULL:
                return False
            self._asked = self._actor.look.remote()
        waited = self._first if self._first is not None else self._asked
        if not self._ray.wait([waited], timeout=0)[0]:
            return False
        try:
            return self._took(self._ray.get(waited), waited)
        except self._ray.exceptions.RayActorError as error:
            return self._lost(error)

    def _took(self, answer: dict[str, Any], waited: Any) -> bool:
        if waited is self._first:
            self._first = None
            check_same(answer["node"], answer)
            return False
        self._asked, self._last = None, time.monotonic()
        if not answer["shared"]:
            write_files(self._plan.directory / self._name, answer["changed"], answer["names"])
            write_atomically(log_of(self._plan.directory, self._name), answer["said"])
        if answer["code"] is None:
            return False
        lines = answer["said"].decode(errors="replace").strip().splitlines()
        return self._finish(answer["code"], lines[-1] if lines else f"ended with exit code {answer['code']}")

    def _lost(self, error: Exception) -> bool:
        """The node died: the job goes on elsewhere, from what is here."""
        if "No module named" in str(error) or "failed to import" in str(error):
            raise ClusterError("a node of the cluster cannot import chase: install it there") from None
        self._deaths += 1
        if self._deaths >= TRIES:
            return self._finish(1, f"{TRIES} nodes died while running it, the last by {type(error).__name__}")
        self._start()
        return False

    def _finish(self, code: int, problem: str) -> bool:
        self.progress.state = "done" if code == 0 else "failed"
        if code:
            self.progress.problem = problem
            write_atomically(self._failure, problem.encode())
        self.stop()
        return True

    def stop(self) -> None:
        """End the job: what came back is kept."""
        self._ray.kill(self._actor)
        (self._plan.directory / self._token).unlink(missing_ok=True)


class RayJobs:
    """Starts jobs on a cluster; connect first, so that an address that does not answer is refused before anything."""

    def __init__(self, address: str, cores: int) -> None:
        self._ray = connect(address, cores)

    @property
    def cores(self) -> int:
        """Cores of the cluster: as many jobs run at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def __call__(self, plan: StudyPlan, progress: Progress) -> RunningOnRay:
        """Start a job."""
        return RunningOnRay(plan, progress, self._ray)
