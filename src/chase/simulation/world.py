"""What a simulation is made of: the data, who gets which samples and initial labels, and what that covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chase.annotation.behaviour import Behaviour
from chase.client.build import Truth, behaviour_of, build_net, usual_behaviours
from chase.client.state import ClientState
from chase.core import plugins
from chase.core.errors import DataError, SettingsError
from chase.core.messages import ClientId
from chase.core.pools import SampleIds
from chase.core.randomness import rng
from chase.core.text import counted
from chase.data import partition, sources
from chase.data.coverage import Coverage, coverage
from chase.data.partition import Parts
from chase.data.resident import DataSet, Samples
from chase.settings import ALL_CLIENTS, Settings

PARTITIONS: dict[str, Callable[[Settings, DataSet], list[SampleIds]]] = {
    "classes": lambda s, d: partition.by_classes(d.train_labels, s.clients, s.classes_per_client, s.seed),
    "dirichlet": lambda s, d: partition.dirichlet(d.train_labels, s.clients, s.alpha, s.seed),
    "iid": lambda s, d: partition.iid(d.train_labels, s.clients, s.seed),
    "natural": lambda s, d: partition.natural(groups_of(d), owners_of(s, d)),
    "shards-reference": lambda s, d: partition.shards_reference(
        d.train_labels, s.clients, s.classes_per_client, s.seed
    ),
}


def groups_of(data: DataSet) -> SampleIds:
    """The natural owner of each training row, where the data has one."""
    if data.groups is None:
        raise DataError(
            f"partition = natural, but '{data.name}' has no owners: use classes, dirichlet or iid, or name the "
            "site_column of your own table"
        )
    return data.groups


def owners_of(settings: Settings, data: DataSet) -> SampleIds:
    """The owners that become clients."""
    groups = groups_of(data)
    if settings.owners == "all":
        return np.unique(groups).astype(np.int64)
    return partition.natural_owners(data.group_sizes, settings.clients, settings.min_owned, settings.seed)


def with_all_owners(settings: Settings, data: DataSet | None = None) -> Settings:
    """With as many clients as the data has owners, where all of them take part (``owners = all``)."""
    if settings.owners != "all":
        return settings
    owners = owners_of(settings, load_data(settings) if data is None else data)
    most = next(m.le for m in Settings.model_fields["clients"].metadata if hasattr(m, "le"))
    if owners.size > most:
        raise DataError(f"owners = all, but the data has {owners.size} owners and at most {most} can be clients")
    return settings.model_copy(update={"clients": int(owners.size)})


def own_partition(settings: Settings, data: DataSet) -> list[SampleIds]:
    """The parts that a partition of one's own makes: row numbers of the training part, an array per client."""
    name = settings.partition
    made = [np.asarray(part) for part in plugins.find("partition", name, PARTITIONS)(settings, data)]
    if len(made) != settings.clients:
        raise DataError(f"partition '{name}' made {len(made)} parts for {settings.clients} clients")
    for client, part in enumerate(made):
        whole = part.ndim == 1 and (part.size == 0 or np.issubdtype(part.dtype, np.integer))
        if not whole or (part.size and not 0 <= part.min() <= part.max() < len(data.train)):
            raise DataError(
                f"partition '{name}' gave client {client} something else than row numbers from 0 to "
                f"{len(data.train) - 1}"
            )
    return [np.unique(part).astype(np.int64) for part in made]


def rows_of_clients(settings: Settings, data: DataSet) -> list[SampleIds]:
    """The rows that each client could ask for, those to measure with included."""
    name = settings.partition
    found = PARTITIONS[name](settings, data) if name in PARTITIONS else own_partition(settings, data)
    if settings.data_share < 1.0:
        found = [partition.some_rows(part, settings.data_share, settings.seed, c) for c, part in enumerate(found)]
    known = data.train_labels >= 0
    if not known.all() and (settings.annotator == "page" or settings.unlabeled == "leave-out"):
        found = [part[known[part]] if is_simulated(settings, c) else part for c, part in enumerate(found)]
    return found


