"""Experiments from Python: settings and objects in, a run directory and its frames out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from chase import settings as settings_room
from chase.acquisition.strategy import AcquisitionStrategy
from chase.annotation.annotator import Annotator, Desk
from chase.core import plugins
from chase.core.caller import one_thread
from chase.core.errors import SettingsError
from chase.data.resident import DataSet
from chase.report.data_frames import Run, read_run
from chase.run.experiment import Experiment
from chase.run.metrics import Metrics
from chase.server.aggregation import ServerRule
from chase.settings import Settings
from chase.simulation import recommended

OnRound = Callable[[Metrics], None]
Own = Any
"""A name as in the settings, or the object itself."""
OWN = ("data", "net", "strategy", "partition", "server", "annotator", "loss")
"""What may be passed as an object."""


def run_experiment(
    settings: str | Path | Settings | Mapping[str, Any] = "digits",
    out: str | Path | None = None,
    *,
    on_round: OnRound = lambda metrics: None,
    data: str | DataSet | None = None,
    net: Own | None = None,
    strategy: str | AcquisitionStrategy | type[AcquisitionStrategy] | Callable[[], AcquisitionStrategy] | None = None,
    partition: str | Callable[[Settings, DataSet], Any] | None = None,
    server: str | ServerRule | None = None,
    annotator: str | Callable[[Desk], Annotator] | None = None,
    loss: str | Callable[..., Any] | None = None,
    report: bool = True,
    **changes: Any,
) -> Run:
    """Run an experiment in a new directory and read it back.

    ``settings`` is a preset, a TOML file, own data by its path, a mapping or a ``Settings``; ``changes`` are further
    settings by name. What follows ``on_round`` (called with the metrics of each finished round) is a name or an object.
    """
    own = {
        "data": data,
        "net": net,
        "strategy": strategy,
        "partition": partition,
        "server": server,
        "annotator": annotator,
        "loss": loss,
    }
    with chosen(own) as names, one_thread():
        values = values_of(settings, changes | names) | changes | names
        full = settings_room.from_mapping(values).resolved()
        _refuse_page(full, f"chase run {shlex.quote(full.data)} --annotator page")
        title = str(settings) if isinstance(settings, str | Path) else full.data
        where = Path(out) if out is not None else new_directory(title, full.strategy)
        return _finish(Experiment.begin(full, where), on_round, report)


def load_settings(settings: str | Path | Mapping[str, Any] = "digits", **changes: Any) -> Settings:
    """Settings of a preset, a TOML file, a mapping, or those recommended for own data at a path, with changes.

    What a method decides stays open until it runs.
    """
    found = settings_room.from_mapping(values_of(settings, changes) | changes)
    found.resolved()  # refuses what does not go together
    return found


def resume_experiment(
    directory: str | Path, *, on_round: OnRound = lambda metrics: None, report: bool = True, **changes: Own
) -> Run:
    """Resume a run. ``rounds=300`` makes it longer; objects that it was begun with must be passed again, by ``OWN``."""
    with chosen({kind: changes.pop(kind, None) for kind in OWN}) as names, one_thread():
        experiment = Experiment.resume(Path(directory), changes | names)
        _refuse_page(experiment.record.settings, f"chase resume {shlex.quote(str(directory))}")
        return _finish(experiment, on_round, report)


def _refuse_page(settings: Settings, command: str) -> None:
    if settings.annotator == "page":
        raise SettingsError(
            f"annotator = 'page' needs the labelling page, which only the command line serves: use `{command}`"
        )


def _finish(experiment: Experiment, on_round: OnRound, report: bool) -> Run:
    experiment.run(on_round)
    run = read_run(experiment.record.path)
    if report:
        run.report()
    return run


@contextmanager
def chosen(own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings that names and objects become; the objects are known inside."""
    names = {kind: value for kind, value in own.items() if isinstance(value, str)}
    objects = {kind: value for kind, value in own.items() if value is not None and not isinstance(value, str)}
    with plugins.passing(objects) as passed:
        yield names | passed


def values_of(settings: str | Path | Settings | Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in any form, as plain values; what a ``Settings`` leaves at its default stays open.

    ``changes`` are what the user says of own data at a path.
    """
    if isinstance(settings, Settings):
        return settings.model_dump(exclude_unset=True)
    if isinstance(settings, Mapping):
        return settings_room.flatten(settings)
    return recommended.values_of(str(settings), changes)


def new_directory(preset: str, what: str) -> Path:
    """A directory below ``runs`` that tells what it holds and when it was begun."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "".join(letter if letter.isalnum() or letter in "+-_." else "." for letter in what)
    return Path("runs") / f"{Path(preset).resolve().stem}-{name}-{stamp}"
