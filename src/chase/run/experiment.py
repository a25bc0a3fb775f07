"""A simulated run: settings in, run directory out. The loop itself is ``chase.run.loop``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chase.client import spec
from chase.client.build import kernels_of
from chase.closed_form.model import ClosedFormNet
from chase.core.caller import one_thread
from chase.core.errors import CheckpointError, RunDirectoryError, SettingsError
from chase.core.files import write_atomically
from chase.data.coverage import Coverage, warnings
from chase.data.oddities import oddities
from chase.data.partition import Parts
from chase.data.resident import DataSet
from chase.home.home import Home
from chase.learning.fused import fused_since
from chase.learning.native.choice import OWN_FORMS, Kernels, Wanted, chosen
from chase.learning.native.kernel import NoKernel
from chase.models.card import ModelCard
from chase.models.catalog import NETS, NetSpec, build
from chase.run import data_check
from chase.run.checkpoint import Checkpoint
from chase.run.engine import Engine
from chase.run.estimate import NO_ESTIMATE, LeaveOneOut
from chase.run.loggers import Loggers, need_loggers
from chase.run.loop import Restored, restore, run_rounds
from chase.run.metrics import Metrics
from chase.run.record import Record, kernels_before, write_notes
from chase.run.scoring import Evaluation, TestSet
from chase.server.closed_form import ClosedFormServer
from chase.server.server import new_start
from chase.settings import Settings
from chase.simulation.engines import check_engine, make_engine
from chase.simulation.page_client import answers_to, open_home
from chase.simulation.rehearsal import rehearse
from chase.simulation.world import (
    World,
    answer_rows,
    check_labels,
    count_coverage,
    left_out,
    load_data,
    owner_names,
    shortages,
    split_among_clients,
    with_all_owners,
)


def net_spec(settings: Settings, data: DataSet) -> NetSpec:
    """How to build the network for the data."""
    return spec.net_spec(settings, data.train, data.num_classes)


def check_same_data(record: Record, data: DataSet, parts: Parts) -> None:
    """Refuse to continue with data that is divided otherwise than when the run began."""
    before = record.path / "coverage.json"
    if not before.is_file():
        return
    then = json.loads(before.read_text(encoding="utf-8"))
    if "partition" in then:
        same = then["partition"] == parts.digest(data.train_labels)
    else:  # begun before coverage.json had a fingerprint
        now = count_coverage(record.settings, data, parts).to_json()
        same = all(then.get(key) == now[key] for key in ("classes", "clients", "held", "labeled", "unknown"))
    if not same:
        raise RunDirectoryError(
            f"the data '{data.name}' is not what it was when {record.path} began: restore it, or start a new run"
        )


def check_keeps(settings: Settings, data: DataSet) -> None:
    """Refuse to keep a best model where none can be found; that it is kept by default does not matter."""
    if "keep_best" in settings.model_fields_set and settings.keep_best and not (len(data.test)):
        raise SettingsError(
            f"keep_best = true, but '{data.name}' has no labelled samples to measure on, so no round is the best: give "
            "test_data, have people label some for it (--set test_answers=50), or leave it out"
        )


def check_rounds(record: Record, wanted: Any) -> None:
    """Refuse to lose finished rounds: to a checkpoint that is gone, or to fewer ``rounds`` than are done."""
    manifest, _ = Checkpoint(record.path / "checkpoint").latest()
    if manifest is None and len(record.metrics) > 1:  # a kill in the first round leaves one line at most
        raise CheckpointError(
            f"{record.path}/checkpoint is missing, but {len(record.metrics)} rounds were done: "
            "restore it, or start a new run"
        )
    if manifest is not None and isinstance(wanted, int) and wanted < manifest.round:
        raise RunDirectoryError(
            f"rounds = {wanted}, but {record.path} has {manifest.round} rounds done: set that many or more"
        )


def with_kernels(settings: Settings, kernels: Wanted) -> Settings:
    """The settings with what computes the small networks."""
    return settings.model_copy(update={"kernels": kernels})


def kernels_for(settings: Settings, data: DataSet, kernels: Kernels, own_forms: int) -> Kernels:
    """What computes a run: autograd where its network has hand-written steps since a later version of the forms."""
    if own_forms >= OWN_FORMS or kernels == "plain" or settings.learner != "network" or settings.net in NETS:
        return kernels
    net = build(net_spec(settings, data), settings.seed)
    return "plain" if fused_since(net) > own_forms else kernels


def check_kernels(record: Record) -> None:
    """Refuse to continue a run where what computed it so far is not there."""
    try:
        chosen(record.kernels or "auto")
    except NoKernel as error:
        raise RunDirectoryError(
            f"{record.path} was begun with the compiled kernel, which {error}; or start a new run with "
            "--set kernels=fused: the two round differently"
        ) from None


@dataclass
class Experiment:
    """One simulated run that can be stopped at any moment and resumed."""

    record: Record
    data: DataSet
    notes: list[str]
    """What the user should know: problems of the data, a checkpoint that had to be skipped."""
    coverage: Coverage | None = None
    """Who holds what; counted when a run begins."""
    parts: Parts = field(default_factory=lambda: Parts.of([]))
    """The rows of each client, divided once."""

    def __post_init__(self) -> None:
        self.parts = self.parts or split_among_clients(self.record.settings, self.data)

    @classmethod
    def begin(
        cls, settings: Settings, out: Path, kernels: Kernels | None = None, own_forms: int = OWN_FORMS
    ) -> Experiment:
        """A new run in a new directory; nothing is written before settings and data are known to fit.

        ``kernels``: what the runs that it is compared with are computed by; else what the settings say. ``own_forms``:
        which of the forms of own networks counts for them.
        """
        need_loggers(settings)
        check_engine(settings)
        kernels = kernels_of(settings if kernels is None else with_kernels(settings, kernels))
        kernels = kernels_before(settings, kernels)
        data = load_data(settings)
        settings = with_all_owners(settings, data)
        check_labels(settings, data)
        check_keeps(settings, data)
        parts = split_among_clients(settings, data)
        table = count_coverage(settings, data, parts)
        start = new_start(net_spec(settings, data), settings)
        computing = kernels_for(settings, data, kernels, own_forms)
        rehearse(World.of(with_kernels(settings, computing), data, parts), start)
        card = ModelCard.of(net_spec(settings, data), data)
        notes = [
            *data.problems,
            *(oddities(data, settings.annotator == "page") if data.train_names is not None else ()),
            *left_out(settings, data, parts),
            *warnings(table, settings.batch_size),
            *shortages(settings, table),
        ]

        def account(path: Path) -> None:
            data_check.keep(path, settings, data)
            write_atomically(path / "coverage.json", json.dumps(table.to_json()).encode())
            write_notes(path, notes)

        record = Record.create(out, settings, card.to_json(), kernels=kernels, own_forms=own_forms, account=account)
        record.kernels = computing
        record.names = data.train_names
        return cls(record, data, notes, table, parts)

    @classmethod
    def resume(cls, path: Path, changes: dict[str, Any] | None = None) -> Experiment:
        """Go on with the run in a directory; a refusal changes nothing there."""
        record = Record.open(path)
        record.expect("simulation")
        check_rounds(record, (changes or {}).get("rounds"))
        check_kernels(record)
        settings = record.changed(changes or {})
        located = data_check.locate(path, settings, changes or ())
        data = load_data(located)
        data_check.check(path, data)
        parts = split_among_clients(settings, data)
        check_same_data(record, data, parts)
        record.kernels = kernels_for(settings, data, record.kernels or chosen("auto"), record.own_forms)
        before: list[str] = []
        notes: list[str] = []
        if settings.rounds != record.settings.rounds:  # what the data cannot give depends on them
            table = count_coverage(settings, data, parts)
            before, notes = (shortages(each, table) for each in (record.settings, settings))
        if settings != record.settings:
            record.keep(settings)
            record.add_notes(notes, [note for note in before if note not in notes])
        if set(data_check.PATHS) & set(changes or ()):
            data_check.here(path, located)
        record.names = data.train_names
        return cls(record, data, notes, None, parts)

    @property
    def saved_rounds(self) -> int:
        """How many rounds a resume would find done."""
        manifest, _ = Checkpoint(self.record.path / "checkpoint").latest()
        return 0 if manifest is None else manifest.round

    def world(self) -> World:
        """What the engine is made of."""
        settings = self.record.settings
        return World.of(with_kernels(settings, self.record.kernels or settings.kernels), self.data, self.parts)

    def open_home(self) -> Home:
        """The home of the client that a person labels, made when it is first needed."""
        return open_home(self.record.path, self.world(), self.data, self.record.settings.page_client)

    def run(
        self, on_round: Callable[[Metrics], None] = lambda metrics: None, ends: Sequence[int] = ()
    ) -> list[Metrics]:
        """All rounds that are left; returns the metrics of every round.

        ``ends``: rounds whose confusion matrix is kept as that of the last one is.
        """
        with self.record.held(), one_thread():
            return self._run(on_round, ends)

    def _evaluation(self, engine: Engine, saved: Restored, home: Home | None) -> Evaluation:
        """How the model is scored: on the test set, on answers of people, or by an estimate from the labels."""
        data, settings = self.data, self.record.settings
        whole = TestSet(
            engine.test_logits, data.test_labels, data.num_classes, data.classes, settings.main_metric == "auc"
        )
        if home is not None:
            rows = answer_rows(settings, data)
            return Evaluation(settings, lambda: whole.where(answers_to(home, rows)))
        if len(data.test):
            return Evaluation(settings, whole)
        net, server = self.world().net(), saved.server
        if not isinstance(net, ClosedFormNet) or not isinstance(server, ClosedFormServer):
            return Evaluation(settings, None, lambda weights: NO_ESTIMATE)
        return Evaluation(settings, None, LeaveOneOut(server, saved.checkpoint, net, data.train, settings.clients))

    def _run(self, on_round: Callable[[Metrics], None], ends: Sequence[int]) -> list[Metrics]:
        record, data, settings = self.record, self.data, self.record.settings
        saved = restore(record, net_spec(settings, data))
        self.notes += [f"{problem}; continuing from the previous checkpoint" for problem in saved.problems]
        saved.server.names = owner_names(settings, data)
        engine = make_engine(self.world(), saved.checkpoint)
        home = self.open_home() if settings.test_answers else None
        evaluate = self._evaluation(engine, saved, home)
        try:
            with Loggers(record, self.notes) as loggers:
                return run_rounds(engine, saved.server, evaluate, record, saved.checkpoint, loggers, on_round, ends)
        finally:
            engine.close()
            if home is not None:
                home.close()
            self.notes += [note for note in saved.server.notes if note not in saved.server.outdated] + engine.notes
            record.add_notes(self.notes)
