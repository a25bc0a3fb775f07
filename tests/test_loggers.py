"""Loggers are told of every round, go on after a resume, and are asked for in one sentence where they are missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import small_settings

from chase.core.errors import LoggerError, SettingsError
from chase.run.experiment import Experiment
from chase.run.loggers import numbers

EXTRA = "an extra that is not installed"
SMALL = {"clients": 2, "rounds": 2, "local_epochs": 2, "data_share": 0.2, "strategy": "ev"}


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_one_that_is_not_installed_is_refused_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    with pytest.raises(SettingsError, match=rf"not installed: pip install 'chase-fal\[{name}\]'"):
        Experiment.begin(small_settings(**SMALL, log_to=[name]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(SettingsError, match="did you mean 'mlflow'"):
        small_settings(log_to=["mlfow"])


def test_numbers_of_a_round() -> None:
    line = {"round": 1, "test_accuracy": 0.5, "mean_ev": None, "labels": 3, "pools": {"asked": 2}, "clients": {}}
    assert numbers(line) == {"test_accuracy": 0.5, "labels": 3.0, "pools/asked": 2.0}


class Board:
    """Stands in for TensorBoard's writer; ``down`` makes it fail."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.down = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if self.down:
            raise OSError("the disk is full\nmore of it")
        if name == "test_accuracy":
            self.steps.append(step)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if self.down:
            raise OSError("still full")


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    found, module = Board(), ModuleType("torch.utils.tensorboard")

    def writer(place: str) -> Board:
        Path(place).mkdir(exist_ok=True)
        return found

    module.SummaryWriter = writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return found


def test_every_round_is_told_once_and_a_resume_goes_on(tmp_path: Path, board: Board) -> None:
    Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run").run()
    assert board.steps == [1, 2]
    Experiment.resume(tmp_path / "run", {"rounds": 3}).run()
    assert board.steps == [1, 2, 3]


def test_one_that_is_set_later_is_told_of_the_rounds_before(tmp_path: Path, board: Board) -> None:
    Experiment.begin(small_settings(**SMALL), tmp_path / "run").run()
    Experiment.resume(tmp_path / "run", {"rounds": 3, "log_to": ["tensorboard"]}).run()
    assert board.steps == [1, 2, 3]


def test_one_that_fails_ends_the_run_after_a_saved_round_and_is_told_later(tmp_path: Path, board: Board) -> None:
    run = Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run")
    board.down = True
    wanted = r"tensorboard could not log the run: the disk is full; .* --set 'log_to=\[\]'"
    with pytest.raises(LoggerError, match=wanted):
        run.run()
    assert run.saved_rounds == 1
    without = Experiment.resume(tmp_path / "run", {"log_to": []})
    assert len(without.run()) == 2
    board.down = False
    Experiment.resume(tmp_path / "run", {"log_to": ["tensorboard"]}).run()
    assert board.steps == [1, 2]


def test_one_that_cannot_be_closed_is_a_note(tmp_path: Path, board: Board) -> None:
    run = Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run")

    def down_at_the_end(metrics: dict[str, Any]) -> None:
        board.down = metrics["round"] == 2

    assert len(run.run(down_at_the_end)) == 2
    assert run.notes[-1:] == ["tensorboard could not be closed: still full"]


def test_ctrl_c_stays_ctrl_c_when_a_logger_fails_too(tmp_path: Path, board: Board) -> None:
    run = Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run")

    def stop(metrics: dict[str, Any]) -> None:
        board.down = True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(stop)


@pytest.mark.filterwarnings("ignore")  # their own deprecations are not ours
def test_the_real_tensorboard_holds_every_round(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=EXTRA)
    Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run").run()
    past = Experiment.resume(tmp_path / "run", {"rounds": 3}).run()
    found = events.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    scalars = [(e.step, e.value) for e in found.Scalars("test_accuracy")]
    assert scalars == [(m["round"], pytest.approx(m["test_accuracy"])) for m in past]


def kept_in(mlflow: Any, path: Path) -> Any:
    """The one MLflow run in a run directory, and its client."""
    client = mlflow.MlflowClient(f"sqlite:///{path}/mlflow.db")
    (kept,) = client.search_runs([client.get_experiment_by_name("chase").experiment_id])
    return client, kept


@pytest.mark.filterwarnings("ignore")  # their own deprecations are not ours
def test_the_real_mlflow_holds_every_round_of_two_runs_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason=EXTRA)
    pytest.importorskip("sqlalchemy", reason=EXTRA)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    Experiment.begin(small_settings(**SMALL, log_to=["mlflow"]), tmp_path / "one").run()
    Experiment.begin(small_settings(**SMALL | {"strategy": "random"}, log_to=["mlflow"]), tmp_path / "two").run()
    pasts = {name: Experiment.resume(tmp_path / name, {"rounds": 3}).run() for name in ("one", "two")}
    for (name, past), strategy in zip(pasts.items(), ("ev", "random"), strict=True):
        client, kept = kept_in(mlflow, tmp_path / name)
        assert kept.data.params["strategy"] == strategy
        assert kept.info.status == "FINISHED"
        history = client.get_metric_history(kept.info.run_id, "test_accuracy")
        assert [(m.step, m.value) for m in history] == [(m["round"], pytest.approx(m["test_accuracy"])) for m in past]
    assert not (tmp_path / "mlruns").exists()
    assert "MLFLOW_TRACKING_URI" not in os.environ

    # another server does not know the run; a new one there is told of all rounds
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(LoggerError, match=r"cannot be continued there \(remove .*mlflow\.json to start a new one"):
        Experiment.resume(tmp_path / "two", {"rounds": 4}).run()
    (tmp_path / "two" / "mlflow.json").unlink()
    Experiment.resume(tmp_path / "two").run()
    client, kept = kept_in(mlflow, tmp_path)
    assert [m.step for m in client.get_metric_history(kept.info.run_id, "labels")] == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_server_that_is_away_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason=EXTRA)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = Experiment.begin(small_settings(**SMALL, log_to=["mlflow"]), tmp_path / "run")
    with pytest.raises(LoggerError, match="mlflow could not log the run: "):
        run.run()
    assert run.saved_rounds == 0
