"""Studies of different lengths that share their runs: kills at odd moments, exported runs that begin again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chase.cli.study_notes import about_seeds, not_kept, other_lengths
from chase.cli.studying import finished_beside
from chase.core.files import read_jsonl
from chase.core.weights import Arrays
from chase.report.runs import MethodRuns, RunData, find_runs
from chase.run import data_check
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.run.loop import UNEVEN_SHARE, warned_before
from chase.run.record import Record
from chase.studies.catalog import find_study
from chase.studies.hypothesis_tests import of_one_length
from chase.studies.job import entry_of, is_done, open_job
from chase.studies.places import put_aside, run_place
from chase.studies.plan import Options, StudyJob, StudyPlan, plan, plan_file, write_plan
from chase.studies.publish import pack
from chase.studies.results import read_studies, up_to
from chase.studies.runner import look

TINY = {"clients": 2, "local_epochs": 2}


def job_of(rounds: int, study: str = "ablation", **changes: object) -> StudyJob:
    wanted = Options(("digits",), ("FedRandom",), rounds, 1, scale=0.1, changes={**TINY, **changes})
    return plan(find_study(study), wanted)[0]


def finish(directory: Path, job: StudyJob, study: str = "ablation") -> StudyJob:
    """Plan a job and run what is left of it; the job as it stands in the plan."""
    planned = next(kept for kept in write_plan(directory, study, [job]).jobs if kept.settings == job.settings)
    run = open_job(directory, planned)
    if run is not None:
        run.run(ends=planned.ends)
    return planned


def matrix_round(directory: Path, job: StudyJob, name: str = "confusion.json") -> int:
    return int(json.loads((directory / job.name / name).read_text())["round"])


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Kill runs before the checkpoint of a round; 0: no longer."""
    commit = Checkpoint.commit

    def set_round(at: int) -> None:
        def killed(self: Checkpoint, round: int, arrays: Arrays) -> None:
            if round == at:
                raise KeyboardInterrupt
            commit(self, round, arrays)

        monkeypatch.setattr(Checkpoint, "commit", killed)

    return set_round


def stop_before(directory: Path, job: StudyJob, killed_at: Callable[[int], None], round: int) -> None:
    killed_at(round)
    run = open_job(directory, job)
    assert run is not None
    with pytest.raises(KeyboardInterrupt):
        run.run(ends=job.ends)
    killed_at(0)


