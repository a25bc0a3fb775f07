"""Clients on a real Ray cluster of two nodes on this machine: the same bits, also when a node dies in mid-round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import final_weights, timeless

from chase.core.errors import SettingsError
from chase.core.weights import digest
from chase.data import sources
from chase.models.net import get_weights
from chase.run.checkpoint import Checkpoint
from chase.run.engine import RoundResult
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.server.server import Server
from chase.settings import Settings, load
from chase.simulation import cluster
from chase.simulation.inprocess import InProcess
from chase.simulation.world import World
from chase.studies import on_ray
from chase.studies.catalog import find_study
from chase.studies.plan import Options, plan, write_plan
from chase.studies.runner import look, run_jobs

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of sockets and files that it leaves to the system


def settings(**changes: Any) -> Settings:
    return load("digits", {"clients": 40, "classes_per_client": 2, "local_epochs": 2, "engine": "ray", **changes})


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head with one core and a second node with one; the test kills that one."""
    from ray.cluster_utils import Cluster

    cluster.need_ray()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
    second = made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False, runtime_env=cluster.environment())
    try:
        yield made, second
    finally:
        ray.shutdown()
        made.shutdown()


def two_rounds(engine: Any, chosen: Settings, world: World, checkpoint: Checkpoint) -> list[tuple[str, Any, Any]]:
    """The global model, the journal and the label counts after each of two rounds."""
    server, found = Server("run", chosen, get_weights(world.net())), []
    for round in (1, 2):
        orders = server.orders(round)
        result: RoundResult = engine.run_round(orders)
        server.aggregate(orders, result.updates, result.mean)
        checkpoint.commit(round, server.to_arrays())
        found.append((digest(server.weights), result.journal, [u.num_labeled for u in result.updates]))
    return found


def test_a_job_of_a_study_goes_on_elsewhere_when_its_node_dies(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node does not see the directory: files go and come back, and end as those of a run on this machine."""
    options = Options(("digits",), ("FedRandom",), 30, 1, scale=0.2, changes={"clients": 2, "local_epochs": 2})
    work = write_plan(tmp_path, "ablation", plan(find_study("ablation"), options))
    job, jobs, killed = work.jobs[0], look(work, work.jobs), []
    start = on_ray.RunningOnRay._start

    def unseen(self: Any) -> None:
        (tmp_path / self._token).unlink(missing_ok=True)
        start(self)

    def kill_once(some: Any) -> None:
        if some[0].rounds and not killed and running[0].progress.state == "running":
            killed.append(some[0].rounds)
            ray.kill(running[0]._actor)

    monkeypatch.setattr(on_ray.RunningOnRay, "_start", unseen)
    monkeypatch.setattr(on_ray, "PULL", 0.2)
    begin, running = on_ray.RayJobs(nodes[0].address, 2), []

    def launch(*arguments: Any) -> Any:
        running.append(begin(*arguments))
        return running[0]

    run_jobs(work, jobs, 1, kill_once, launch)
    assert jobs[0].problem == ""
    assert jobs[0].state == "done"
    if killed[0] >= 30:
        pytest.skip("the job finished before its node could be killed")
    assert killed[0] > 0
    Experiment.begin(job.settings, tmp_path / "here").run()
    assert timeless(Record.open(tmp_path / job.name).metrics) == timeless(Record.open(tmp_path / "here").metrics)
    assert final_weights(tmp_path / job.name) == final_weights(tmp_path / "here")


def test_two_nodes_give_the_same_bits_and_a_node_that_dies_costs_nothing(nodes: Any, tmp_path: Path) -> None:
    from chase.simulation.ray import OnRay

    made, second = nodes
    chosen = settings()
    world = World.of(chosen, sources.load("digits"))
    plain = Checkpoint(tmp_path / "plain")
    reference = two_rounds(InProcess(world, plain), chosen, world, plain)

    checkpoint = Checkpoint(tmp_path / "ray")
    engine = OnRay(world, checkpoint, made.address, 2, 2)
    try:
        engine._wait_for(2)
        assert two_rounds(engine, chosen, world, checkpoint) == reference
        weights = get_weights(world.net())
        there = InProcess(world, Checkpoint(tmp_path / "c")).test_logits(weights)
        assert np.array_equal(engine.test_logits(weights), there)
        assert engine.processor_seconds() > 0
        states = {c: plain.read_client(plain.where(c)) for c in range(40)}
        assert all(
            np.array_equal(checkpoint.read_client(checkpoint.where(c))[name], array)
            for c, arrays in states.items()
            for name, array in arrays.items()
        )

        again = Checkpoint(tmp_path / "again")
        engine._checkpoint = again
        keep, killed = engine._keep, []

        def kill_at_the_third_answer(*arguments: Any) -> None:
            keep(*arguments)
            killed.append(arguments)
            if len(killed) == 3:
                made.remove_node(second, allow_graceful=False)

        engine._keep = kill_at_the_third_answer
        assert two_rounds(engine, chosen, world, again) == reference
        assert "died" in engine.notes[0]
        assert "it is run again" in engine.notes[0]
    finally:
        engine.close()


def test_other_versions_are_refused_by_name() -> None:
    with pytest.raises(cluster.ClusterError, match=r"node 10\.0\.0\.5 has torch 1\.0, this machine .*install the same"):
        cluster.check_same("10.0.0.5", {**cluster.versions(), "torch": "1.0"})
    with pytest.raises(cluster.ClusterError, match="has the source of chase 0123"):
        cluster.check_same("10.0.0.5", {**cluster.versions(), "source": "0123"})


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"Ray is not installed: pip install 'chase-fal\[ray\]'"):
        cluster.need_ray()


def test_an_address_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise ConnectionError("Failed to connect to GCS at address 10.0.0.9:6379 within 5 seconds.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(cluster.ClusterError, match=r"the Ray cluster at 10\.0\.0\.9:6379 cannot be reached \(Failed"):
        cluster.connect("10.0.0.9:6379", 1)


def test_a_person_or_another_device_is_not_run_on_a_cluster() -> None:
    with pytest.raises(SettingsError, match="annotator = 'page' needs this machine, but engine = 'ray'"):
        settings(annotator="page")
    with pytest.raises(SettingsError, match="device = 'cuda' needs this machine"):
        settings(device="cuda")
