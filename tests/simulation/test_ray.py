"""Clients on a real Ray cluster of two nodes on this machine: the same bits, also when a node dies in mid-round."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from held_job import MARKER
from support import final_weights, timeless

from chase.cli.main import main
from chase.core.errors import SettingsError
from chase.core.files import held_by
from chase.core.weights import digest, to_bytes
from chase.data import sources
from chase.models.net import get_weights
from chase.run.checkpoint import Checkpoint
from chase.run.comparison import PLAN, plan_arms, write_arms
from chase.run.engine import RoundResult
from chase.run.experiment import Experiment
from chase.run.record import LOCK, Record
from chase.server.intake import Intake
from chase.server.server import Server
from chase.settings import Settings, from_mapping, load
from chase.simulation import cluster, parcels
from chase.simulation.inprocess import InProcess
from chase.simulation.world import World, load_data
from chase.studies import on_ray
from chase.studies.job import read_comparison
from chase.studies.runner import look, run_jobs

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of sockets and files that it leaves to the system
    pytest.mark.timeout(900),  # nodes of a cluster start slowly where other tests use the cores
]


def settings(**changes: Any) -> Settings:
    return load("digits", {"clients": 40, "classes_per_client": 2, "local_epochs": 2, "engine": "ray", **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster whose head has no core: tests add nodes, each with one."""
    from ray.cluster_utils import Cluster

    cluster.need_ray()
    spare = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}  # each a process of its own
    head = {"num_cpus": 0, "object_store_memory": 100 * 2**20, **spare}
    made = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False, runtime_env=cluster.environment())
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes' caches are: nodes live on from test to test."""
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture
def nodes(made: Any, shared_place: Path) -> Any:
    """So many nodes, each with a core and a cache of decoded data of its own: those that are there, and new ones."""

    def there(count: int) -> list[Any]:
        alive = [node for node in made.list_all_nodes() if node is not made.head_node]
        for _ in range(count - len(alive)):
            own = {"CHASE_CACHE": str(shared_place / f"node{len(made.list_all_nodes())}-{len(STARTED)}")}
            STARTED.append(made.add_node(num_cpus=1, object_store_memory=100 * 2**20, env_vars={**own, **waits}))
        return [node for node in made.list_all_nodes() if node is not made.head_node]

    waits = {MARKER: str(shared_place / "waited")}
    return there


STARTED: list[Any] = []


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


def table(directory: Path) -> Path:
    """A CSV file of two classes that a line separates."""
    draw = np.random.default_rng(0)
    values = draw.normal(size=(120, 3))
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'high' if a + b > 0 else 'low'}" for a, b, c in values]
    directory.mkdir(exist_ok=True)
    (directory / "items.csv").write_text("\n".join(["a,b,c,label", *lines]))
    return directory


