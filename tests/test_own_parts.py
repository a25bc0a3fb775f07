"""Networks and strategies of one's own: lists are fine, and what does not fit is refused before round 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support import small_settings

from chase.core.errors import SettingsError
from chase.run.experiment import Experiment

MODULE = """
from torch import nn


class FirstFew:
    needs = frozenset({"model"})

    def select(self, pool, budget, rng):
        return [int(i) for i in pool.ids[:budget]]


class Twice(FirstFew):
    def select(self, pool, budget, rng):
        return [int(pool.ids[0])] * 2


class Names(FirstFew):
    def select(self, pool, budget, rng):
        return ["a", "b"]


class Broken(FirstFew):
    def select(self, pool, budget, rng):
        return pool.nothing_like_it


def plain(shape, classes, dropout):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.fixture
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ownparts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("ownparts", None)


@pytest.mark.usefixtures("_own")
def test_a_strategy_may_return_a_list(tmp_path: Path) -> None:
    Experiment.begin(small_settings(strategy="ownparts:FirstFew", rounds=2), tmp_path / "run").run()
    lines = [json.loads(line) for line in (tmp_path / "run/selections.jsonl").read_text().splitlines()]
    assert len(lines) == 5 * small_settings().clients


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"net": "ownparts:plain", "strategy": "badge"}, "the strategy reads features, so the network must be"),
        ({"net": "ownparts:plain", "strategy": "bald"}, "passes with dropout need a network with"),
        ({"net": "ownparts:plain", "strategy": "chase", "align_on": "features"}, "align_on = 'features'"),
        ({"strategy": "ownparts:Broken"}, "has no attribute 'nothing_like_it'"),
        ({"strategy": "ownparts:Twice"}, "chose a sample twice"),
        ({"strategy": "ownparts:Names"}, "must return ids of samples as an array or list"),
    ],
)
def test_what_does_not_fit_is_refused_before_round_1(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Experiment.begin(small_settings(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("_own")
def test_a_network_that_gives_what_is_needed_runs(tmp_path: Path) -> None:
    lines = Experiment.begin(small_settings(net="ownparts:plain", strategy="entropy", rounds=2), tmp_path / "run").run()
    assert len(lines) == 2
