"""Engines: the same bits whichever runs the clients, and no worker dies or lives on unnoticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chase.core.arena import Arena
from chase.core.weights import digest, read
from chase.data import sources
from chase.models.net import get_weights
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.server.server import Server
from chase.settings import Settings, load
from chase.simulation import clients, engines
from chase.simulation.batches import plan_batches
from chase.simulation.inprocess import InProcess
from chase.simulation.workers import WorkerFailed, Workers
from chase.simulation.world import World, split_among_clients


def settings(**changes: Any) -> Settings:
    return load("digits", {"clients": 5, "rounds": 3, "local_epochs": 3, "seed": 7, **changes})


def make_world(chosen: Settings) -> World:
    data = sources.load("digits")
    parts = split_among_clients(chosen, data)
    return World(chosen, data.train, data.train_labels, data.num_classes, parts, data.test)


def outcome(path: Path, **changes: Any) -> tuple[list[dict[str, Any]], str]:
    """Metrics without timings and the fingerprint of the final weights."""
    metrics = Experiment.begin(settings(**changes), path).run()
    plain = [{k: v for k, v in m.items() if not k.startswith("seconds")} for m in metrics]
    last = metrics[-1]["round"]
    return plain, digest(read(path / "checkpoint" / f"server-{last:06d}.safetensors"))


@pytest.mark.parametrize(("strategy", "counts"), [("chase", (1, 3)), ("random", (2,))])
def test_every_engine_and_number_of_workers_gives_the_same_bits(
    tmp_path: Path, strategy: str, counts: tuple[int, ...]
) -> None:
    """Chase with two workers: tests/e2e."""
    reference = outcome(tmp_path / "in", engine="inprocess", strategy=strategy)
    for workers in counts:
        assert outcome(tmp_path / f"w{workers}", engine="workers", workers=workers, strategy=strategy) == reference


def test_a_process_holds_a_bounded_number_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LIVE", 2)
    chosen = settings(engine="inprocess")
    reference = outcome(tmp_path / "all", engine="inprocess")
    engines: list[InProcess] = []
    made = InProcess.__init__

    def remember(self: InProcess, *arguments: Any) -> None:
        made(self, *arguments)
        engines.append(self)

    monkeypatch.setattr(InProcess, "__init__", remember)
    assert outcome(tmp_path / "two", engine="inprocess") == reference
    assert len(engines[0]._roster._clients) == 2 < chosen.clients


@pytest.mark.parametrize(("count", "sizes"), [(10, {1}), (100, {6, 4}), (1000, {16, 8})])
def test_batches_hold_every_client_once_and_grow_with_the_round(count: int, sizes: set[int]) -> None:
    costs = np.arange(2000.0)
    taking_part = list(range(0, 2 * count, 2))
    planned = plan_batches(taking_part, costs, 2)
    assert sorted(client for batch in planned for client in batch) == taking_part
    assert {len(batch) for batch in planned} == sizes
    if count == 10:
        assert planned == [[client] for client in taking_part[::-1]]  # the dearest first
    assert max(planned[0]) < 2 * 64  # far clients wait: about a window of updates is held


def test_processor_seconds_count_the_workers_too(tmp_path: Path, forked_workers: None) -> None:
    chosen = settings(engine="workers")
    world = make_world(chosen)
    server = Server("run", chosen, get_weights(world.net()))
    engine = Workers(world, Checkpoint(tmp_path / "a"), 2)
    try:
        told = [engine.processor_seconds()]
        for round in (1, 2):
            engine.run_round(server.orders(round))
            told.append(engine.processor_seconds())
    finally:
        engine.close()
    assert told[0] == 0 < told[1] < told[2]


def test_a_worker_that_dies_is_replaced_and_named(tmp_path: Path, forked_workers: None) -> None:
    chosen = settings(engine="workers")
    world = make_world(chosen)
    plain = InProcess(world, Checkpoint(tmp_path / "a"))
    engine = Workers(world, Checkpoint(tmp_path / "b"), 2)
    try:
        weights = get_weights(world.net())
        for round in (1, 2):
            orders = Server("run", chosen, weights).orders(round)
            os.kill(engine._workers[0].process.pid, signal.SIGKILL)
            mine, reference = engine.run_round(orders), plain.run_round(orders)
            assert digest(mine.mean[0]) == digest(reference.mean[0])
            assert [u.num_labeled for u in mine.updates] == [u.num_labeled for u in reference.updates]
            assert mine.journal == reference.journal
        assert len(engine.notes) >= 1
        assert "worker 0" in engine.notes[0]
        assert "signal 9" in engine.notes[0]
    finally:
        engine.close()


def test_an_idle_worker_that_dies_does_not_end_the_round(tmp_path: Path, forked_workers: None) -> None:
    world = make_world(settings())
    orders = Server("run", world.settings, get_weights(world.net())).orders(1)
    engine = Workers(world, Checkpoint(tmp_path / "a"), 2)
    try:
        idle = engine._workers[1].process.pid  # one order, so only the first worker gets a task
        engine._workers[0].give = dies_first(engine._workers[0].give, idle)
        result = engine.run_round({0: orders[0]})
    finally:
        engine.close()
    plain = InProcess(world, Checkpoint(tmp_path / "b")).run_round({0: orders[0]})
    assert [digest(u.weights) for u in result.updates] == [digest(u.weights) for u in plain.updates]
    assert engine.notes == [f"worker 1 (process {idle}) died by signal 9 while running nothing"]


def dies_first(give: Callable[..., None], pid: int) -> Callable[..., None]:
    def kill_and_give(task: object) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a turn is shorter than a death on a busy machine
        give(task)

    return kill_and_give


def test_a_client_that_kills_every_worker_ends_the_run_with_its_name(tmp_path: Path, forked_workers: None) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from chase.models.convnets import TinyCNN\n"
        "class Net(TinyCNN):\n"
        "    def embed(self, x):\n"
        "        if self.training:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().embed(x)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        world = make_world(settings(net="deadly:Net"))
        engine = Workers(world, Checkpoint(tmp_path / "c"), 1)
        try:
            orders = Server("run", world.settings, get_weights(world.net())).orders(1)
            with pytest.raises(WorkerFailed, match=r"3 workers died while running client \d"):
                engine.run_round({0: orders[0]})
        finally:
            engine.close()
    finally:
        sys.path.remove(str(tmp_path))


def test_errors_in_a_worker_reach_the_caller(tmp_path: Path, forked_workers: None) -> None:
    world = make_world(settings())
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    engine = Workers(world, Checkpoint(blocked / "checkpoint"), 1)
    try:
        orders = Server("run", world.settings, get_weights(world.net())).orders(1)
        with pytest.raises(WorkerFailed, match="client 0, round 1, saving"):
            engine.run_round({0: orders[0]})
    finally:
        engine.close()


def test_the_test_set_is_shared_out_without_changing_a_bit(tmp_path: Path, forked_workers: None) -> None:
    world = make_world(settings(net="mnist-cnn"))
    twin = World(**{**vars(world), "settings": settings()})
    weights = get_weights(twin.net())
    engine = Workers(twin, Checkpoint(tmp_path / "a"), 3)
    try:
        spread = engine.test_logits(weights)
    finally:
        engine.close()
    assert torch.equal(spread, InProcess(twin, Checkpoint(tmp_path / "b")).test_logits(weights))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc to find the worker processes")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_the_parent(tmp_path: Path, how: signal.Signals) -> None:
    code = "from chase.cli import main; main()"
    arguments = ["run", "digits", "--out", str(tmp_path / "run"), "--set", "engine=workers", "--set", "workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.1)
        workers = children(process.pid)
        assert len(workers) == 2
        process.send_signal(how)
        process.wait(timeout=30)
        deadline = time.monotonic() + 10
        while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in workers)
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert process.stdout is not None
            assert b"chase resume" in process.stdout.read()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_an_arena_holds_what_it_was_given() -> None:
    arrays = {"a": np.arange(7, dtype=np.int64), "b": np.ones((3, 2), dtype=np.uint8), "none": np.empty(0)}
    arena = Arena.holding(arrays)
    twin = Arena.attach(arena.descriptor, arena.layout)
    for name, array in arrays.items():
        assert (twin.arrays[name] == array).all()
        assert twin.arrays[name].dtype == array.dtype
    arena.arrays["a"][0] = 99
    assert twin.arrays["a"][0] == 99
    arena.close()


@pytest.mark.parametrize(
    ("changes", "count"),
    [({}, 4), ({"clients": 3}, 3), ({"workers": 2}, 2), ({"engine": "inprocess"}, 0), ({"workers": 1}, 0)],
)
def test_a_run_starts_a_worker_per_core_unless_it_is_told_otherwise(
    changes: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 4)
    assert engines.worker_count(settings(**changes)) == count


def test_on_one_core_a_run_starts_no_worker_unless_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 1)
    assert engines.worker_count(settings()) == 0
    assert engines.worker_count(settings(engine="workers")) == 1
