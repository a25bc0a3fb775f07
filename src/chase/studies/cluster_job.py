"""What runs on a node of the cluster: one job in a process of its own, and the data that it needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from chase.core.files import write_atomically
from chase.data.cache import cache_root, read_entry, receive_entry
from chase.models.net import SENT_WEIGHTS
from chase.run.record import LOCK
from chase.simulation.cluster import ClusterError, versions
from chase.studies.data_for_nodes import Pieces
from chase.studies.job import log_of
from chase.studies.runner import ONE_THREAD

Files = dict[str, bytes]


def read_files(directory: Path, known: Mapping[str, tuple[int, int]]) -> tuple[Files, dict[str, tuple[int, int]]]:
    """The files that differ from what is known, and size and time of all; each side has locks of its own."""
    found: dict[str, tuple[int, int]] = {}
    changed: Files = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(LOCK)):
        name, about = path.relative_to(directory).as_posix(), path.stat()
        found[name] = about.st_size, about.st_mtime_ns
        if known.get(name) != found[name]:
            changed[name] = path.read_bytes()
    return changed, found


def write_files(directory: Path, changed: Mapping[str, bytes], names: frozenset[str]) -> None:
    """Make a directory hold these files; manifests last, so that a kill here leaves a complete checkpoint."""
    for name in sorted(changed, key=lambda n: (n.startswith("checkpoint/") and n.endswith(".json"), n)):
        write_atomically(directory / name, changed[name])
    for path in directory.rglob("*"):
        kept = path.name.startswith(LOCK) or path.relative_to(directory).as_posix() in names
        if path.is_file() and not kept:
            path.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Of a file; empty if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if os.path.isfile(path) else ""


class JobOnNode:
    """One job in a process of its own, on whichever node this is."""

    def __init__(self, plan: bytes, where: str, job: str, token: str, entry: str, weights: tuple[str, str]) -> None:
        """``weights``: path and checksum of the file of ``init_weights``, where there is one."""
        self._weights, self._checksum = weights
        self._job, self._entry, self._known = job, entry, dict[str, tuple[int, int]]()
        there = Path(where)
        self._shared = (there.parent / token).is_file()
        self._place = there.parent if self._shared else Path(tempfile.mkdtemp(prefix="chase-job-"))
        self._plan = self._place / there.name
        if not self._shared:
            write_atomically(self._plan, plan)
        self._process: subprocess.Popen[bytes] | None = None

    def about(self) -> dict[str, Any]:
        """Versions of what decides results on this node, and what it lacks."""
        import ray

        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        lacks = bool(self._entry) and read_entry(self._entry) is None
        where = {"node": node, "node_id": ray.get_runtime_context().get_node_id()}
        without = bool(self._checksum) and checksum(Path(self._weights)) != self._checksum
        return {**where, "lacks": lacks, "lacks_weights": without, "shared": self._shared, **versions()}

    def begin(self, files: Files, data: Pieces, weights: bytes | None = None, rounds: int = 0) -> None:
        """Start the job from what its run directory holds; data and weights that came are kept for the next jobs.

        ``rounds``: which entry of the plan is meant (``studies.job``).
        """
        if data:
            self._receive(data)
        sent = {} if weights is None else {SENT_WEIGHTS: str(self._keep_weights(weights))}
        if not self._shared:
            write_files(self._place / self._job, files, frozenset(files))
            _, self._known = read_files(self._place / self._job, {})
        log = log_of(self._place, self._job)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "chase.studies.job", str(self._plan), self._job, self._entry, str(rounds)]
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=said, env={**os.environ, **ONE_THREAD, **sent}
            )

    def _keep_weights(self, content: bytes) -> Path:
        path = cache_root() / "weights" / f"{self._checksum}.safetensors"
        if checksum(path) != self._checksum:
            write_atomically(path, content, refusal=ClusterError)
        return path

    def _receive(self, data: Pieces) -> None:
        import ray

        fetch: Callable[[Any], memoryview] = lambda reference: memoryview(ray.get(reference))  # noqa: E731
        fetched = {name: [partial(fetch, reference) for reference in pieces] for name, pieces in data.items()}
        try:
            receive_entry(self._entry, fetched)
        except OSError as error:
            node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            raise ClusterError(
                f"node {node} cannot keep the data {self._entry} in {cache_root()} ({error.strerror or error}): free "
                "space there, or set CHASE_CACHE where its Ray is started"
            ) from None

    def look(self) -> dict[str, Any]:
        """How the job stands, what it says and, where the directory is not shared, what it has written since."""
        code = None if self._process is None else self._process.poll()
        changed = {} if self._shared else self._changes()
        log = log_of(self._place, self._job)
        said = log.read_bytes() if log.is_file() else b""
        names = frozenset(self._known)
        if code is not None and not self._shared:
            shutil.rmtree(self._place, ignore_errors=True)
        return {"code": code, "said": said, "changed": changed, "names": names, "shared": self._shared}

    def end(self) -> dict[str, Any] | None:
        """End the job; what it wrote last, or None if it had ended, or not begun, before."""
        if self._process is None or not self._place.is_dir():
            return None
        self._process.kill()
        self._process.wait()
        return self.look()

    def _changes(self) -> Files:
        """What the job has written; it stands still meanwhile, so that the files belong together."""
        running = self._process is not None and self._process.poll() is None
        try:
            if running and self._process is not None:
                self._process.send_signal(signal.SIGSTOP)
            changed, self._known = read_files(self._place / self._job, self._known)
        finally:
            if running and self._process is not None:
                self._process.send_signal(signal.SIGCONT)
        return changed