def test_the_matrix_of_the_last_round_is_there_before_the_round_counts(
    tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    finish(tmp_path, job_of(2))
    (longer,) = write_plan(tmp_path, "cost", [job_of(3, "cost")]).jobs
    stop_before(tmp_path, longer, killed_at, 3)
    assert not is_done(tmp_path, longer)
    assert matrix_round(tmp_path, longer) == 3
    finish(tmp_path, longer, "cost")
    assert matrix_round(tmp_path, longer) == 3
    assert matrix_round(tmp_path, longer, "confusion-2.json") == 2
    assert {r.study.name: r.done for r in read_studies(tmp_path)} == {"ablation": 1, "cost": 1}


def test_a_matrix_of_another_round_is_not_taken_for_that_of_the_end(tmp_path: Path) -> None:
    job = finish(tmp_path, job_of(2))
    file = tmp_path / job.name / "confusion.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"round": 1}))
    (result,) = read_studies(tmp_path)
    assert result.scenes[0].methods[0].first.confusion == {}


def test_entries_of_one_run_that_want_other_rounds_are_each_done_when_theirs_are(tmp_path: Path) -> None:
    """A setting given at its default makes another scene of the same run."""
    short = finish(tmp_path, job_of(2))
    longer = job_of(4, client_weights="labelled")
    assert (short.name, short.scene != longer.scene) == (longer.name, True)
    work = write_plan(tmp_path, "ablation", [longer])
    assert [entry_of(work, short.name, rounds).settings.rounds for rounds in (2, 4, 0)] == [2, 4, 4]
    (result,) = read_studies(tmp_path)
    assert (result.done, result.jobs) == (1, 2)
    (progress,) = look(work, work.jobs)
    assert (progress.job.settings.rounds, progress.state) == (4, "waiting")
    finish(tmp_path, longer)
    (result,) = read_studies(tmp_path)
    assert [len(scene.methods[0].first.metrics) for scene in result.scenes] == [2, 4]
    assert result.done == 2


def test_a_budget_or_a_target_makes_another_run_and_rounds_do_not() -> None:
    plain = job_of(2)
    assert plain.name == job_of(5).name
    assert len({plain.name, job_of(2, total_budget=5).name, job_of(2, target=0.5).name}) == 3


def test_a_shorter_study_keeps_its_exported_run_while_a_longer_one_begins_again(
    tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    finish(tmp_path / "made", job_of(2))
    pack(tmp_path / "made", tmp_path / "kept")
    short = job_of(2)
    (longer,) = write_plan(tmp_path / "kept", "cost", [job_of(4, "cost")]).jobs
    put_aside(tmp_path / "kept" / short.name)
    assert is_done(tmp_path / "kept", short), "killed before the run began again"
    stop_before(tmp_path / "kept", longer, killed_at, 2)
    assert is_done(tmp_path / "kept", short)
    assert open_job(tmp_path / "kept", short) is None
    by_study = {result.study.name: result for result in read_studies(tmp_path / "kept")}
    assert (by_study["ablation"].done, by_study["cost"].done) == (1, 0)
    assert by_study["ablation"].scenes[0].methods[0].first.confusion["round"] == 2
    pack(tmp_path / "kept", tmp_path / "out")
    assert len(read_jsonl(tmp_path / "out" / short.name / "metrics.jsonl")) == 2, "not the one round of the new run"
    (only,) = find_runs([tmp_path / "kept"])
    assert len(only.metrics) == 2, "lines of the new run, of which one is saved; the old run is not another one"
    finish(tmp_path / "kept", longer, "cost")
    assert run_place(tmp_path / "kept", longer.name) == tmp_path / "kept" / longer.name
    pack(tmp_path / "kept", tmp_path / "out")
    assert len(read_jsonl(tmp_path / "out" / longer.name / "metrics.jsonl")) == 4
    (tmp_path / "out" / longer.name / "confusion-9.json").write_text("{}")
    pack(tmp_path / "kept", tmp_path / "out")
    assert not (tmp_path / "out" / longer.name / "confusion-9.json").exists(), "the run has no such matrix"


def test_what_is_put_aside_twice_is_kept_twice(tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "metrics.jsonl.gz").write_text(text)
        put_aside(tmp_path / "run")
    assert [(tmp_path / "aside" / n / "run" / "metrics.jsonl.gz").read_text() for n in "12"] == ["first", "second"]
    (tmp_path / "run").mkdir()
    put_aside(tmp_path / "run")
    assert (tmp_path / "run").is_dir(), "what was not exported stays"


def test_a_shorter_study_is_done_where_a_longer_run_was_killed_in_a_later_round(
    tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    (longer,) = write_plan(tmp_path, "cost", [job_of(4, "cost")]).jobs
    stop_before(tmp_path, longer, killed_at, 3)
    assert len(read_jsonl(tmp_path / longer.name / "metrics.jsonl")) == 3
    assert is_done(tmp_path, job_of(1))
    assert is_done(tmp_path, job_of(2))
    assert not is_done(tmp_path, job_of(3)), "its line is there, its checkpoint is not"


def test_a_run_that_is_killed_while_it_begins_has_its_account_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(1)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data_check, "keep", killed)
    with pytest.raises(KeyboardInterrupt):
        open_job(tmp_path, job)
    assert not (tmp_path / job.name / "settings.toml").exists(), "a directory with settings has all of its account"
    monkeypatch.undo()
    finish(tmp_path, job)
    assert {"coverage.json", "data.json"} <= {file.name for file in (tmp_path / job.name).iterdir()}


def test_a_run_of_an_earlier_version_without_account_begins_again(tmp_path: Path) -> None:
    job = job_of(1)
    Experiment.begin(job.settings, tmp_path / job.name)
    (tmp_path / job.name / "coverage.json").unlink()
    finish(tmp_path, job)
    assert (tmp_path / job.name / "coverage.json").is_file()


def test_rounds_of_shorter_studies_stay_in_the_plan(tmp_path: Path) -> None:
    finish(tmp_path, job_of(1))
    for _ in range(2):  # the second time the plan does not have the one round itself any more
        (job,) = write_plan(tmp_path, "ablation", [job_of(3)]).jobs
        assert job.ends == (1,)


def test_a_study_says_that_a_run_under_way_is_past_its_last_round(
    tmp_path: Path, killed_at: Callable[[int], None]
) -> None:
    (longer,) = write_plan(tmp_path, "cost", [job_of(4, "cost")]).jobs
    stop_before(tmp_path, longer, killed_at, 4)
    work = write_plan(tmp_path, "ablation", [job_of(2)])
    assert [note[:29] for note in not_kept(work, look(work, work.jobs))] == ["1 run was past round 2 already"[:29]]


def test_a_study_says_that_a_run_had_gone_past_its_last_round(tmp_path: Path) -> None:
    finish(tmp_path, job_of(3, "cost"), "cost")
    work = write_plan(tmp_path, "ablation", [job_of(2)])
    (note,) = not_kept(work, look(work, work.jobs))
    assert note.startswith("1 run was past round 2 already, and which classes the model confused")
    again = write_plan(tmp_path, "cost", [job_of(3, "cost")])
    assert not_kept(again, look(again, again.jobs)) == []


def test_one_arm_with_fewer_rounds_does_not_shorten_the_others(tmp_path: Path) -> None:
    finish(tmp_path, job_of(3))
    asked = Options(("digits",), ("EV",), 2, 1, scale=0.1, changes=TINY)
    assert finished_beside(find_study("ablation"), asked, tmp_path) == []
    (tmp_path / "ablation.study.json").unlink()
    assert [job.arm for job in finished_beside(find_study("ablation"), asked, tmp_path)] == ["FedRandom"]


def test_the_last_round_of_a_shorter_study_is_evaluated_in_a_longer_run(tmp_path: Path) -> None:
    alone = Experiment.begin(job_of(3, eval_every=2).settings, tmp_path / "alone").run()
    longer = Experiment.begin(job_of(4, eval_every=2).settings, tmp_path / "longer").run(ends=(3,))
    assert [line["test_accuracy"] is None for line in longer] == [True, False, False, False]
    assert longer[2]["test_accuracy"] == alone[2]["test_accuracy"]


def test_what_is_said_of_later_rounds_is_not_shown_for_earlier_ones(tmp_path: Path) -> None:
    lines = [{"round": n} for n in (1, 2, 3)]
    notes = ["from round 3 on client 0 has 50 %", "2 clients run out before round 2", "a class is missing"]
    run = RunData(tmp_path, {"seed": 0}, lines, confusion={"round": 3}, notes=notes)
    cut = up_to(run, 2)
    assert (len(cut.metrics), cut.notes, cut.confusion) == (2, notes[1:], {})
    assert up_to(run, 3) is run
    assert up_to(replace(run, confusion={"round": 1}), 3, 200).notes == notes, "the study wants more rounds"
    shorter = replace(run, metrics=lines[:2], confusion={"round": 2}, settings={"seed": 1})
    both = of_one_length(MethodRuns("EV", [run, shorter]))
    assert [len(one.metrics) for one in both.runs] == [2, 2]
    assert [one.confusion for one in both.runs] == [{}, {"round": 2}]


def test_seeds_are_named_where_a_note_does_not_hold_for_all() -> None:
    assert about_seeds([(0, "a 1"), (2, "a 1")], 2) == ": a 1"
    assert about_seeds([(0, "a 1"), (2, "a 1")], 3) == ", seed 0: a 1 (for seed 2 too)"
    assert about_seeds([(0, "a 1"), (1, "a 2"), (2, "a 1")], 3) == ", seed 0: a 1 (in other numbers for seeds 1, 2 too)"
    assert about_seeds([(1, "a 1")], 2) == ", seed 1: a 1"


def test_a_warning_of_a_round_that_is_done_again_is_removed(tmp_path: Path) -> None:
    run = Experiment.begin(job_of(1).settings, tmp_path / "run")
    said = f"from round 12 on client 3 has 40 % {UNEVEN_SHARE}"
    run.record.add_notes([said, "another"])
    record = Record.open(tmp_path / "run")
    assert warned_before(record, 12) == said
    assert said in record.notes
    assert warned_before(record, 11) == ""
    assert said not in record.notes
    assert "another" in record.notes


def test_another_number_of_rounds_is_said_before_it_replaces_the_first(tmp_path: Path) -> None:
    def planned(rounds: int) -> StudyPlan:
        jobs = plan(find_study("ablation"), Options(("digits",), ("FedRandom", "EV"), rounds, 2))
        return StudyPlan("ablation", plan_file(tmp_path, "ablation"), jobs)

    assert other_lengths(planned(12)) == []
    write_plan(tmp_path, "ablation", planned(12).jobs)
    assert other_lengths(planned(12)) == []
    (longer,), (shorter,) = other_lengths(planned(40)), other_lengths(planned(3))
    assert longer.startswith(
        "this directory has 4 runs of this study for 12 rounds, wanted for 40 now: the page leaves"
    )
    assert "shows them up to round 3 only" in shorter
