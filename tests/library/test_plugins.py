"""Things of other packages, through entry points of a small distribution."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from chase.core import plugins
from chase.core.errors import SettingsError

MODULE = """
import numpy as np
import torch.nn.functional as F
from torch import nn
import chase
from chase.closed_form.given import GivenFeatures
from chase.studies.study import Arm, Scene, Study, StudyPart

class Last:
    needs = frozenset()
    def select(self, pool, budget, rng):
        return np.sort(pool.ids)[-budget:]

class Line(nn.Module):
    def __init__(self, shape, classes, dropout):
        super().__init__()
        self.head = nn.Linear(int(np.prod(shape)), classes)
    def forward(self, x):
        return self.head(x.flatten(1))

def halves(settings, data):
    return np.array_split(np.arange(len(data.train)), settings.clients)

def stay(start, mean, state, plan):
    return dict(start), {}

class Raw(GivenFeatures):
    def __init__(self, spec, seed=0):
        super().__init__(spec)

def hinge(outputs, labels):
    return F.multi_margin_loss(outputs, labels)

class Zero:
    def __init__(self, desk):
        self.asked = []
    def ask(self, questions):
        self.asked += [question.sample for question in questions]
    def withdraw(self, samples):
        self.asked = [sample for sample in self.asked if sample not in samples]
    def answers(self, turn):
        found, self.asked = self.asked, []
        return [chase.Answer(sample, 0, "zero") for sample in found]

def points():
    draw = np.random.default_rng(0)
    return chase.make_data((draw.normal(size=(60, 4)), [0, 1] * 30), name="points")

PRESET = {"data": "points", "net": "line", "partition": "halves", "clients": 2, "rounds": 1, "strategy": "last"}
STUDY = Study("tiny", "one arm", (StudyPart((Scene("points-preset"),), (Arm("last", {"strategy": "last"}),)),))
"""

ENTRIES = """
[chase.strategies]
last = chase_tiny:Last
broken = chase_tiny:Missing
[chase.networks]
line = chase_tiny:Line
[chase.partitions]
halves = chase_tiny:halves
[chase.server_rules]
stay = chase_tiny:stay
[chase.data]
points = chase_tiny:points
[chase.presets]
points-preset = chase_tiny:PRESET
[chase.studies]
tiny = chase_tiny:STUDY
[chase.feature_maps]
raw = chase_tiny:Raw
[chase.losses]
hinge = chase_tiny:hinge
[chase.annotators]
zero = chase_tiny:Zero
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution of one module, as pip would leave it."""
    (tmp_path / "chase_tiny.py").write_text(MODULE)
    about = tmp_path / "chase_tiny-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: chase-tiny\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "chase_tiny", raising=False)
    return tmp_path


def test_everything_that_is_listed_can_come_from_another_package(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from chase.cli.listing import catalogue

    listed = catalogue()
    for title, name in {
        "presets": "points-preset",
        "data sets": "points",
        "partitions": "halves",
        "networks": "line",
        "feature maps": "raw",
        "losses": "hinge",
        "annotators": "zero",
        "strategies": "last",
        "server rules": "stay",
        "studies": "tiny",
    }.items():
        assert "of package chase-tiny" in listed[title][name], title
    assert "chase_tiny" not in sys.modules  # listing imports nothing
    assert set(listed) - {"settings"} == {
        *("presets", "data sets", "partitions", "networks", "feature maps"),
        *("losses", "strategies", "annotators", "server rules", "studies"),
    }
    assert len(plugins.ENTRY_POINTS) == len(set(listed) - {"settings"})


def test_a_run_of_another_packages_things(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import chase

    run = chase.run_experiment(
        "points-preset",
        tmp_path / "run",
        server="stay",
        loss="hinge",
        annotator="zero",
        report=False,
        engine="workers",
        workers=2,
        initial_labels=0.2,
        rounds=2,
    )
    assert run.settings["strategy"] == "last"
    assert len(run.metrics) == 2
    assert set(run.selections["label"]) == {0}
    assert json.loads((tmp_path / "run" / "coverage.json").read_text())["classes"] == ["0", "1"]


@pytest.mark.parametrize("features", ["raw", "chase_tiny:Raw"])
def test_a_feature_map_of_another_package_computes_features(installed: Path, tmp_path: Path, features: str) -> None:
    import chase

    closed = {"learner": "closed-form", "initial_labels": 0.5, "rounds": 1, "engine": "inprocess", "report": False}
    mine = chase.run_experiment("points-preset", tmp_path / "mine", features=features, **closed)
    given = chase.run_experiment("points-preset", tmp_path / "given", features="given", **closed)
    assert mine.metrics["test_loss"].tolist() == given.metrics["test_loss"].tolist()
    with pytest.raises(SettingsError, match="unknown features 'rww'; did you mean 'raw'"):
        chase.load_settings("points-preset", features="rww", learner="closed-form")


def test_a_study_of_another_package(installed: Path) -> None:
    from chase.studies.catalog import all_studies, find_study

    assert find_study("tiny").about == "one arm"
    assert "tiny" in all_studies()


def test_what_cannot_be_loaded_or_is_unknown_is_named(installed: Path) -> None:
    from chase.settings import from_mapping

    with pytest.raises(SettingsError, match=r"strategy 'broken' of package chase-tiny cannot be loaded .*Missing"):
        from_mapping({"strategy": "broken"}).resolved()
    with pytest.raises(SettingsError, match=r"unknown strategy 'lasst'; did you mean 'last'"):
        from_mapping({"strategy": "lasst"})
    with pytest.raises(SettingsError, match=r"unknown partition 'halvs'; did you mean 'halves'"):
        from_mapping({"partition": "halvs"})


def test_two_packages_of_one_name_are_refused(installed: Path, tmp_path: Path) -> None:
    other = tmp_path / "chase_other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: chase-other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[chase.strategies]\nlast = chase_tiny:Other\n")
    with pytest.raises(SettingsError, match="strategy 'last' is offered by two packages"):
        plugins.find("strategy", "last")
