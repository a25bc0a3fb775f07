"""Loggers are told of every round, go on after a resume, and are asked for in one sentence where they are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support import small_settings

from chase.core.errors import LoggerError, SettingsError
from chase.experiment import Experiment
from chase.loggers import numbers

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


def test_both_are_told_of_every_round_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    board, flow = ModuleType("torch.utils.tensorboard"), ModuleType("mlflow")
    board.SummaryWriter = lambda place: SimpleNamespace(  # type: ignore[attr-defined]
        add_scalar=lambda name, value, step: seen.append(("board", name, step)),
        flush=lambda: None,
        close=lambda: seen.append(("board", "closed", 0)),
    )

    def start_run(run_id: str | None = None, run_name: str | None = None) -> Any:
        seen.append(("flow", "start", run_id))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    parts = {
        "start_run": start_run,
        "set_tracking_uri": lambda uri: None,
        "get_experiment_by_name": lambda name: None,
        "create_experiment": lambda name, artifact_location: None,
        "set_experiment": lambda name: None,
        "log_params": lambda values: seen.append(("flow", "params", values["strategy"])),
        "log_metrics": lambda values, step: seen.append(("flow", "round", step)),
        "end_run": lambda: seen.append(("flow", "end", 0)),
    }
    vars(flow).update(parts)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "mlflow", flow)
    Experiment.begin(small_settings(**SMALL, log_to=["tensorboard", "mlflow"]), tmp_path / "run").run()
    assert [e for e in seen if e[0] == "flow"] == [
        ("flow", "start", None),
        ("flow", "params", "ev"),
        ("flow", "round", 1),
        ("flow", "round", 2),
        ("flow", "end", 0),
    ]
    assert ("board", "test_accuracy", 2) in seen
    assert ("board", "closed", 0) in seen
    seen.clear()
    Experiment.resume(tmp_path / "run", {"rounds": 3}).run()
    assert [e for e in seen if e[0] == "flow"] == [("flow", "start", "r1"), ("flow", "round", 3), ("flow", "end", 0)]


def test_one_that_fails_ends_the_run_after_a_saved_round_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, value: float, step: int) -> None:
        raise OSError("the disk is full\nmore of it")

    board = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = lambda place: SimpleNamespace(  # type: ignore[attr-defined]
        add_scalar=fail, flush=lambda: None, close=lambda: None
    )
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    run = Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run")
    with pytest.raises(
        LoggerError, match=r"tensorboard could not log the run: the disk is full; .* --set 'log_to=\[\]'"
    ):
        run.run()
    assert len(Experiment.resume(tmp_path / "run", {"log_to": []}).run()) == 2


@pytest.mark.filterwarnings("default")  # their own deprecations are not ours
def test_the_real_tensorboard_holds_every_round(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=EXTRA)
    Experiment.begin(small_settings(**SMALL, log_to=["tensorboard"]), tmp_path / "run").run()
    past = Experiment.resume(tmp_path / "run", {"rounds": 3}).run()
    found = events.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    scalars = [(e.step, e.value) for e in found.Scalars("test_accuracy")]
    assert scalars == [(m["round"], pytest.approx(m["test_accuracy"])) for m in past]


@pytest.mark.filterwarnings("default")  # their own deprecations are not ours
def test_the_real_mlflow_holds_every_round_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason=EXTRA)
    pytest.importorskip("sqlalchemy", reason=EXTRA)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    Experiment.begin(small_settings(**SMALL, log_to=["mlflow"]), tmp_path / "run").run()
    past = Experiment.resume(tmp_path / "run", {"rounds": 3}).run()
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/run/mlflow.db")
    (kept,) = client.search_runs([client.get_experiment_by_name("chase").experiment_id])
    assert kept.data.params["strategy"] == "ev"
    history = client.get_metric_history(kept.info.run_id, "test_accuracy")
    assert [(m.step, m.value) for m in history] == [(m["round"], pytest.approx(m["test_accuracy"])) for m in past]
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.filterwarnings("default")  # their own deprecations are not ours
def test_an_mlflow_server_that_is_away_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason=EXTRA)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = Experiment.begin(small_settings(**SMALL, log_to=["mlflow"]), tmp_path / "run")
    with pytest.raises(LoggerError, match="mlflow could not log the run: "):
        run.run()
