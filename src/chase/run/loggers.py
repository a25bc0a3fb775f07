"""TensorBoard and MLflow beside the run directory, by the setting ``log_to``; neither is needed otherwise.

A resumed run continues in the same place: TensorBoard's files are in ``RUN/tensorboard``, and MLflow's run id is kept
in ``RUN/mlflow.json``. MLflow's server is that of ``MLFLOW_TRACKING_URI``, else the file ``RUN/mlflow.db``
(MLflow no longer writes directories of files). ``RUN/logged.json`` holds the last round that each was told of: what one
has missed, because it failed, was set later or the run was killed, it is told when it is opened.

A logger that fails ends the run after the round it was told of, which is saved, with a sentence that says how to
continue without it; one that fails on closing leaves a note.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from chase.core.errors import LoggerError, SettingsError
from chase.core.files import write_atomically
from chase.run.record import Record, resume_command
from chase.settings import LOGGERS, Settings

PLAIN = (
    "test_accuracy",
    "test_loss",
    "macro_f1",
    "estimated_accuracy",
    "labels",
    "inferences",
    "inferred_samples",
    "mean_ev",
    "seconds",
)
EXPERIMENT = "chase"

Metrics = Mapping[str, Any]


class Logger(Protocol):
    """Is told of every finished round."""

    new: bool
    """Whether nothing was logged there before."""

    def __call__(self, metrics: Metrics) -> None:
        """Log one line of metrics."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


def numbers(metrics: Metrics) -> dict[str, float]:
    """The numbers of a line of metrics by a flat name; what was not measured is left out."""
    found = {key: float(metrics[key]) for key in PLAIN if metrics.get(key) is not None}
    for group in ("pools", "seconds_by_phase"):
        found |= {f"{group}/{name}": float(value) for name, value in metrics.get(group, {}).items()}
    return found


def need(name: str) -> Any:
    """The module of a logger, or a sentence that says what to install."""
    try:
        return importlib.import_module(LOGGERS[name])
    except ImportError:
        raise SettingsError(
            f"log_to names '{name}', but it is not installed: pip install 'chase-fal[{name}]', or leave it out"
        ) from None


class TensorBoard:
    """Scalars per round in ``RUN/tensorboard``."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.new = not (path / "tensorboard").is_dir()
        self._writer = need("tensorboard").SummaryWriter(str(path / "tensorboard"))

    def __call__(self, metrics: Metrics) -> None:
        """A scalar a number."""
        for name, value in numbers(metrics).items():
            self._writer.add_scalar(name, value, metrics["round"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow:
    """An MLflow run with the settings as parameters and metrics per round.

    Through a client of its own: MLflow's plain functions keep one server and one open run a process.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        mlflow = need("mlflow")
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)  # they tell of every table that they make
        self._entities = mlflow.entities
        server = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(path / 'mlflow.db').resolve()}"
        self._client = mlflow.MlflowClient(tracking_uri=server)
        kept = path / "mlflow.json"
        self.new = not kept.is_file()
        if not self.new:
            self._run = json.loads(kept.read_text(encoding="utf-8"))["run"]
            self._go_on(kept)
        else:
            self._run = self._begin(path, settings)
            write_atomically(kept, json.dumps({"run": self._run, "server": server}).encode())

    def _begin(self, path: Path, settings: Settings) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            known = str(experiment.experiment_id)
        else:  # without a place of their own, artifacts would go to ./mlruns, wherever the command was typed
            place = None if os.environ.get("MLFLOW_TRACKING_URI") else (path / "mlflow").resolve().as_uri()
            known = str(self._client.create_experiment(EXPERIMENT, artifact_location=place))
        run = str(self._client.create_run(known, run_name=path.name).info.run_id)
        params = [self._entities.Param(name, str(value)) for name, value in settings.model_dump().items()]
        self._client.log_batch(run, params=params)
        return run

    def _go_on(self, kept: Path) -> None:
        try:
            self._client.update_run(self._run, status="RUNNING")
        except Exception as problem:
            raise LookupError(
                f"its run {self._run} cannot be continued there (remove {kept} to start a new one): {problem}"
            ) from problem

    def __call__(self, metrics: Metrics) -> None:
        """All numbers at the step of the round."""
        now = time.time_ns() // 1_000_000
        found = [self._entities.Metric(*pair, now, metrics["round"]) for pair in numbers(metrics).items()]
        self._client.log_batch(self._run, metrics=found)

    def close(self) -> None:
        """End the run there; a resume takes it up again."""
        self._client.set_terminated(self._run)


_MAKERS: dict[str, Callable[[Path, Settings], Logger]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


class Loggers:
    """The loggers that a run's settings name, told of every round once; closed at the end of a ``with`` block."""

    def __init__(self, record: Record, notes: list[str]) -> None:
        path, settings = record.path, record.settings
        self._record, self._file, self._notes = record, path / "logged.json", notes
        self._told: dict[str, int] = json.loads(self._file.read_text(encoding="utf-8")) if self._file.is_file() else {}
        self._open: dict[str, Logger] = {}
        try:
            for name in settings.log_to:
                with self._named(name):
                    self._open[name] = _MAKERS[name](path, settings)
                if self._open[name].new:
                    self._told.pop(name, None)
            for metrics in record.metrics:
                self(metrics)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, metrics: Metrics) -> None:
        """Tell of a round those who do not know it yet."""
        unaware = [name for name in self._open if self._told.get(name, 0) < metrics["round"]]
        for name in unaware:
            with self._named(name):
                self._open[name](metrics)
            self._told[name] = metrics["round"]
        if unaware:
            write_atomically(self._file, json.dumps(self._told).encode())

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """What a logger raises becomes one sentence: what failed, and how to continue without it."""
        try:
            yield
        except SettingsError:
            raise
        except Exception as problem:  # a server that is away, a library that is half installed: anything may come
            self._open.pop(name, None)  # it is not asked again, not even to close
            raise LoggerError(
                f"{name} could not log the run: {first_line(problem)}; {self._way_out(name)}"
            ) from problem

    def _way_out(self, name: str) -> str:
        again = resume_command(self._record.path, self._record.kind)
        if self._record.kind == "federation":
            return (
                f"solve this, or remove {name} from log_to in {self._record.path / 'settings.toml'}; then resume with "
                f"`{again}`"
            )
        return (
            f"solve this and resume with `{again}`, or resume without {name}: `{again} --set 'log_to=[]'` "
            "(for a study: repeat the command of the study with this --set)"
        )

    def close(self) -> None:
        """No more will come; what could not be closed is told in the notes."""
        for name, logger in self._open.items():
            try:
                logger.close()
            except Exception as problem:  # every round was told: nothing is lost but the end mark
                self._notes.append(f"{name} could not be closed: {first_line(problem)}")
        self._open = {}


def first_line(problem: Exception) -> str:
    """What an error says, short."""
    lines = (str(problem).strip() or type(problem).__name__).splitlines()
    return shorten(lines[0], 300, placeholder=" ...").rstrip(".")


def need_loggers(settings: Settings) -> None:
    """Refuse a logger that is not installed before anything is written."""
    for name in settings.log_to:
        need(name)