def split_among_clients(settings: Settings, data: DataSet) -> Parts:
    """The rows of each client; one without any is refused."""
    found = rows_of_clients(settings, data)
    kept_apart = answer_rows(settings, data, found)
    if kept_apart.size:
        found = [part[~np.isin(part, kept_apart)] for part in found]
    parts = Parts.of(found)
    empty = np.flatnonzero(parts.sizes == 0)
    if empty.size:
        raise DataError(
            f"{empty.size} of {settings.clients} clients would get no sample (client {empty[0]} first): "
            "use fewer clients or more data"
        )
    return parts


def check_labels(settings: Settings, data: DataSet) -> None:
    """Refuse what nothing can be learnt from, and to simulate annotators for samples that have no label."""
    if data.num_classes < 2:
        raise DataError(
            f"'{data.name}' has one class only ('{data.classes[0]}'), so nothing can be learnt from it: check "
            "label_column, or name all `classes`"
        )
    if settings.second_opinions and settings.annotator == "oracle":
        raise SettingsError(
            f"second_opinions = {settings.second_opinions} needs several people, but annotator = 'oracle' is one: use "
            "annotator=team (simulated people who err) or page"
        )
    unknown = int((data.train_labels < 0).sum())
    if unknown and settings.annotator in ("oracle", "team") and settings.unlabeled == "refuse":
        total = data.train_labels.size
        raise DataError(
            f"{unknown} of {total} training samples ({unknown / total:.0%}) of '{data.name}' have no label, so a "
            "simulated annotator cannot answer for them: have a person label with --annotator page, or simulate on the "
            f"{total - unknown} labelled ones with --set unlabeled=leave-out"
        )


def is_simulated(settings: Settings, client: ClientId) -> bool:
    """Whether a client's annotator is simulated."""
    return settings.annotator != "page" or settings.page_client not in (client, ALL_CLIENTS)


def left_out(settings: Settings, data: DataSet, parts: Sequence[SampleIds]) -> list[str]:
    """How many samples no client holds because nobody could label them."""
    unknown, apart = int((data.train_labels < 0).sum()), settings.test_answers
    held = int(sum((data.train_labels[part] < 0).sum() for part in parts))
    said = [f"{apart} samples, drawn at random, are asked first and only measure the model"] if apart else []
    if unknown == held + apart:
        return said
    gone = unknown - held - apart
    why = (
        "they belong to nobody who takes part" if settings.people_only else "a simulated annotator could not label them"
    )
    return [*said, f"{gone} samples without a label are left out: {why}"]


def load_data(settings: Settings) -> DataSet:
    """The data set, tested on what the settings say: the owners that take part, and at most ``test_limit`` samples."""
    data = sources.load(settings.data, settings.data_dir, settings.data_options)
    if settings.augment and data.train.kind != "image":
        raise SettingsError(f"augment = true, but '{data.name}' has texts; crops and flips are for images")
    check_tested(settings, data)
    if len(data.test) == 0:
        return tested_by_answers(settings, data) if settings.test_answers else data
    rows = np.arange(len(data.test))
    if settings.partition == "natural" and data.test_groups is not None:
        rows = rows[np.isin(data.test_groups, owners_of(settings, data))]
    if settings.test_limit and rows.size > settings.test_limit:
        rows = np.sort(rng(settings.seed, "test-limit").choice(rows, size=settings.test_limit, replace=False))
    return data if rows.size == len(data.test) else data.tested_on(rows)