@pytest.mark.cluster
def test_a_job_resumes_elsewhere_when_its_node_dies_and_data_is_sent_to_nodes_without_it(
    made: Any, nodes: Any, shared_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes see neither the directory of the jobs nor the files of data and first weights; each has its own cache."""
    nodes(2)
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(MARKER, str(shared_place / "waited"))
    monkeypatch.chdir(table(tmp_path / "work"))
    values = {"data": "items.csv", "net": "mlp", "partition": "iid", "clients": 2, "rounds": 6, "local_epochs": 2}
    first = get_weights(World.of(given := from_mapping(values).resolved(), load_data(given)).net())
    Path("first.safetensors").write_bytes(to_bytes({name: 1.5 * array for name, array in first.items()}))
    values |= {"init_weights": "first.safetensors"}
    arms = plan_arms({**values, "behaviour": "AbCo", "budget": 4}, ["held_job:WaitOnce"], [0])
    out = tmp_path / "out"
    write_arms(out, arms)
    work = read_comparison(out / PLAN)
    jobs, running, died, holders = look(work, work.jobs), list[Any](), list[str](), list[Any]()
    start = on_ray.RunningOnRay._start

    def unseen(self: Any) -> None:
        (out / self._token).unlink(missing_ok=True)
        start(self)

    def kill_its_node(some: Any) -> None:
        if some[0].rounds and not died:
            holders.append(held_by(out / work.jobs[0].name / LOCK))
            died.append(running[0].node)
            node = next(n for n in made.list_all_nodes() if n.node_id == running[0].node)
            made.remove_node(node, allow_graceful=False)

    monkeypatch.setattr(on_ray.RunningOnRay, "_start", unseen)
    monkeypatch.setattr(on_ray, "PULL", 0.2)
    begin = on_ray.RayJobs(made.address, 2)

    def launch(*arguments: Any) -> Any:
        running.append(begin(*arguments))
        return running[-1]

    run_jobs(work, jobs, 1, kill_its_node, launch)
    assert (jobs[0].problem, jobs[0].state) == ("", "done")
    assert len(died) == 1
    assert running[0].node not in ("", died[0])
    assert holders[0].pid == os.getpid(), "nobody may run the rounds here while they are run elsewhere"
    assert held_by(out / work.jobs[0].name / LOCK) is None
    assert len(list(shared_place.glob("*/decoded/items-*"))) == 2
    assert len(list(shared_place.glob("*/weights/*.safetensors"))) == 2
    assert list((tmp_path / "cache" / "decoded").glob("items-*"))

    job = work.jobs[0]
    Experiment.begin(job.settings, tmp_path / "here").run()
    assert timeless(Record.open(out / job.name).metrics) == timeless(Record.open(tmp_path / "here").metrics)
    assert final_weights(out / job.name) == final_weights(tmp_path / "here")
    places = json.loads((out / job.name / "data.json").read_text())["places"]
    assert (out / job.name / places["data"]).resolve() == (tmp_path / "work" / "items.csv").resolve()


@pytest.mark.cluster
def test_a_comparison_on_a_cluster_ends_as_one_on_this_machine(
    made: Any, nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes(1)
    monkeypatch.chdir(tmp_path)
    small = ["--set", "clients=2", "--set", "local_epochs=2", "--rounds", "2", "--seeds", "1"]
    command = ["chase", "run", "digits", "--strategy", "random,margin", *small, "--out"]
    monkeypatch.setattr("sys.argv", [*command, "there", "--on", "ray", "--address", made.address])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    monkeypatch.setattr("sys.argv", [*command, "here"])
    with pytest.raises(SystemExit):
        main()
    for arm in ("random-seed0", "margin-seed0"):
        assert timeless(Record.open(Path("there") / arm).metrics) == timeless(Record.open(Path("here") / arm).metrics)
        assert final_weights(Path("there") / arm) == final_weights(Path("here") / arm)
    assert Path("there/report.html").is_file()


def test_two_nodes_give_the_same_bits_and_a_node_that_dies_costs_nothing(made: Any, nodes: Any, tmp_path: Path) -> None:
    from chase.simulation.ray import OnRay

    second = nodes(2)[1]
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


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(parcels.MOST, id="with the calls", marks=pytest.mark.cluster),
        pytest.param(0, id="through the object store"),
    ],
)
def test_a_share_of_many_small_clients_comes_back_as_sums_of_whole_blocks(
    made: Any, nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    from chase.simulation.ray import OnRay

    nodes(2)
    monkeypatch.setattr(parcels, "MOST", most)
    blocks, take_block = list[int](), Intake.take_block
    monkeypatch.setattr(Intake, "take_block", lambda self, *some: (blocks.append(some[0]), take_block(self, *some))[1])
    chosen = settings(clients=150, share_of_clients=0.7, local_epochs=1, strategy="random", partition="iid")
    world = World.of(chosen, sources.load("digits"))
    plain, checkpoint = Checkpoint(tmp_path / "plain"), Checkpoint(tmp_path / "ray")
    reference = two_rounds(InProcess(world, plain), chosen, world, plain)
    assert blocks == []
    engine = OnRay(world, checkpoint, made.address, 2, 2)
    try:
        engine._wait_for(2)
        assert two_rounds(engine, chosen, world, checkpoint) == reference
        assert len(blocks) >= 2
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

    monkeypatch.setattr(cluster, "check_answers", lambda address: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(cluster.ClusterError, match=r"the Ray cluster at 10\.0\.0\.9:6379 cannot be reached \(Failed"):
        cluster.connect("10.0.0.9:6379", 1)


def test_an_address_where_nothing_listens_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray was asked, which waits for minutes"))
    with pytest.raises(
        cluster.ClusterError, match=rf"the Ray cluster at 127\.0\.0\.1:{port} cannot be reached \(.*refused"
    ):
        cluster.connect(f"127.0.0.1:{port}", 1)
    with pytest.raises(cluster.ClusterError, match=r"127\.0\.0\.1:99999 cannot be reached \(it is not HOST:PORT"):
        cluster.connect("127.0.0.1:99999", 1)


@pytest.mark.parametrize("command", [["study", "ablation"], ["run", "digits", "--strategy", "random,margin"]])
def test_commands_refuse_such_an_address_before_they_plan_anything(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    out = tmp_path / "out"
    monkeypatch.setattr(sources, "load", lambda *given: pytest.fail("data was loaded first"))
    where = ["--out", str(out), "--on", "ray", "--address", f"127.0.0.1:{port}"]
    monkeypatch.setattr("sys.argv", ["chase", *command, *where])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"the Ray cluster at 127.0.0.1:{port} cannot be reached" in capsys.readouterr().err
    assert not out.exists()


def test_a_person_or_another_device_is_not_run_on_a_cluster() -> None:
    with pytest.raises(SettingsError, match="annotator = 'page' works on one machine only, but engine = 'ray'"):
        settings(annotator="page")
    with pytest.raises(SettingsError, match="device = 'cuda' works on one machine only"):
        settings(device="cuda")
