"""How long jobs will take: steps and inferences counted from the settings, their seconds measured on the spot.

An estimate, not a promise: it knows a method by what it trains, tracks and scores, not by its code.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import torch
from torch import nn

from chase.acquisition.pool_view import Which
from chase.annotation.behaviour import per_cycle
from chase.client.choose import DISTILLED, TEMPERATURE
from chase.closed_form.model import build_model
from chase.core.caller import one_thread
from chase.data.resident import DataSet
from chase.learning.distillation import Distillation
from chase.learning.inference import logits
from chase.learning.training import TrainingOptions, TrainingTask, train
from chase.run.experiment import net_spec
from chase.server.server import tracked
from chase.settings import DataSettings, Settings
from chase.simulation.world import count_coverage, load_data, shortages, split_among_clients, with_all_owners

SAMPLE_LABELS, SAMPLE_WATCHED, SAMPLE_EPOCHS = 100, 400, 2
PASSES, ENOUGH = 6, 2.0
"""How often the speed of a network is measured, and seconds after which no further pass begins."""
DECISIVE = {
    *DataSettings.model_fields,
    *("clients", "partition", "min_owned", "owners", "net", "dropout", "batch_size", "kernels"),
}
"""Settings that the speed of a network on a data set depends on."""
ALIGNED_STEP = 2.2
"""A step with alignment has a second batch, and its loss."""
TRAINED: dict[str, Which] = {"logo": "alone", "fairfal": "alone", "ifal": "distilled"}
"""Methods that train a model for every request: on the client's labels alone, or distilled from the global model."""
ALONE_SHARE = 1 / 3
"""Of the epochs that a model on a client's labels alone may have, those until it has learnt them; as on digits."""


FEATURES, SOLVING = 0.002, 0.5
"""Seconds for the features of a sample, once, and for a round of the closed-form learner."""


@dataclass(frozen=True)
class Speed:
    """Seconds of the parts that a round is made of."""

    step: float
    inference: float
    distilled_step: float = 0.0
    """A step of a model that learns from another; measured for methods that need it."""


@dataclass(frozen=True)
class Sizes:
    """What a round's work depends on in the data."""

    train: int
    """Samples of all clients together."""
    test: int
    clients: int = 0
    """How many clients there are, where the data decides it (``owners = all``); else 0."""


def measure(settings: Settings, data: DataSet) -> Speed:
    """Time some steps of training and some inferences of this network, in this process, with one thread."""
    with one_thread():
        return _measure(settings, data)


def measure_distilled(settings: Settings, data: DataSet) -> float:
    """Seconds of a step in which the network also learns from another one's outputs."""
    with one_thread():
        net, job, plan = _sample_task(settings, data)
        teacher = logits(net, data.train, job.labeled_rows)
        task = replace(job, track=False, watched_rows=job.watched_rows[:0])
        loss = Distillation(teacher, DISTILLED, TEMPERATURE)
        return _seconds(lambda: train(net, task, plan, loss).stopwatch.seconds)["train"] / _steps(job, plan)


def _measure(settings: Settings, data: DataSet) -> Speed:
    net, job, plan = _sample_task(settings, data)
    seconds = _seconds(lambda: train(net, job, plan).stopwatch.seconds)
    return Speed(seconds["train"] / _steps(job, plan), seconds["track"] / (SAMPLE_EPOCHS * job.watched_rows.numel()))


def _sample_task(settings: Settings, data: DataSet) -> tuple[nn.Module, TrainingTask, TrainingOptions]:
    net = build_model(net_spec(settings, data), 0)
    net.kernels = settings.kernels  # type: ignore[assignment]
    few = min(SAMPLE_LABELS, len(data.train))
    watched = torch.arange(min(SAMPLE_WATCHED, len(data.train)))
    labels = torch.from_numpy(data.train_labels[:few]).clamp(min=0)
    job = TrainingTask(data.train, torch.arange(few), labels, watched, None, True, 0, ("estimate", 0))
    plan = TrainingOptions(
        SAMPLE_EPOCHS, settings.batch_size, settings.lr, settings.momentum, settings.weight_decay, 0.0
    )
    return net, job, plan