def check_tested(settings: Settings, data: DataSet) -> None:
    """Whether there is a test set where one is needed: people may label without one, nobody can be simulated so."""
    if len(data.test):
        if settings.test_answers:
            raise SettingsError(
                f"test_answers = {settings.test_answers}, but '{data.name}' has a test part of {len(data.test)} "
                "samples to measure on: leave test_answers out"
            )
        return
    labeled = int((data.train_labels >= 0).sum())
    if settings.annotator in ("oracle", "team"):
        raise DataError(
            f"{data.name} has no labelled sample left to test on ({labeled} of {data.train_labels.size} have a label): "
            "have people label with --annotator page, label at least 2 samples of each class in the file, or set "
            "test_data to a file or folder of labelled samples"
        )
    measures = {
        f"target = {settings.target}": settings.target > 0,
        f"main_metric = {settings.main_metric}": settings.main_metric != "accuracy",
        f"test_limit = {settings.test_limit}": settings.test_limit > 0,
        f"form = {settings.form}": settings.form == "isolated",
    }
    wrong = [said for said, given in measures.items() if given and not settings.test_answers]
    if wrong:
        raise SettingsError(
            f"{wrong[0]} needs labelled samples to measure on, and '{data.name}' has none to spare: give test_data, "
            "have people label some for it (--set test_answers=50), or leave it out"
        )


def answer_rows(settings: Settings, data: DataSet, parts: Sequence[SampleIds] | None = None) -> SampleIds:
    """The training rows that people label to measure with (``test_answers``): drawn before anything is learnt.

    From those of the clients (``parts``, where they are known already): nobody is there to answer for the others.
    """
    if not settings.test_answers:
        return np.empty(0, dtype=np.int64)
    held = np.unique(np.concatenate(rows_of_clients(settings, data) if parts is None else parts))
    free = held[data.train_labels[held] < 0]
    if settings.test_answers > free.size // 2:
        raise SettingsError(
            f"test_answers = {settings.test_answers}, but the clients of '{data.name}' have only {free.size} samples "
            f"without a label: at most half of them, {free.size // 2}, can be kept to measure with"
        )
    draw = rng(settings.seed, "test-answers").choice(free, size=settings.test_answers, replace=False)
    return np.sort(draw).astype(np.int64)


def tested_by_answers(settings: Settings, data: DataSet) -> DataSet:
    """With the drawn rows as the test part; their labels are unknown until people have given them."""
    rows = answer_rows(settings, data)
    inputs = data.train.inputs[torch.from_numpy(rows)]
    return replace(data, test=replace(data.train, inputs=inputs), test_labels=np.full(rows.size, -1, dtype=np.int64))


def initial_rows(settings: Settings, client: ClientId, part: SampleIds, truth: NDArray[np.int64]) -> SampleIds:
    """The rows of a client that are labelled at the start."""
    draw = rng(settings.seed, "initial-labels", client)
    return partition.initial_labels(part, truth, settings.initial_labels, settings.initial_per_class, draw)


def count_coverage(settings: Settings, data: DataSet, parts: Parts) -> Coverage:
    """Who holds what, and has which labels, before the first round."""
    labeled = Parts.of([initial_rows(settings, c, part, data.train_labels) for c, part in enumerate(parts)])
    return coverage(data.train_labels, data.classes, parts, labeled, owner_names(settings, data))


def owner_names(settings: Settings, data: DataSet) -> list[str]:
    """The name of each client, where clients are owners that the data names."""
    if settings.partition != "natural":
        return []
    return [data.group_names[owner] for owner in owners_of(settings, data)]


def shortages(settings: Settings, table: Coverage) -> list[str]:
    """What the data cannot give: clients that run out of samples before the last round, cycles without a request."""
    if settings.budget == 0:
        return []
    if settings.form == "cycles":
        if settings.rounds > settings.cycle_rounds:
            return cycle_shortages(settings, table)
        done = "1 round is" if settings.rounds == 1 else f"{settings.rounds} rounds are"
        return [
            f"{done} not more than one cycle of {settings.cycle_rounds}, so no labels "
            f"are requested: what a first request brings takes two cycles, {2 * settings.cycle_rounds} rounds"
        ]
    kinds, turns = usual_behaviours(settings), expected_turns(settings)
    free = table.samples - table.labeled.sum(axis=1)
    said = without_samples(settings, table)
    ends = [last_request(kind, int(count)) for kind, count in zip(kinds, free, strict=True)]
    short = [client for client, end in enumerate(ends) if free[client] and end < turns]
    if not short:
        return said
    first = min(short, key=lambda client: ends[client])
    every = turns == settings.rounds
    how = "every round" if every else f"{turns:.0f} rounds each, as is to be expected"
    when = f"by round {ends[first]}" if every else f"in {ends[first] - 1} rounds"
    return [
        *said,
        f"{len(short)} of {settings.clients} clients run out of samples to ask for before round {settings.rounds}, if "
        f"they take part in {how}: client {table.clients[first]} first, which has "
        f"{counted(int(free[first]), 'unlabelled sample')} and has asked for all of them {when}",
    ]


