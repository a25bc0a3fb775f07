"""100 to 100,000 clients of 50 small samples, 1 % of them per round; and Flower's own simulation on the same turns.

    python -m benchmarks.population                    all sizes, each in a process of its own
    python -m benchmarks.population size 10000 workers one size
    python -m benchmarks.population flower 10000       Flower's simulation runtime (extra flwr[simulation])
    python -m benchmarks.population nodes 10000        two Ray nodes against ``workers`` (extra ray)
    python -m benchmarks.population known 10000        rounds of 100 clients of 10,000 and of 100,000

Seconds of a round are wall clock without evaluation, which does not depend on the clients; processor seconds are those
of all processes and say what a round costs on a machine that does other things as well. The fixed cost of a client is
the processor time of its turn, all of the round included, less that of its training steps alone, which are timed in
the same process. Memory is the proportional set size of all processes (what they share counts once).
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import generated
from benchmarks.known import compare_known
from benchmarks.nodes import compare
from chase.client.build import build_net
from chase.client.choose import training_plan
from chase.data.resident import DataSet
from chase.learning.training import TrainingTask, train
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.settings import Settings, load
from chase.simulation.world import count_coverage, split_among_clients

SIZES = (100, 1_000, 10_000, 100_000)
SAMPLES = 50
TINY = {
    "initial_labels": 0.2,
    "local_epochs": 2,
    "rounds": 6,
    "eval_every": 6,
    "share_of_clients": 0.01,
    "strategy": "random",
    "partition": "iid",
}


def settings_for(clients: int, engine: str, **changes: Any) -> Settings:
    """A small turn: 10 labelled samples of 8x8 pixels, two epochs."""
    return load("digits", {**TINY, "clients": clients, "engine": engine, **changes})


def memory_mb() -> float:
    """Proportional set size of this process and all below it."""
    me = psutil.Process()
    return sum(p.memory_full_info().pss for p in (me, *me.children(recursive=True))) / 2**20


def steps_ms(data: DataSet, settings: Settings, turns: int = 300) -> float:
    """Processor milliseconds of the training steps of one turn, and nothing else."""
    torch.set_num_threads(1)
    net = build_net(settings, data.train, data.num_classes)
    labeled = round(settings.initial_labels * SAMPLES)
    rows, none = torch.arange(labeled), torch.empty(0, dtype=torch.int64)
    task = TrainingTask(data.train, rows, torch.from_numpy(data.train_labels[:labeled]), none, None, False, 0, (0, 0))
    train(net, task, training_plan(settings))
    start = time.process_time()
    for _ in range(turns):
        train(net, task, training_plan(settings))
    return 1000 * (time.process_time() - start) / turns


def begin(data: DataSet, settings: Settings, out: Path) -> Experiment:
    """What ``Experiment.begin`` does after it has loaded the data."""
    parts = split_among_clients(settings, data)
    table = count_coverage(settings, data, parts)
    record = Record.create(out, settings)
    (out / "coverage.json").write_text(json.dumps(table.to_json()))
    return Experiment(record, data, [], table, parts)


def size(clients: int, engine: str, **changes: Any) -> dict[str, Any]:
    """One population: start, rounds, memory, bytes of the checkpoint, resume."""
    data = generated("digits", SAMPLES * clients, (1, 8, 8))
    settings = settings_for(clients, engine, **changes)
    seen: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="chase-bench-") as place:
        out = Path(place) / "run"
        start, used = time.perf_counter(), time.process_time()
        experiment = begin(data, settings, out)
        ready, ready_processor = time.perf_counter() - start, time.process_time() - used
        metrics = experiment.run(lambda metrics: seen.append((time.perf_counter() - start, memory_mb())))
        states = sum(p.stat().st_size for p in (out / "checkpoint").glob("*.states"))
        begun, used = time.perf_counter(), time.process_time()
        record = Record(out, settings.model_copy(update={"rounds": settings.rounds + 1}), experiment.record.run)
        resumed: list[tuple[float, float]] = []
        Experiment(record, data, []).run(
            lambda metrics: resumed.append((time.perf_counter() - begun, time.process_time() - used))
        )
    later = metrics[2:]
    seconds = [m["seconds"] - m["seconds_by_phase"]["evaluate"] for m in later]
    took = metrics[-1]["took_part"]
    processor = statistics.median(m["seconds_processor"] for m in later if m["test_accuracy"] is None)
    steps = steps_ms(data, settings)
    return {
        "clients": clients,
        "engine": engine,
        "took_part": took,
        "seconds_before_the_first_round": ready,
        "processor_seconds_before_the_first_round": ready_processor,
        "seconds_per_round": statistics.median(seconds),
        "processor_seconds_per_round": processor,
        "processor_ms_per_client": 1000 * processor / took,
        "processor_ms_of_its_steps": steps,
        "fixed_ms_per_client": 1000 * processor / took - steps,
        "turns_per_second": took / statistics.median(seconds),
        "memory_mb": max(mb for _, mb in seen),
        "data_mb": data.train.inputs.numel() / 2**20,
        "checkpoint_bytes_per_round": states / settings.rounds,
        "resume_seconds_with_a_round": resumed[0][0],
        "resume_processor_seconds_of_the_main_process": resumed[0][1],
    }


def flower(clients: int) -> dict[str, Any]:
    """Flower's simulation runtime on the same turns: the same network, samples and steps in a NumPyClient."""
    import logging

    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    from chase.client.build import build_net
    from chase.models.net import get_weights

    logging.disable(logging.CRITICAL)
    settings = settings_for(clients, "inprocess")
    data = generated("digits", SAMPLES * clients, (1, 8, 8))
    took = max(1, round(TINY["share_of_clients"] * clients))  # type: ignore[operator]
    stamps: list[float] = []
    first = list(get_weights(build_net(settings, data.train, data.num_classes)).values())
    small = generated("digits", SAMPLES, (1, 8, 8))

    class Plain(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            import torch
            from torch import nn

            from chase.client.build import build_net

            torch.set_num_threads(1)
            net = build_net(settings, small.train, small.num_classes)
            state = dict(zip(net.state_dict(), map(torch.from_numpy, parameters), strict=True))
            net.load_state_dict(state)
            step = torch.optim.SGD(net.parameters(), lr=settings.lr, momentum=settings.momentum)
            rows = torch.arange(10)
            inputs, labels = small.train.ready(rows), torch.from_numpy(small.train_labels[:10])
            for _ in range(settings.local_epochs):
                step.zero_grad()
                nn.functional.cross_entropy(net(inputs), labels).backward()
                step.step()
            return [v.numpy() for v in net.state_dict().values()], 10, {}

    class Timed(FedAvg):
        def aggregate_fit(self, *arguments: Any) -> Any:
            stamps.append(time.perf_counter())
            return super().aggregate_fit(*arguments)

    def components(context: Any) -> Any:
        strategy = Timed(
            fraction_fit=took / clients,
            min_fit_clients=1,
            fraction_evaluate=0.0,
            min_available_clients=1,
            initial_parameters=ndarrays_to_parameters(first),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=4))

    run_simulation(
        ServerApp(server_fn=components),
        ClientApp(client_fn=lambda context: Plain().to_client()),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    rounds = [b - a for a, b in itertools.pairwise(stamps)]
    seconds = statistics.median(rounds)
    return {"clients": clients, "took_part": took, "seconds_per_round": seconds, "turns_per_second": took / seconds}


MEDIUM = {"share_of_clients": 0.1, "local_epochs": 5, "batch_size": 32}
"""A turn of 20 steps: 1,000 clients of 500 samples, a tenth of them per round."""


def nodes(clients: int) -> dict[str, Any]:
    """Two Ray nodes of one core each against two workers: rounds of small clients, and of as many medium ones."""
    small = compare(settings_for(clients, "workers", workers=2), SAMPLES)
    medium = compare(settings_for(clients // 10, "workers", workers=2, **MEDIUM), 10 * SAMPLES, 23)
    return {**small, "medium": medium}


def known(clients: int) -> dict[str, Any]:
    """As many clients of ten times as many: what a round costs may depend on those who take part only."""
    shares = ((clients, 0.01), (10 * clients, 0.001))
    return compare_known([settings_for(n, "workers", workers=2, share_of_clients=s) for n, s in shares], SAMPLES)


BARS = (
    ("memory of all processes at 10,000 clients, MB", "under 2,048", lambda r: r["sizes"][10_000]["memory_mb"]),
    ("fixed processor ms per client at 10,000", "at most 1.5", lambda r: r["sizes"][10_000]["fixed_ms_per_client"]),
    (
        "seconds before the first round, 100,000 clients",
        "under 60",
        lambda r: r["sizes"][100_000]["seconds_before_the_first_round"],
    ),
    (
        "seconds to resume to the end of a round, 100,000",
        "under 10",
        lambda r: r["sizes"][100_000]["resume_seconds_with_a_round"],
    ),
    (
        "processor ms per client, ten times as many clients known",
        "about 1 time",
        lambda r: r["known"]["many_against_few"],
    ),
    ("turns per second against Flower's simulation", "at least 20", lambda r: r["times_flower"]),
    ("seconds per round on two Ray nodes against workers", "at most 1", lambda r: r["nodes"]["ray_against_workers"]),
)


def show(result: dict[str, Any]) -> None:
    """The bars as a table; sizes that were not measured are left out."""
    known = {**result, "sizes": {row["clients"]: row for row in result["population"]}}
    table = Table(title="populations, measured in one run", title_justify="left")
    for column in ("what", "bar", "measured"):
        table.add_column(column)
    for what, bar, read in BARS:
        with suppress(KeyError):
            table.add_row(what, bar, f"{read(known):.2f}")
    Console(highlight=False).print(table)


def apart(*arguments: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.population", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(quick: bool) -> dict[str, Any]:
    """All sizes with workers; Flower's simulation beside the one with 10,000 clients (1,000 if quick)."""
    compared = 1_000 if quick else 10_000
    sizes = [apart("size", str(n), "workers") for n in (SIZES[:2] if quick else SIZES)]
    theirs, both = apart("flower", str(compared)), apart("nodes", str(compared))
    exists = apart("known", str(compared))
    ours = next(found for found in sizes if found["clients"] == compared)
    return {
        "population": sizes,
        "flower": theirs,
        "nodes": both,
        "known": exists,
        "times_flower": ours["turns_per_second"] / theirs["turns_per_second"],
    }


if __name__ == "__main__":
    if len(sys.argv) == 1:
        result = run(False)
        print(json.dumps(result, indent=2))
        show(result)
    elif sys.argv[1] in ("flower", "nodes", "known"):
        print(json.dumps({"flower": flower, "nodes": nodes, "known": known}[sys.argv[1]](int(sys.argv[2]))))
    else:
        print(json.dumps(size(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "workers")))
