from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import SMALL
from typer.testing import CliRunner

from chase.acquisition.random import Random
from chase.cli.main import app
from chase.core.errors import ChaseError, RunDirectoryError, SettingsError
from chase.report.table_files import NAMES
from chase.run.checkpoint import Checkpoint
from chase.run.comparison import PLAN, method_changes, plan_arms
from chase.run.record import Record

FEW = [f"--set={key}={value}" for key, value in {**SMALL, "rounds": 2, "engine": "inprocess"}.items()]


def chase(*words: str) -> dict:
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take seconds and are looked at in the first test."""
    monkeypatch.setattr("chase.report.html.write_report", lambda runs, out: out)


def test_a_comparison_runs_every_method_with_every_seed_and_reports_it(tmp_path: Path) -> None:
    out = tmp_path / "both"
    told = chase("run", "digits", "-s", "random,entropy@global", "--seeds", "2", "--out", str(out), *FEW)
    names = {"random-seed0", "random-seed1", "entropy@global-seed0", "entropy@global-seed1"}
    assert {path.parent.name for path in out.glob("*/settings.toml")} == names
    assert {path.name for path in out.iterdir() if path.is_dir()} == names | {"report-tables"}
    assert told["tables"] == str(out / "report-tables")
    assert {path.stem for path in (out / "report-tables").iterdir()} == set(NAMES), "else old ones are not removed"
    assert (out / "report-tables" / "results.csv").read_text().startswith("method,seeds,")
    assert [method["method"] for method in told["methods"]] == ["entropy, model global", "random"]
    assert all(len(method["runs"]) == 2 for method in told["methods"])
    assert (out / "report.html").stat().st_size > 10_000
    settings = Record.open(out / "entropy@global-seed1").settings
    assert (settings.strategy, settings.model, settings.seed) == ("entropy", "global", 1)

    # In round 1 nothing has been selected yet: same partition, labels and weights, so the same result.
    first = {name: Record.open(out / name).metrics[0] for name in names}
    for seed in (0, 1):
        assert first[f"random-seed{seed}"]["test_loss"] == first[f"entropy@global-seed{seed}"]["test_loss"]
        assert first[f"random-seed{seed}"]["pools"] == first[f"entropy@global-seed{seed}"]["pools"]
    assert first["random-seed0"]["test_loss"] != first["random-seed1"]["test_loss"]


@pytest.mark.usefixtures("no_drawing")
def test_what_is_finished_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "c"
    few = ["--set", "clients=2"]
    chase("run", "digits", "-s", "random,ev", "--out", str(out), *FEW, *few)
    before = {name: (out / name / "metrics.jsonl").read_bytes() for name in ("random-seed0", "ev-seed0")}
    picked: list[int] = []
    select = Random.select

    def watched(self: Random, pool: object, budget: int, draw: object) -> object:
        picked.append(budget)
        return select(self, pool, budget, draw)

    monkeypatch.setattr(Random, "select", watched)
    chase("run", "digits", "-s", "random,ev,margin", "--out", str(out), *FEW, *few)
    assert {name: (out / name / "metrics.jsonl").read_bytes() for name in before} == before
    assert picked == []
    assert len(Record.open(out / "margin-seed0").metrics) == 2

    longer = chase("resume", str(out), "--set", "rounds=3")
    assert all(run["round"] == 3 for method in longer["methods"] for run in method["runs"])
    assert picked != []
    assert (out / "random-seed0" / "metrics.jsonl").read_bytes().startswith(before["random-seed0"])


@pytest.mark.usefixtures("no_drawing")
def test_a_run_that_broke_off_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    few = ["--set", "clients=2"]
    chase("run", "digits", "-s", "random,margin", "--out", str(whole), *FEW, *few)
    commit = Checkpoint.commit

    def tear(self: Checkpoint, round: int, *rest: object) -> object:
        if round == 2:
            raise RunDirectoryError("no space is left on the disk")
        return commit(self, round, *rest)

    monkeypatch.setattr(Checkpoint, "commit", tear)
    with pytest.raises(ChaseError, match="no space"):
        chase("run", "digits", "-s", "random,margin", "--out", str(broken), *FEW, *few)
    monkeypatch.setattr(Checkpoint, "commit", commit)
    chase("resume", str(broken))
    for name in ("random-seed0", "margin-seed0"):
        ours, theirs = Record.open(broken / name).metrics, Record.open(whole / name).metrics
        assert [m["test_loss"] for m in ours] == [m["test_loss"] for m in theirs]


@pytest.mark.usefixtures("no_drawing")
def test_other_settings_in_the_same_directory_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "c"
    chase("run", "digits", "-s", "random", "--seeds", "1", "--out", str(out), *FEW)
    with pytest.raises(RunDirectoryError, match="was begun with lr"):
        chase("run", "digits", "-s", "random", "--seeds", "1", "--out", str(out), *FEW, "--set", "lr=0.5")
    with pytest.raises(RunDirectoryError, match="lr cannot change"):
        chase("resume", str(out), "--set", "lr=0.5")
    (out / PLAN).write_text("{")
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        chase("resume", str(out))


def test_methods_are_checked_before_anything_runs(tmp_path: Path) -> None:
    assert method_changes("entropy@global") == {"strategy": "entropy", "model": "global"}
    for text in ("", "entropy@", "entropy@server"):
        with pytest.raises(SettingsError, match="is not a method"):
            method_changes(text)
    with pytest.raises(SettingsError, match="did you mean 'entropy'"):
        plan_arms({}, ["random", "entrpy"], [0])
    with pytest.raises(SettingsError, match="named twice"):
        plan_arms({}, ["random", "random"], [0])
    with pytest.raises(SettingsError, match="methods 'random' and 'random@local' mean the same here: give one of them"):
        plan_arms(SMALL, ["random", "random@local"], [0, 1])
    with pytest.raises(SettingsError, match="labelled by the oracle"):
        plan_arms({"annotator": "page"}, ["random"], [0])
    with pytest.raises(SettingsError, match="does not choose between"):
        plan_arms({}, ["random@global"], [0])
