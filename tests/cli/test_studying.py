"""``chase study`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from chase.cli import studying
from chase.studies.plan import plans_in

TINY = (
    "--data",
    "digits",
    "--rounds",
    2,
    "--seeds",
    1,
    "--scale",
    0.2,
    "--set",
    "clients=2",
    "--set",
    "local_epochs=2",
)


def test_a_dry_run_names_what_the_data_cannot_give(chase, tmp_path: Path) -> None:
    """One round is no more than a cycle; 30 rounds of ReCo ask for more than a tenth of digits has."""
    place = ("--data", "digits", "--seeds", "1", "--scale", "0.1", "--out", tmp_path / "s", "--dry-run")
    shown = chase("study", "ablation", "--rounds", "30", *place).out
    assert shown.count("note: ") == 1, "once per scene, not per arm"
    assert "clients run out of samples to ask for before round 30" in shown
    body = json.loads(chase("study", "cycles", "--rounds", "1", *place, "--arm", "EV", "--json").out)
    assert len(body["notes"]) == 8
    assert "so no labels are requested" in body["notes"][0]
    assert json.loads(chase("study", "ablation", "--rounds", "2", *place, "--json").out)["notes"] == []


def test_cycles_that_need_more_samples_than_there_are_are_named(chase, tmp_path: Path) -> None:
    """Cycles of 25 rounds ask for 1.25 or 2.5 % each: 43 requests are too many for some, and for 2.5 % for all."""
    place = ("--data", "digits", "--seeds", "1", "--out", tmp_path / "s", "--dry-run", "--arm", "EV", "--json")
    notes = json.loads(chase("study", "cycles", "--rounds", "1100", *place).out)["notes"]
    (fixed,) = [note for note in notes if "25 rounds per cycle, fixed budget" in note]
    assert "clients run out of samples to ask for before round 1100, in 43 requests: client" in fixed
    assert not any("or more" in note for note in notes), "more rounds would not help"
    assert json.loads(chase("study", "cycles", "--rounds", "200", *place).out)["notes"] == []


def test_data_sets_that_are_named_but_empty_start_nothing(chase, tmp_path: Path) -> None:
    for given in ("", ","):
        result = chase("study", "ablation", "--data", given, "--out", tmp_path / "s")
        assert result.code == 2
        assert "names no preset" in result.err
    assert not (tmp_path / "s").exists()


def test_what_the_data_cannot_give_is_said_of_every_seed_that_it_holds_for(chase, tmp_path: Path) -> None:
    """Dirichlet parts differ by seed: how many samples a client has, and whether it runs out of them."""
    skewed = ("--set", "partition=dirichlet", "--set", "alpha=0.3", "--arm", "FedRandom")
    place = ("--data", "digits", "--seeds", "3", "--scale", "0.5", "--out", tmp_path / "s", "--dry-run", "--json")
    notes = json.loads(chase("study", "ablation", "--rounds", "9", *place, *skewed).out)["notes"]
    scene = "digits, ReCo, dirichlet, alpha 0.3, 50 % of the data"
    (note,) = notes
    assert note.startswith(f"{scene}, seed 0: 1 of 10 clients run out of samples to ask for before round 9")
    assert note.endswith("by round 8 (in other numbers for seeds 1, 2 too)")
    cycles = json.loads(chase("study", "cycles", "--rounds", "1", *place, "--arm", "EV").out)["notes"]
    assert len(cycles) == 8, "of all seeds alike: said once"
    assert not any("seed" in note for note in cycles)


def test_a_real_run_names_what_the_data_cannot_give_before_jobs_start(chase, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(studying, "run_jobs", lambda *arguments: print("jobs start"))
    place = ("--data", "digits", "--seeds", "1", "--scale", "0.1", "--out", tmp_path / "s")
    shown = chase("study", "cycles", "--rounds", "1", *place, "--arm", "EV").out.split("jobs start")[0]
    assert shown.count("note: ") == 8
    assert shown.count("so no labels are requested") == 8
    assert shown.count("(--rounds 50 or more)") == 8, "of the shortest cycles, whatever the length of this one"
    body = json.loads(chase("study", "ablation", "--rounds", "30", *place, "--json").out.split("jobs start")[1])
    (note,) = body["notes"]
    assert "clients run out of samples to ask for before round 30" in note
    other = ("--set", "form=cycles", "--set", "cycle_rounds=40")
    shown = chase("study", "ablation", "--rounds", "30", *place, *other).out
    assert "(--rounds 80 or more)" in shown, "here --rounds is that of every job"


def test_a_wrong_setting_is_no_missing_data(chase, tmp_path: Path) -> None:
    for dry in ((), ("--dry-run",)):
        shown = chase("study", "ablation", *TINY, "--set", "normalisation=authors", "--out", tmp_path / "s", *dry)
        assert (shown.code, shown.err.count("\n")) == (2, 1)
        assert "has no values for 'digits'" in shown.err
    shown = chase("study", "ablation", *TINY, "--set", "partition=natural", "--out", tmp_path / "s", "--dry-run")
    assert shown.code == 2
    assert "'digits' has no owners" in shown.err


def test_a_dry_run_says_what_and_how_long_and_writes_nothing(chase, tmp_path: Path) -> None:
    shown = chase("study", "ablation", *TINY, "--out", tmp_path / "s", "--dry-run")
    assert shown.code == 0
    assert "3 jobs, about" in shown.out
    assert "FedRandom" in shown.out
    body = json.loads(chase("study", "ablation", *TINY, "--out", tmp_path / "s", "--dry-run", "--json").out)
    assert body["seconds"] > 0
    assert {job["state"] for job in body["jobs"].values()} == {"waiting"}
    assert not (tmp_path / "s").exists()


def test_the_list_names_every_study(chase) -> None:
    names = {"ablation", "cost", "strong", "isolated"}
    assert names <= set(json.loads(chase("study", "list", "--json").out))
    shown = chase("study", "list").out
    assert all(name in shown for name in names)


def test_mistakes_are_one_sentence(chase, tmp_path: Path) -> None:
    for arguments, said in (
        (("ablaton",), "did you mean 'ablation'"),
        (("ablation", "--data", "mnits"), "did you mean 'mnist'"),
        (("ablation", "--set", "seed=3"), "use --seeds"),
        (("mu", "--data", "digits", "--set", "mu=0.5"), "its arms differ in mu"),
        (("cycles", "--set", "cycle_rounds=100"), "its scenes differ in cycle_rounds (25, 50, 75, 100); leave it out"),
        (("why", "--set", "client_weights=equal"), "its scenes differ in client_weights (labelled, equal)"),
        (("authors", "--set", "image_size=32"), "(as in the preset, 64)"),
        (("recommend", "--set", "budget=5"), "(4, 8, 24, 3); leave it out, choose one data set with --data, or"),
        (("ablation", "--data", "digits", "--seeds", 0), "0 is not in the range x>=1 (see `chase study run --help`)"),
        (("ablation", "--colour"), "No such option: --colour"),
        (("ablation", "--data", "digits", "--arm", "EVV"), "did you mean 'EV'"),
    ):
        shown = chase("study", *arguments, "--out", tmp_path / "s")
        assert (shown.code, shown.err.count("\n")) == (2, 1)
        assert said in shown.err
    assert not (tmp_path / "s").exists()


def test_data_that_is_not_there_leaves_no_plan_behind(chase, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CHASE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shown = chase("study", "ablation", "--data", "mnist", "--rounds", 2, "--out", tmp_path / "s")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert "'mnist'" in shown.err
    assert not (tmp_path / "s").exists()


def test_one_arm_stands_beside_what_the_directory_has_finished(chase, tmp_path: Path) -> None:
    for name, arm in (("ablation", "FedRandom"), ("cost", "FAm")):
        assert chase("study", name, *TINY, "--arm", arm, "--out", tmp_path, "--jobs", 1).code == 0
    (found,) = [plan for plan in plans_in(tmp_path) if plan.study == "cost"]
    assert {job.arm for job in found.jobs} == {"FedRandom", "FAm"}


def test_a_dry_run_plans_what_it_can_and_names_what_is_missing(chase, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CHASE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    wanted = ["digits,fashion.toml" if part == "digits" else part for part in TINY]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fashion.toml").write_text('data = "fashion-mnist"\nnet = "mnist-cnn"\nclients = 2\n')
    shown = chase("study", "ablation", *wanted, "--dry-run")
    assert shown.code == 0, shown.err
    assert "data missing" in shown.out
    assert "6 jobs, about" in shown.out
    assert "not counting 3 without data" in shown.out.replace("\n", " ")
    assert shown.out.count("missing: 'fashion-mnist' has no local copy") == 1
    body = json.loads(chase("study", "ablation", *wanted, "--dry-run", "--json").out)
    assert sorted(job["state"] for job in body["jobs"].values()) == ["missing"] * 3 + ["waiting"] * 3
    assert body["seconds"] > 0
    assert len(body["missing"]) == 1
    alone = ["fashion.toml" if part == "digits" else part for part in TINY]
    assert "3 jobs, all of them without data" in chase("study", "ablation", *alone, "--dry-run").out
