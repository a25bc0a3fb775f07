"""TensorBoard and MLflow beside the run directory, by the setting ``log_to``; neither is needed otherwise.

A resumed run goes on in the same place: TensorBoard's files are in ``RUN/tensorboard``, and MLflow's run id is kept
in ``RUN/mlflow.json``. MLflow's server is that of ``MLFLOW_TRACKING_URI``, else the file ``RUN/mlflow.db``
(MLflow no longer writes directories of files). A logger that fails ends the run after the round it was told of,
which is saved, with a sentence that says how to go on without it.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from chase.core.errors import LoggerError, SettingsError
from chase.record import write_atomically
from chase.settings import LOGGERS, Settings

PLAIN = ("test_accuracy", "test_loss", "macro_f1", "labels", "inferences", "inferred_samples", "mean_ev", "seconds")
EXPERIMENT = "chase"


class Logger(Protocol):
    """Is told of every finished round."""

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Log one line of metrics."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
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
    """Scalars a round in ``RUN/tensorboard``."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._writer = need("tensorboard").SummaryWriter(str(path / "tensorboard"))

    def __call__(self, metrics: dict[str, Any]) -> None:
        """A scalar a number."""
        for name, value in numbers(metrics).items():
            self._writer.add_scalar(name, value, metrics["round"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow:
    """An MLflow run with the settings as parameters and metrics a round."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._client = need("mlflow")
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)  # they tell of every table that they make
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        self._client.set_tracking_uri(server or f"sqlite:///{(path / 'mlflow.db').resolve()}")
        if not server and self._client.get_experiment_by_name(EXPERIMENT) is None:
            # else its artifacts would go to ./mlruns, wherever the command was typed
            self._client.create_experiment(EXPERIMENT, artifact_location=(path / "mlflow").resolve().as_uri())
        self._client.set_experiment(EXPERIMENT)
        kept = path / "mlflow.json"
        if kept.is_file():
            self._client.start_run(run_id=json.loads(kept.read_text(encoding="utf-8"))["run"])
            return
        run = self._client.start_run(run_name=path.name)
        write_atomically(kept, json.dumps({"run": run.info.run_id}).encode())
        self._client.log_params(settings.model_dump())

    def __call__(self, metrics: dict[str, Any]) -> None:
        """All numbers at the step of the round."""
        self._client.log_metrics(numbers(metrics), step=metrics["round"])

    def close(self) -> None:
        """End the run there; a resume takes it up again."""
        self._client.end_run()


_MAKERS: dict[str, Callable[[Path, Settings], Logger]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


@contextmanager
def named(name: str, path: Path) -> Iterator[None]:
    """What a logger raises becomes one sentence: what failed, and how to go on without it."""
    try:
        yield
    except SettingsError:
        raise
    except Exception as problem:  # a server that is away, a library that is half installed: anything may come
        why = shorten((str(problem).strip() or type(problem).__name__).splitlines()[0], 200, placeholder=" ...")
        raise LoggerError(
            f"{name} could not log the run: {why.rstrip('.')}; mend that and type chase resume {path}, "
            f"or go on without it: chase resume {path} --set 'log_to=[]'"
        ) from problem


class Named:
    """A logger whose errors carry its name."""

    def __init__(self, name: str, path: Path, settings: Settings) -> None:
        self._name, self._path = name, path
        with named(name, path):
            self._logger = _MAKERS[name](path, settings)

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Log one line of metrics."""
        with named(self._name, self._path):
            self._logger(metrics)

    def close(self) -> None:
        """No more will come."""
        with named(self._name, self._path):
            self._logger.close()


def open_loggers(path: Path, settings: Settings) -> list[Logger]:
    """The loggers that the settings name."""
    return [Named(name, path, settings) for name in settings.log_to]


def need_loggers(settings: Settings) -> None:
    """Refuse a logger that is not installed before anything is written."""
    for name in settings.log_to:
        need(name)
