"""Jobs of a study or a comparison on the nodes of a Ray cluster.

A node that sees the directory of the jobs (a shared file system) works in it. Elsewhere a job works in a directory of
its own, which begins with what its run directory holds here, and what it writes comes back every few seconds. A node
that dies costs the rounds since: the job resumes elsewhere from what came back. Data goes by the name that its content
gives it in the cache of decoded data: a node that has it uses its own copy, another is sent it once (``DataForNodes``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from chase.core.errors import ChaseError
from chase.core.files import Held, locked, write_atomically
from chase.run import data_check
from chase.run.record import LOCK, kernels_before
from chase.simulation.cluster import ClusterError, check_same, connect
from chase.studies.cluster_job import JobOnNode, read_files, write_files
from chase.studies.data_for_nodes import DataForNodes
from chase.studies.job import failure_of, log_of
from chase.studies.places import put_aside
from chase.studies.plan import StudyPlan
from chase.studies.runner import Progress

TRIES = 3
"""Nodes that one job may cost."""
PULL = 3.0
"""Seconds between two looks at a job."""
PATIENCE = 300.0
"""Seconds in which some node must begin a job, from the first that could not."""
LAST_LOOK = 10.0
"""Seconds that a job which is stopped has for handing over what it wrote last."""


class RunningOnRay:
    """A job on the cluster, as ``runner.Running`` is one on this machine."""

    def __init__(self, plan: StudyPlan, progress: Progress, ray: Any, data: DataForNodes) -> None:
        self.progress, self._plan, self._ray, self._data = progress, plan, ray, data
        self._name, self._deaths = progress.job.name, 0
        self._run = plan.directory / self._name
        self._entry = data.entry(progress.job.settings)
        self._checksum, self._weights = data.weights(progress.job.settings)
        self._held = ExitStack()
        self._token = f".on-ray-{secrets.token_hex(8)}"
        (plan.directory / self._token).touch()
        self._failure = failure_of(plan.directory, self._name)
        self._failure.unlink(missing_ok=True)
        self._address, self._failing = "", 0.0
        self.node = ""
        """Ray's id of the node that the job runs on."""
        self._start()
        progress.state = "running"

    def _start(self) -> None:
        remote = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(JobOnNode)
        path = self._plan.path.resolve()
        weights = self.progress.job.settings.init_weights, self._checksum
        self._actor = remote.remote(path.read_bytes(), str(path), self._name, self._token, self._entry, weights)
        self._asked, self._last = self._actor.about.remote(), 0.0
        self.node, self._address = "", ""
        self._take: Callable[[Any], bool] = self._took_about

    def ended(self) -> bool:
        """Whether the job has ended; its outcome is then in the progress."""
        if self._asked is None:
            if time.monotonic() - self._last < PULL:
                return False
            self._asked, self._take = self._actor.look.remote(), self._took
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return False
        asked, self._asked = self._asked, None
        try:
            return self._take(self._ray.get(asked))
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ChaseError):
                return self._finish(2, str(error.cause))
            raise RuntimeError(f"a job on the cluster failed:\n{error}") from None
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            return self._lost(error)

    def _took_about(self, answer: dict[str, Any]) -> bool:
        """The node is known: it gets what it lacks, and begins."""
        check_same(answer["node"], answer, kernels_before(self.progress.job.settings, self._plan.kernels))
        self.node, self._address, self._failing = answer["node_id"], answer["node"], 0.0
        if not answer["shared"]:
            put_aside(self._run)  # here: on the node it would be lost with the node's copy
            try:
                self._hold()
            except Held as error:
                return self._finish(2, f"{self._run} is being run by another process ({error.holder})")
        files, _ = read_files(self._run, {}) if self._run.is_dir() and not answer["shared"] else ({}, {})
        data = self._data.pieces(self._entry) if answer["lacks"] else {}
        weights = self._weights if answer["lacks_weights"] else None
        rounds = self.progress.job.settings.rounds
        self._asked, self._take = self._actor.begin.remote(files, data, weights, rounds), self._began
        return False

    def _hold(self) -> None:
        """Nobody else runs the rounds of the run directory here while they are run elsewhere."""
        self._held.close()
        self._held.enter_context(locked(self._run / LOCK))

    def _began(self, _: Any) -> bool:
        self._last = time.monotonic()
        return False

    def _took(self, answer: dict[str, Any]) -> bool:
        self._last = time.monotonic()
        if not answer["shared"]:
            write_files(self._run, answer["changed"], answer["names"])
            if data_check.FILE in answer["changed"]:
                data_check.here(self._run, self.progress.job.settings)
            write_atomically(log_of(self._plan.directory, self._name), answer["said"])
        if answer["code"] is None:
            return False
        lines = answer["said"].decode(errors="replace").strip().splitlines()
        return self._finish(answer["code"], lines[-1] if lines else f"ended with exit code {answer['code']}")

    def _lost(self, error: Exception) -> bool:
        """The node died: the job resumes elsewhere, from what is here.

        For some seconds Ray still starts jobs on a node that is dead: what never began does not count as a death.
        """
        if "No module named" in str(error) or "failed to import" in str(error):
            raise ClusterError("a node of the cluster cannot import chase: install it there") from None
        if self.node:
            self._deaths += 1
            self.progress.notes.append(
                f"node {self._address} died while {self._name} ran there: it resumes on another node from the last "
                "round that was saved"
            )
        if self._deaths >= TRIES:
            return self._finish(1, f"{TRIES} nodes died while running it, the last by {type(error).__name__}")
        self._failing = self._failing or time.monotonic()
        if time.monotonic() - self._failing > PATIENCE:
            return self._finish(1, f"no node could start it for {PATIENCE:.0f} s ({type(error).__name__})")
        self._start()
        return False

    def _finish(self, code: int, problem: str) -> bool:
        self.progress.state = "done" if code == 0 else "failed"
        if code:
            self.progress.problem = problem
            write_atomically(self._failure, problem.encode())
        self._end()
        return True

    def stop(self) -> None:
        """End the job; what it wrote up to now comes back first, if its node answers in time."""
        last = self._actor.end.remote()
        if self.progress.state == "running" and self._ray.wait([last], timeout=LAST_LOOK)[0]:
            try:
                answer = self._ray.get(last)
                if answer is not None and not answer["shared"]:
                    write_files(self._run, answer["changed"], answer["names"])
            except self._ray.exceptions.RayError:
                pass  # the node is gone: what came back before is kept
        self._end()

    def _end(self) -> None:
        self._ray.kill(self._actor)
        self._held.close()
        (self._plan.directory / self._token).unlink(missing_ok=True)


class RayJobs:
    """Starts jobs on a cluster; connect first, so that an address that does not answer is refused before anything."""

    def __init__(self, address: str, cores: int) -> None:
        self._ray = connect(address, cores)
        self._data = DataForNodes(self._ray)

    @property
    def cores(self) -> int:
        """Cores of the cluster: as many jobs run at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def __call__(self, plan: StudyPlan, progress: Progress) -> RunningOnRay:
        """Start a job."""
        return RunningOnRay(plan, progress, self._ray, self._data)
