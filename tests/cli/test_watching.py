"""``chase watch`` reads what a run or a study has written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chase.cli.watching import spark, view
from chase.core.errors import RunDirectoryError
from chase.core.files import locked, read_jsonl
from chase.run.record import LOCK, Record
from chase.studies.catalog import find_study
from chase.studies.job import failure_of
from chase.studies.plan import Options, plan, write_plan
from chase.studies.runner import held


def test_bars_from_low_to_high() -> None:
    assert spark([0.0, 0.5, 1.0]) == "▁▅█" or spark([0.0, 0.5, 1.0]) == "▁▄█"
    assert spark([2.0, float("nan"), 2.0]) == "▁▁"
    assert spark([]) == ""
    long = spark([float(i) for i in range(1000)], 10)
    assert (len(long), long[0], long[-1]) == (10, "▁", "█")


def test_a_run_is_shown_with_its_curves(chase, run_dir: Path) -> None:
    shown = chase("watch", run_dir)
    assert shown.code == 0
    assert "round 3/3" in shown.out
    assert "accuracy, %" in shown.out
    assert re.search(r"samples  labelled \d+, unlabelled \d+, asked 0, dormant \d+, set aside 0", shown.out)
    titles = ("accuracy, %", "test loss", "labels", "seconds per round")
    ends = {line.index(title) + len(title) for title in titles for line in shown.out.splitlines()[1:] if title in line}
    assert len(ends) == 1, "the values stand below each other"
    assert "left" not in shown.out.splitlines()[0]


def test_a_run_that_stopped_at_its_target_is_over(chase, tmp_path: Path) -> None:
    ran = chase("run", "digits", "--rounds", "30", "--set", "target_accuracy=0.01", "--out", tmp_path / "one")
    assert ran.code == 0
    lines, over = view(tmp_path / "one")
    assert over
    assert "left" not in str(lines[0])
    settings = tmp_path / "one" / "settings.toml"
    settings.write_text(settings.read_text() + "of_an_earlier_version = 1\n")
    assert view(tmp_path / "one")[1]


def test_runs_beside_each_other(chase, run_dir: Path) -> None:
    assert "one  round 3/3" in chase("watch", run_dir.parent).out


def test_a_study_shows_its_jobs_under_way(run_dir: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV", "FedRandom"), 6, 1))
    write_plan(tmp_path, "ablation", jobs)
    run_dir.rename(tmp_path / jobs[0].name)
    lines, over = view(tmp_path)
    text = "\n".join(str(line) for line in lines)
    assert not over
    assert "ablation: 0/2 jobs, 3/12 rounds" in text
    assert "FedRandom · seed 0  round 3/6" in text
    assert len(read_jsonl(tmp_path / jobs[0].name / "metrics.jsonl")) == 3


def test_a_study_names_the_jobs_that_failed_and_says_whether_it_is_run(tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV", "FedRandom", "CHASe"), 6, 1))
    write_plan(tmp_path, "ablation", jobs)
    (tmp_path / "logs").mkdir()
    failed, stopped, running = (job.name for job in jobs)
    (tmp_path / "logs" / f"{stopped}.txt").write_text("a warning\n")
    for name in (failed, running):
        failure_of(tmp_path, name).write_text("the data is gone")
    with locked(tmp_path / "locks" / running), held(tmp_path, "ablation"):
        lines, over = view(tmp_path)
        with pytest.raises(RunDirectoryError, match="being run"), held(tmp_path, "cost"):
            pass
    assert not over
    assert str(lines[0]).endswith("0/3 jobs, 0/18 rounds, 1 failed")
    assert [str(line) for line in lines[1:]] == ["  digits, ReCo · FedRandom · seed 0  failed: the data is gone"]
    with held(tmp_path, "cost"):  # another study in the same directory
        lines, over = view(tmp_path)
    assert str(lines[0]).endswith("2 failed, not running")
    assert not over
    assert str(view(tmp_path)[0][0]) == str(lines[0])
    failure_of(tmp_path, stopped).write_text("ended with exit code -9")
    assert view(tmp_path)[1], "nothing more will come"


def test_a_failed_job_that_is_resumed_by_hand_is_under_way(run_dir: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV",), 6, 1))
    write_plan(tmp_path, "ablation", jobs)
    run_dir.rename(tmp_path / jobs[0].name)
    (tmp_path / "logs").mkdir()
    failure_of(tmp_path, jobs[0].name).write_text("mlflow could not log the run")
    assert "failed: mlflow" in str(view(tmp_path)[0][1])
    with Record.open(tmp_path / jobs[0].name).held():
        assert "EV · seed 0  round 3/6" in str(view(tmp_path)[0][1])


def test_a_place_without_a_run_is_one_sentence(chase, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        shown = chase("watch", place)
        assert shown.code == 2
        assert "has no run and no study in it" in shown.err


def test_a_run_that_nobody_works_on_is_called_stopped(chase, run_dir: Path) -> None:
    settings = run_dir / "settings.toml"
    settings.write_text(settings.read_text().replace("rounds = 3", "rounds = 9"))
    shown = chase("watch", run_dir)
    assert "round 3/9" in shown.out
    assert "stopped" in shown.out.splitlines()[0]
    assert "left" not in shown.out.splitlines()[0]
    assert f"chaseresume{run_dir}" in "".join(shown.out.split())
    assert view(run_dir)[1], "there is nothing to wait for"
    assert "round 3/9" in chase("watch", run_dir.parent).out
    with locked(run_dir / LOCK, "in use"):
        lines, over = view(run_dir)
        assert not over
        assert "stopped" not in str(lines[0])
