"""Studies run for real, small: finished jobs are never run again, a killed runner loses nothing that was done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chase.cli.studying import study
from chase.core.errors import ChaseError
from chase.core.files import locked, read_jsonl, to_jsonl
from chase.run.experiment import Experiment
from chase.studies.catalog import find_study
from chase.studies.job import is_done
from chase.studies.plan import Options, StudyPlan, plan, write_plan
from chase.studies.runner import Progress, check, held, look, run_jobs, seconds_left

TINY = {"clients": 2, "local_epochs": 2}


def tiny(rounds: int = 2) -> Options:
    return Options(("digits",), ("FedRandom", "EV"), rounds, 1, scale=0.2, changes=TINY)


def prepared(directory: Path, options: Options) -> StudyPlan:
    return write_plan(directory, "ablation", plan(find_study("ablation"), options))


def times(directory: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("*/metrics.jsonl")}


def without_times(path: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in read_jsonl(path)]


def test_jobs_run_side_by_side_and_only_once(tmp_path: Path) -> None:
    work = prepared(tmp_path, tiny())
    jobs, seen = look(work, work.jobs), []
    run_jobs(work, jobs, 2, lambda some: seen.append([p.state for p in some]))
    assert [p.state for p in jobs] == ["done"] * 2
    assert max(states.count("running") for states in seen) == 2
    assert [p.rounds for p in jobs] == [2, 2]
    before = times(tmp_path)
    again = look(work, work.jobs)
    assert [p.state for p in again] == ["done"] * 2
    run_jobs(work, again, 2, lambda some: None)
    assert times(tmp_path) == before


def test_a_job_keeps_what_a_shorter_study_of_its_directory_reads(tmp_path: Path) -> None:
    (short,) = plan(find_study("ablation"), replace(tiny(1), arms=("FedRandom",)))
    write_plan(tmp_path, "ablation", [short])
    longer = replace(short, settings=short.settings.model_copy(update={"rounds": 2}))
    work = write_plan(tmp_path, "cost", [longer])
    run_jobs(work, look(work, work.jobs), 1, lambda some: None)
    rounds = {file.name: json.loads(file.read_text())["round"] for file in tmp_path.glob("*/confusion*.json")}
    assert rounds == {"confusion-1.json": 1, "confusion.json": 2}


def test_killing_the_runner_ends_its_jobs_and_a_restart_goes_on(tmp_path: Path) -> None:
    options = [f"--set={key}={value}" for key, value in TINY.items()]
    command = [
        *(sys.executable, "-c", "from chase.cli import main; main()", "study", "ablation", "--data", "digits"),
        *(
            "--rounds",
            "30",
            "--seeds",
            "1",
            "--scale",
            "0.2",
            "--jobs",
            "1",
            "--out",
            str(tmp_path),
            "--arm",
            "FedRandom",
            "--arm",
            "EV",
            *options,
        ),
    ]
    runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    work = plan(find_study("ablation"), tiny(30))
    second = tmp_path / work[1].name / "metrics.jsonl"
    end = time.monotonic() + 240
    try:
        while len(read_jsonl(second)) < 2:
            assert time.monotonic() < end, "the second job never began"
            time.sleep(0.02)
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
    with locked(tmp_path / "locks" / work[1].name, wait=True):  # granted once the orphaned job is gone
        finished, cut = times(tmp_path)[work[0].name], len(read_jsonl(second))
    assert is_done(tmp_path, work[0])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "2 of 2 jobs done" in done.stdout
    assert times(tmp_path)[work[0].name] == finished, "a finished job was run again"
    assert len(read_jsonl(second)) == 30
    assert 2 <= cut < 30, "killed too late to prove anything"
    alone = tmp_path / "alone"
    Experiment.begin(work[1].settings, alone).run()
    assert without_times(second) == without_times(alone / "metrics.jsonl")


def test_a_job_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    work = prepared(tmp_path, tiny())
    (tmp_path / work.jobs[0].name).mkdir()
    (tmp_path / work.jobs[0].name / "environment.json").mkdir()
    jobs = look(work, work.jobs)
    run_jobs(work, jobs, 2, lambda some: None)
    assert [p.state for p in jobs] == ["failed", "done"]
    with pytest.raises(ChaseError, match=f"1 of 2 jobs failed: {work.jobs[0].name}: cannot write"):
        check(jobs)


def test_two_runners_in_one_directory_are_refused(tmp_path: Path) -> None:
    work = prepared(tmp_path, tiny())
    before = work.path.read_bytes()
    with held(tmp_path, "ablation"), pytest.raises(ChaseError, match="being run"):
        study("ablation", data="digits", rounds=9, seeds=1, out=tmp_path)
    assert work.path.read_bytes() == before, "the jobs still to come read their rounds from the plan"


def test_time_left_is_the_estimate_put_right_by_what_was_measured() -> None:
    """Two jobs of 2 rounds at an expected second each; one round took 3 s: 3 rounds left, 9 s, 2 workers."""
    job = plan(find_study("ablation"), tiny())[0]
    half = Progress(job, 1.0, "running", rounds=1, seconds=3.0)
    whole = Progress(job, 1.0)
    assert seconds_left([half, whole], 1) == pytest.approx(9.0)
    assert seconds_left([half, whole], 2) == pytest.approx(6.0), "one job cannot run on two cores"
    assert seconds_left([Progress(job, 1.0, "done", rounds=2)], 2) == 0.0
    whole.start_seconds = 10.0
    assert seconds_left([half, whole], 1) == pytest.approx(19.0), "the pace of rounds is not that of starts"


def test_progress_follows_a_file_that_is_cut_and_grows(tmp_path: Path) -> None:
    job = plan(find_study("ablation"), tiny())[0]
    path = tmp_path / job.name / "metrics.jsonl"
    path.parent.mkdir()
    lines = [json.dumps({"round": r, "seconds": 2.0, "test_accuracy": r / 10}) + "\n" for r in (1, 2, 3)]
    progress = Progress(job, 1.0)
    path.write_text("".join(lines[:2]) + lines[2][:5])
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds, progress.accuracy) == (2, 4.0, 0.2)
    path.write_text(lines[0])
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds) == (1, 2.0)
    path.write_text("".join(lines))
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds, progress.accuracy) == (3, 6.0, 0.3)


def test_progress_reads_up_to_a_damaged_line_and_on_when_it_was_done_again(tmp_path: Path) -> None:
    job = plan(find_study("ablation"), tiny())[0]
    path = tmp_path / job.name / "metrics.jsonl"
    path.parent.mkdir()
    lines = [json.dumps({"round": r, "seconds": 2.0, "test_accuracy": r / 10}) + "\n" for r in (1, 2, 3)]
    path.write_text(lines[0] + '{"round": 2, "tes\n' + lines[2])
    progress = Progress(job, 1.0)
    progress.update(tmp_path)
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds) == (1, 2.0)
    path.write_text("".join(lines))
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds) == (3, 6.0)


@pytest.mark.parametrize("seconds", [12.25, 0.5])
def test_progress_follows_a_line_that_was_cut_and_written_again_between_two_looks(
    tmp_path: Path, seconds: float
) -> None:
    """A job that was killed before its last checkpoint does that round again: a longer line, or a shorter one."""
    job = plan(find_study("ablation"), tiny())[0]
    path = tmp_path / job.name / "metrics.jsonl"
    path.parent.mkdir()
    progress = Progress(job, 1.0)
    path.write_text(to_jsonl({"round": r, "seconds": 2.25} for r in (1, 2)))
    progress.update(tmp_path)
    path.write_text(to_jsonl([{"round": 1, "seconds": 2.25}, *({"round": r, "seconds": seconds} for r in (2, 3))]))
    progress.update(tmp_path)
    assert (progress.rounds, progress.seconds) == (3, 2.25 + 2 * seconds)
