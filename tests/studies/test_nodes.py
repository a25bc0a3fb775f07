"""Jobs on nodes that share nothing with this machine, without a cluster: what is sent, kept and held."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from chase.core.files import held_by, locked
from chase.core.weights import to_bytes
from chase.models.net import SENT_WEIGHTS, get_weights, start_from
from chase.run.comparison import PLAN, plan_arms, write_arms
from chase.run.record import LOCK
from chase.simulation.cluster import ClusterError, versions
from chase.studies import on_ray
from chase.studies.cluster_job import JobOnNode, checksum, read_files, write_files
from chase.studies.data_for_nodes import DataForNodes
from chase.studies.job import read_comparison
from chase.studies.on_ray import RunningOnRay
from chase.studies.runner import look

WEIGHTS = to_bytes({"weight": np.full((2, 2), 3.0, np.float32), "bias": np.zeros(2, np.float32)})


class Actor:
    """A node that lacks the weights; ``said`` is what was called, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, tuple[Any, ...]]] = []
        about = {"node": "n", "node_id": "1", "lacks": False, "lacks_weights": True, "shared": False, **versions()}
        done = {"code": 0, "said": b"", "changed": {"metrics.jsonl": b"{}\n"}, "names": frozenset({"metrics.jsonl"})}
        self.about = self._answers("about", about)
        self.begin = self._answers("begin", None)
        self.look = self._answers("look", {**done, "shared": False})

    def _answers(self, name: str, value: Any) -> Any:
        def remote(*arguments: Any) -> Any:
            self.said.append((name, arguments))
            return value

        return SimpleNamespace(remote=remote)