def cycle_shortages(settings: Settings, table: Coverage) -> list[str]:
    """The same in cycles: a client asks at the start of each cycle but the first, if it takes part in that round."""
    free = table.samples - table.labeled.sum(axis=1)
    turns = expected_turns(settings)
    requests = (settings.rounds - 1) // settings.cycle_rounds * turns / settings.rounds
    kinds = [behaviour_of(settings, kind, int(n)) for kind, n in zip(usual_behaviours(settings), free, strict=True)]
    needed = [-(-int(count) // kind.budget) for kind, count in zip(kinds, free, strict=True)]
    short = [client for client, count in enumerate(needed) if free[client] and count < requests]
    said = without_samples(settings, table)
    if not short:
        return said
    first = min(short, key=lambda client: needed[client])
    how = "" if turns == settings.rounds else " each, as is to be expected"
    return [
        *said,
        f"{len(short)} of {settings.clients} clients run out of samples to ask for before round {settings.rounds}, in "
        f"{requests:.0f} requests{how}: client {table.clients[first]} first, which has "
        f"{counted(int(free[first]), 'unlabelled sample')} and has asked for all of them by request {needed[first]}",
    ]


def without_samples(settings: Settings, table: Coverage) -> list[str]:
    """Clients that have nothing to ask for from the beginning."""
    none = np.flatnonzero(table.samples == table.labeled.sum(axis=1))
    if not none.size:
        return []
    return [
        f"{none.size} of {settings.clients} clients have no unlabelled sample, so they never ask: client "
        f"{table.clients[none[0]]} first"
    ]


def expected_turns(settings: Settings) -> float:
    """The rounds in which a client takes part on average."""
    there = 1.0 - settings.away
    share = settings.share_of_clients if settings.share_of_clients < 1.0 else there
    return settings.rounds * min(share, there) * settings.take_part


def last_request(kind: Behaviour, free: int) -> int:
    """The round in which a client that takes part in every one asks for the last of its ``free`` samples."""
    requests = -(-free // kind.budget)
    return 2 + (requests - 1) * kind.period


@dataclass(frozen=True)
class World:
    """What a simulation is made of. The truth is for the oracles alone."""

    settings: Settings
    samples: Samples
    truth: NDArray[np.int64]
    num_classes: int
    parts: Parts
    test: Samples

    @classmethod
    def of(cls, settings: Settings, data: DataSet, parts: Parts | None = None) -> World:
        """The world of these settings; the data is divided here unless that was done before."""
        divided = split_among_clients(settings, data) if parts is None else parts
        return cls(settings, data.train, data.train_labels, data.num_classes, divided, data.test)

    def behaviour(self, client: ClientId, usual: Behaviour) -> Behaviour:
        """How a client labels: as usual, or by the cycle."""
        in_cycles = self.settings.form == "cycles"
        return behaviour_of(self.settings, usual, self.start(client).pools.unlabeled.size if in_cycles else 0)

    def truth_of(self, client: ClientId) -> Truth:
        """What the simulated annotator of a client knows."""
        part = self.parts[client]
        return Truth(part, self.truth[part])

    def start(self, client: ClientId) -> ClientState:
        """The client before its first turn."""
        part = self.parts[client]
        labeled = initial_rows(self.settings, client, part, self.truth)
        return ClientState.start(part, labeled, self.truth[labeled])

    def net(self) -> nn.Module:
        """The network with its initial weights."""
        return build_net(self.settings, self.samples, self.num_classes)
