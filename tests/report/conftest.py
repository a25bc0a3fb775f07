"""Hand-made run directories: every figure in them is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]


def line(round: int, accuracy: float | None, **changes: Any) -> dict[str, Any]:
    """A line of metrics.jsonl for two clients and three classes."""
    dormant = 2 * (round - 1)
    client = {"labeled": 2 + round, "unlabeled": 20 - round - dormant, "asked": 0, "dormant": dormant, "set_aside": 0}
    return {
        "round": round,
        "test_accuracy": accuracy,
        "test_loss": None if accuracy is None else 1.0 - accuracy,
        "macro_f1": accuracy,
        "per_class": None if accuracy is None else [accuracy, accuracy / 2, None],
        "labels": 2 * (round - 1),
        "inferences": 100,
        "inferred_samples": 10.0,
        "mean_ev": 0.5,
        "pools": {name: 2 * size for name, size in client.items()},
        "took_part": 2,
        "clients": {"0": client | {"labels": round - 1}, "1": client | {"labels": round - 1}},
        "seconds": 0.5,
        "seconds_by_phase": {"train": 0.3, "clients": 0.4, "evaluate": 0.1},
    } | changes


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run directory: its name, accuracies by round, and settings that differ from the usual."""

    def make(name: str, accuracies: list[float | None], **settings: Any) -> Path:
        path = tmp_path / name
        path.mkdir(parents=True)
        usual = {"data": "digits", "strategy": "chase", "clients": 2, "seed": 0, "rounds": len(accuracies), "mu": 0.1}
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (usual | settings).items())
        (path / "settings.toml").write_text(text)
        around = {"run": name, "python": "3.11.7", "cores": 2, "packages": {"torch": "2.13.0"}}
        (path / "environment.json").write_text(json.dumps(around))
        (path / "model.json").write_text(json.dumps({"classes": ["cat", "dog", "<zebra>"]}))
        lines = [line(i + 1, a) for i, a in enumerate(accuracies)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
        asked = [{"round": 2, "client": 0, "turn": 1, "sample": 5, "ev": 1, "strategy": "chase", "label": 1}]
        (path / "selections.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in asked))
        return path

    return make