def fake_ray(actor: Actor) -> Any:
    def remote(**options: Any) -> Any:
        def start(*arguments: Any) -> Actor:
            actor.said.append(("start", arguments))
            return actor

        return lambda kind: SimpleNamespace(remote=start)

    none = type("none", (Exception,), {})
    wrong = SimpleNamespace(RayTaskError=none, RayActorError=none, ObjectLostError=none)
    return SimpleNamespace(
        remote=remote,
        wait=lambda references, timeout: (references, []),
        get=lambda value: value,
        put=lambda value: value,
        kill=lambda handle: None,
        exceptions=wrong,
    )


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a job whose first weights are in a file of this machine."""
    monkeypatch.chdir(tmp_path)
    Path("first.safetensors").write_bytes(WEIGHTS)
    write_arms(tmp_path / "out", plan_arms({"data": "digits", "init_weights": "first.safetensors"}, ["random"], [0]))
    work = read_comparison(tmp_path / "out" / PLAN)
    (progress,) = look(work, work.jobs)
    actor = Actor()
    ray = fake_ray(actor)
    return lambda: (RunningOnRay(work, progress, ray, DataForNodes(ray)), progress, actor)


def test_weights_go_to_a_node_without_them_and_the_run_directory_is_held_meanwhile(
    running: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chase.studies.on_ray.PULL", 0.0)
    job, progress, actor = running()
    lock = tmp_path / "out" / progress.job.name / LOCK
    assert actor.said[0][1][-1] == ("first.safetensors", hashlib.sha256(WEIGHTS).hexdigest())
    assert not job.ended()
    assert ("begin", ({}, {}, WEIGHTS, progress.job.settings.rounds)) in actor.said
    holder = held_by(lock)
    assert holder is not None
    assert holder.pid == os.getpid()
    job._asked = True  # the answer of ``begin``
    assert not job.ended()
    assert job.ended()
    assert (progress.state, progress.problem) == ("done", "")
    assert held_by(lock) is None
    assert (lock.parent / "metrics.jsonl").read_text() == "{}\n"


def test_an_exported_run_stays_here_when_a_node_begins_it_again(running: Any, tmp_path: Path) -> None:
    job, progress, actor = running()
    run = tmp_path / "out" / progress.job.name
    run.mkdir()
    (run / "metrics.jsonl.gz").write_bytes(b"lines")
    assert not job.ended()
    assert (tmp_path / "out/aside/1" / progress.job.name / "metrics.jsonl.gz").read_bytes() == b"lines"
    assert [arguments[0] for name, arguments in actor.said if name == "begin"] == [{}], "the node gets no file of it"


def test_a_node_without_the_kernel_of_the_plan_is_refused_before_the_job_begins(running: Any) -> None:
    job, _, actor = running()
    job._plan, job._asked = replace(job._plan, kernels="compiled"), {**job._asked, "kernels": "fused"}
    with pytest.raises(ClusterError, match="node n has no compiled kernel, or a processor without AVX2"):
        job.ended()
    assert not any(name == "begin" for name, _ in actor.said)


def test_a_run_that_somebody_else_runs_is_not_run_elsewhere(running: Any, tmp_path: Path) -> None:
    job, progress, actor = running()
    with locked(tmp_path / "out" / progress.job.name / LOCK):
        assert job.ended()
    assert progress.state == "failed"
    assert f"is being run by another process (process {os.getpid()})" in progress.problem
    assert not any(name == "begin" for name, _ in actor.said)


def test_locks_are_neither_sent_nor_removed(tmp_path: Path) -> None:
    with locked(tmp_path / LOCK):
        (tmp_path / "old.json").write_text("1")
        assert read_files(tmp_path, {})[0] == {"old.json": b"1"}
        write_files(tmp_path, {"new.json": b"2"}, frozenset({"new.json"}))
        assert sorted(p.name for p in tmp_path.iterdir()) == [LOCK, f"{LOCK}.holder", "new.json"]


def test_sent_weights_are_kept_on_the_node_and_used_instead_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    about = "elsewhere.safetensors", hashlib.sha256(WEIGHTS).hexdigest()
    job = JobOnNode(b"{}", str(tmp_path / "no" / PLAN), "job", ".token", "", about)
    kept = job._keep_weights(WEIGHTS)
    assert checksum(kept) == about[1] != checksum(Path("elsewhere.safetensors"))
    kept.write_bytes(b"damaged")
    assert job._keep_weights(WEIGHTS).read_bytes() == WEIGHTS
    monkeypatch.setenv(SENT_WEIGHTS, str(kept))
    net = nn.Linear(2, 2)
    start_from(net, Path("elsewhere.safetensors"))
    assert (get_weights(net)["weight"] == 3.0).all()


class Died(Exception):
    """A node is gone."""


def dying(running: Any, monkeypatch: pytest.MonkeyPatch, fails: list[bool]) -> Any:
    """A job whose answers are deaths where ``fails`` says so, in order."""
    job, progress, actor = running()
    answers = iter(fails)

    def get(value: Any) -> Any:
        if next(answers, False):
            raise Died
        return value

    job._ray.get, job._ray.exceptions.RayActorError = get, Died
    monkeypatch.setattr(on_ray, "PULL", 0.0)
    return job, progress, actor


def test_a_node_that_is_dead_before_ray_knows_costs_no_try_and_each_death_is_told_once(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node dies at work; then Ray starts the job on it five times more before another node takes it."""
    job, progress, actor = dying(running, monkeypatch, [False, True, *[True] * 5, False, False])
    for _ in range(40):
        if job.ended():
            break
    assert (progress.state, progress.problem) == ("done", "")
    assert progress.notes == [
        "node n died while random-seed0 ran there: it resumes on another node from the last round that was saved"
    ]
    assert [name for name, _ in actor.said].count("start") == 7


def test_a_job_that_three_nodes_died_of_or_none_can_start_fails_with_a_sentence(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, progress, _ = dying(running, monkeypatch, [False, True] * 3)
    while not job.ended():
        pass
    assert progress.problem == "3 nodes died while running it, the last by Died"
    monkeypatch.setattr(on_ray, "PATIENCE", 0.05)
    job, progress, _ = dying(running, monkeypatch, [True] * 1000)
    while not job.ended():
        time.sleep(0.01)
    assert progress.problem == "no node could start it for 0 s (Died)"