def _steps(job: TrainingTask, plan: TrainingOptions) -> int:
    return plan.epochs * -(-job.labels.numel() // plan.batch_size)


def _seconds(once: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    """Seconds of the parts of a pass that is done several times."""
    passes: list[Mapping[str, float]] = []
    start = time.perf_counter()
    while len(passes) < PASSES and time.perf_counter() - start < ENOUGH:
        passes.append(once())
    # The first pass also warms up, and others may be held up by what else the machine does: the median of the rest.
    return {part: median(each[part] for each in passes[1:] or passes) for part in passes[0]}


@lru_cache(maxsize=64)
def measured(key: str) -> tuple[Speed, Sizes, float]:
    """Speed, sizes and seconds to load, for the data and network of these settings (as JSON, to be remembered by)."""
    settings = Settings.model_validate_json(key)
    data = load_data(settings)
    start = time.perf_counter()
    load_data(settings)  # a job finds it decoded, as this second time
    loading = time.perf_counter() - start
    return measure(settings, data), sizes_of(settings, data), loading


@lru_cache(maxsize=64)
def measured_distilled(key: str) -> float:
    """Seconds of a distilled step for the data and network of these settings."""
    settings = Settings.model_validate_json(key)
    return measure_distilled(settings, load_data(settings))


def sizes_of(settings: Settings, data: DataSet) -> Sizes:
    """What the work of these settings depends on in this data."""
    named = with_all_owners(settings, data)
    return Sizes(held(named, data), len(data.test), named.clients if settings.owners == "all" else 0)


def held(settings: Settings, data: DataSet) -> int:
    """Samples that the clients hold together: where some owners of the data take part, only theirs."""
    if settings.partition != "natural":
        return len(data.train)
    return int(split_among_clients(settings, data).sizes.sum())


def shortages_of(settings: Settings) -> list[str]:
    """What the data cannot give over the rounds of a job, told before it runs."""
    data = load_data(settings)
    settings = with_all_owners(settings, data)
    return shortages(settings, count_coverage(settings, data, split_among_clients(settings, data)))


@lru_cache(maxsize=1)
def import_seconds() -> float:
    """Seconds until a job's process has imported what it needs."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import chase.studies.job"], check=True)
    return time.perf_counter() - start


def seconds_to_start(settings: Settings) -> float:
    """Seconds from the start of a job's process to its first round."""
    return import_seconds() + measured(_key(settings))[2]


def seconds_per_round(settings: Settings) -> float:
    """The mean over all rounds of a job in one process."""
    speed, sizes, _ = measured(_key(settings))
    if TRAINED.get(settings.strategy) == "distilled" and settings.learner == "network" and settings.budget:
        speed = replace(speed, distilled_step=measured_distilled(_key(settings)))
    return work(settings, sizes, speed)


def _key(settings: Settings) -> str:
    kernels = "auto" if settings.kernels == "compiled" else settings.kernels  # it may be on other machines only
    usual = {"seed": 0, "rounds": 1, "strategy": "random", "model": "local", "kernels": kernels}
    plain = settings.model_copy(update=usual)
    return Settings(**plain.model_dump(include=DECISIVE)).model_dump_json()


def asks_a_turn(settings: Settings, unlabeled: float) -> tuple[float, float]:
    """(labels per turn, share of the turns that ask), means over clients of that many unlabelled samples at first."""
    if settings.budget == 0:
        return 0.0, 0.0
    if settings.form == "cycles":
        requests = (settings.rounds - 1) // settings.cycle_rounds
        budget = per_cycle(int(unlabeled), settings.cycle_rounds, settings.cycle_budget).budget
        return budget * requests / settings.rounds, requests / settings.rounds
    if settings.behaviour == "ReCo":
        return 0.2 * 5 / 5 + 0.6 * 7 / 3 + 0.2 * 10, 0.2 / 5 + 0.6 / 3 + 0.2
    period = settings.period if settings.behaviour == "free" else 1
    return settings.budget / period, 1 / period


def work(settings: Settings, sizes: Sizes, speed: Speed) -> float:
    """Seconds of a mean round."""
    if settings.learner == "closed-form":
        tested = min(sizes.test, settings.test_limit or sizes.test)
        return SOLVING + FEATURES * (settings.data_share * sizes.train + tested) / settings.rounds
    clients = sizes.clients or settings.clients
    share = settings.take_part * min(settings.share_of_clients, 1 - settings.away)
    pool = settings.data_share * sizes.train / clients
    rate, asking = asks_a_turn(settings, (1 - settings.initial_labels) * pool)
    labeled = min(pool, settings.initial_labels * pool + rate * settings.rounds / 2)
    free = pool - labeled
    steps = settings.local_epochs * labeled / settings.batch_size * (ALIGNED_STEP if settings.aligns else 1.0)
    watched = 0.0
    if settings.tracks_ev:
        later = min(free, settings.subset_size) if settings.subset else free * (0.5 if settings.freeze else 1.0)
        watched = (later + (free - later) / settings.rounds) * share_tracked(settings)
    scored = 0.0
    trains = settings.strategy in TRAINED
    if settings.strategy != "random" and (trains or not settings.needs <= {"label_changes"}):
        scored = free * asking * (settings.mc_passes if settings.strategy == "bald" else 2 + trains)
    inferences = settings.local_epochs * watched + (2 * watched if settings.aligns else 0.0) + scored
    tests = (
        min(sizes.test, settings.test_limit or sizes.test)
        / settings.eval_every
        * (clients if settings.form == "isolated" else 1)
    )
    turn = steps * speed.step + inferences * speed.inference + asking * trained_for_a_request(settings, labeled, speed)
    return clients * share * turn + tests * speed.inference


def share_tracked(settings: Settings) -> float:
    """The share of the rounds in which EV is tracked: in cycles the last of each, unless something needs it in all."""
    return sum(tracked(settings, round) for round in range(1, settings.rounds + 1)) / settings.rounds


def trained_for_a_request(settings: Settings, labeled: float, speed: Speed) -> float:
    """Seconds of the model that a method trains on a client's labels before it chooses."""
    which, batches = TRAINED.get(settings.strategy), math.ceil(labeled / settings.batch_size)
    if which == "alone":  # after every epoch it looks whether the labels are learnt
        return ALONE_SHARE * settings.alone_epochs * (batches * speed.step + labeled * speed.inference)
    if which == "distilled":
        return settings.local_epochs * batches * speed.distilled_step + labeled * speed.inference
    return 0.0
