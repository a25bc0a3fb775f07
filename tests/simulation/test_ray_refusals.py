"""A cluster that cannot be used is refused before a run directory is made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chase.core.errors import SettingsError
from chase.run.experiment import Experiment
from chase.settings import load
from chase.simulation.cluster import ClusterError


def test_an_address_that_does_not_answer_leaves_no_run_directory(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=r"the Ray cluster at 127\.0\.0\.1:1 cannot be reached"):
        Experiment.begin(load("digits", {"engine": "ray", "ray_address": "127.0.0.1:1"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_ray_no_run_directory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match="Ray is not installed: pip install"):
        Experiment.begin(load("digits", {"engine": "ray"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
