"""A finished study: page, tables, export and the results page, from two seeds of tiny runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chase.core.errors import ChaseError
from chase.core.files import read_jsonl
from chase.core.prose import too_wide
from chase.core.weights import Arrays
from chase.report import charts, plots
from chase.report.runs import MethodRuns
from chase.report.tables import NONE
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.settings import load
from chase.studies import paper
from chase.studies.catalog import STUDIES, find_study
from chase.studies.figures import FIGURES, places, smooth
from chase.studies.findings import (
    NOTHING_FOUND,
    comparisons,
    findings,
    own_classes_findings,
    paper_findings,
    settled_share,
)
from chase.studies.hypotheses import Where
from chase.studies.hypothesis_tests import Group, candidates
from chase.studies.job import is_done, open_job
from chase.studies.overview import conditions
from chase.studies.page import parts_section, write_study
from chase.studies.plan import Options, plan, plans_in, write_plan
from chase.studies.publish import pack, publish
from chase.studies.repeat import commands
from chase.studies.results import read_studies
from chase.studies.runner import look
from chase.studies.scene_tables import changed, departures, paper_table, variant_table
from chase.studies.study_page import across_text

TINY = {"clients": 2, "local_epochs": 2}
LESS = {"test_limit": 50}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random and EV with two seeds, a third arm not yet begun; not to be changed."""
    path = tmp_path_factory.mktemp("studies")
    jobs = plan(find_study("ablation"), Options(("digits",), (), 2, 2, scale=0.2, changes=TINY))
    write_plan(path, "ablation", jobs)
    for job in jobs:
        if job.arm != "CHASe":
            Experiment.begin(job.settings, path / job.name).run()
    return path


def test_the_page_says_what_was_found_and_what_is_missing(finished: Path) -> None:
    (result,) = read_studies(finished)
    assert (result.done, result.jobs) == (4, 6)
    page = write_study(result, finished)
    assert page is not None
    text = page.read_text()
    assert "4 of 6 jobs are finished" in text
    assert "EV against FedRandom after round 2" in text
    assert "Not finished yet: CHASe. What is unfinished is left out." in text
    assert text.count("EV against FedRandom after round 2") == 1, "the findings stand once"
    assert "Samples of each class, by client" in text
    assert "Confusion: EV" in text
    assert text.count("data:image/png;base64,") >= 4, "the gallery shows what was asked for"
    (finished / "ablation-tables" / "ablation-old-results.csv").touch()
    (finished / "ablation-tables" / "own.csv").touch()
    write_study(result, finished)
    tables = {file.name for file in (finished / "ablation-tables").iterdir()}
    assert "ablation-old-results.csv" not in tables
    assert "own.csv" in tables, "not ours to remove"
    (finished / "ablation-tables" / "own.csv").unlink()
    for name in ("results", "cost", "to-reach", "summary", "accuracy", "settings", "versions"):
        assert any(file.endswith(f"data-{name}.csv") for file in tables), name
    assert {name.rsplit(".", 1)[1] for name in tables} == {"csv", "tex"}
    assert any("results" in name for name in tables)


@pytest.mark.usefixtures("drawn_figures")
def test_results_are_made_from_the_packed_runs_alone_and_the_same_each_time(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert pack(finished, out / "tiny") == 4
    page = publish(out)
    first = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    text = page.read_text()
    assert "4 of 6 jobs are finished" in text
    again = "chase study ablation --data digits --rounds 2 --seeds 2 --scale 0.2 --set clients=2 --set local_epochs=2"
    assert f"{again} --out tiny" in text
    assert not any("checkpoint" in str(p) for p in first)
    assert str(finished).encode() not in b"".join(first.values())
    assert "[ablation (tiny)](tiny/ablation-study.md)" in text
    linked = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (out / "tiny" / "ablation-study.md").read_text())
    assert linked
    assert all((out / "tiny" / name).read_text().startswith("<svg xmlns=") for name in linked)
    drawn = (out / "tiny" / linked[0]).read_text()
    assert "var(--" not in drawn
    assert re.search(r'<svg [^>]*width="\d+" height="\d+"', drawn), "else it fills the page"
    for stale in ("figures/ablation-old.svg", "tables/ablation-old.csv", "old-study.md"):
        (out / "tiny" / stale).write_text("of an arm that is no more")
    pack(finished, out / "tiny")
    publish(out)
    assert {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} == first


def test_notes_of_jobs_reach_the_page_and_an_export(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "studies"
    shutil.copytree(finished, copy)
    jobs = [job for job in plans_in(copy)[0].jobs if job.arm != "CHASe"]
    for job in jobs:
        notes = ["no client holds any sample of: zebra", *(["a disk was slow"] if job == jobs[-1] else [])]
        (copy / job.name / "notes.json").write_text(json.dumps(notes))
    page = write_study(read_studies(copy)[0], copy)
    assert page is not None
    assert "No client holds any sample of: zebra." in page.read_text()
    pack(copy, tmp_path / "results" / "tiny")
    kept = json.loads((tmp_path / "results" / "tiny" / jobs[-1].name / "notes.json").read_text())
    assert kept == ["no client holds any sample of: zebra", "a disk was slow"]
    publish(tmp_path / "results")
    text = (tmp_path / "results" / "tiny" / "ablation-study.md").read_text()
    assert text.count("- No client holds any sample of: zebra.") == 1
    assert "- EV, seed 1: a disk was slow." in text


def test_a_study_of_one_method_says_that_nothing_is_compared(tmp_path: Path) -> None:
    (job,) = plan(find_study("ablation"), Options(("digits",), ("FedRandom",), 2, 1, scale=0.2, changes=TINY))
    write_plan(tmp_path / "runs", "ablation", [job])
    Experiment.begin(job.settings, tmp_path / "runs" / job.name).run()
    page = write_study(read_studies(tmp_path / "runs")[0], tmp_path / "runs")
    assert page is not None
    assert NOTHING_FOUND in page.read_text()
    pack(tmp_path / "runs", tmp_path / "results" / "one")
    publish(tmp_path / "results")
    assert f"## What was found\n\n{NOTHING_FOUND}\n" in (tmp_path / "results/one/ablation-study.md").read_text()


def test_the_command_that_repeats_cycles_names_the_rounds_of_the_shortest(tmp_path: Path) -> None:
    wanted = plan(find_study("cycles"), Options(("digits",), rounds=60, seeds=2))
    assert {job.settings.rounds for job in wanted} == {60, 120, 180, 240}
    write_plan(tmp_path, "cycles", wanted)
    (result,) = read_studies(tmp_path)
    assert commands(result, "out") == ["chase study cycles --data digits --rounds 60 --seeds 2 --out out"]


def planned_by(line: str) -> set[tuple[int, str]]:
    """What a printed command plans: part and name of every job."""
    chase, study, name, *words = shlex.split(line)
    assert (chase, study) == ("chase", "study")
    given: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            key = word
            given.setdefault(key, [])
        else:
            given[key].append(word)
    changes = {key: json.loads(value) for key, _, value in (text.partition("=") for text in given.get("--set", []))}
    options = Options(
        tuple(given["--data"][0].split(",")) if "--data" in given else (),
        tuple(given.get("--arm", ())),
        int(given.get("--rounds", ["0"])[0]),
        int(given["--seeds"][0]),
        int(given.get("--first-seed", ["0"])[0]),
        float(given.get("--scale", ["1"])[0]),
        changes,
        "--no-labels" in given,
    )
    return {(job.part, job.name) for job in plan(find_study(name), options)}


ASKED = {
    "plain": Options(seeds=2),
    "scaled": Options(seeds=1, first_seed=6, scale=0.2),
    "changed": Options(seeds=1, changes={"momentum": 0.3}, no_labels=True),
    "tested": Options(seeds=1, scale=0.3, changes={"test_limit": 77}),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_printed_commands_plan_exactly_the_runs_of_a_study(name: str, asked: str, tmp_path: Path) -> None:
    wanted = plan(find_study(name), ASKED[asked])
    write_plan(tmp_path, name, wanted)
    (result,) = read_studies(tmp_path)
    found = set().union(*map(planned_by, commands(result, "out")))
    assert found == {(job.part, job.name) for job in wanted}


def test_data_sets_with_other_seeds_have_a_command_each(tmp_path: Path) -> None:
    write_plan(tmp_path, "ablation", plan(find_study("ablation"), Options(("mnist",), rounds=200, seeds=6)))
    write_plan(tmp_path, "ablation", plan(find_study("ablation"), Options(("cifar10",), rounds=200, seeds=3)))
    assert commands(read_studies(tmp_path)[0], "why") == [
        "chase study ablation --data mnist --rounds 200 --seeds 6 --out why",
        "chase study ablation --data cifar10 --rounds 200 --seeds 3 --out why",
    ]


def test_part_of_a_study_is_repeated_without_other_data_sets_in_its_parts(tmp_path: Path) -> None:
    """``authors`` has another data set in each part: named, every part would get both."""
    arms = ("FedRandom", "EV", "CHASe, all-global")
    wanted = plan(find_study("authors"), Options((), arms, 60, 3))
    write_plan(tmp_path, "authors", wanted)
    (line,) = commands(read_studies(tmp_path)[0], "why")
    assert line == (
        "chase study authors --rounds 60 --seeds 3 --arm FedRandom --arm EV --arm 'CHASe, all-global' --out why"
    )
    assert planned_by(line) == {(job.part, job.name) for job in wanted}


@pytest.mark.parametrize(("changes", "beside"), [({}, True), ({"partition": "dirichlet", "alpha": 0.1}, False)])
def test_the_papers_figures_stand_beside_its_own_way_of_sharing_out_data(
    changes: dict[str, Any], beside: bool, tmp_path: Path
) -> None:
    for data, expected in (("mnist", beside), ("cifar100", True)):  # the paper has CIFAR-100 by Dirichlet
        directory = tmp_path / data
        write_plan(directory, "ablation", plan(find_study("ablation"), Options((data,), seeds=1, changes=changes)))
        (scene,) = read_studies(directory)[0].scenes
        assert scene.beside_paper is expected


def test_what_part_of_the_data_was_used_is_told_apart(tmp_path: Path) -> None:
    """Else runs on part of the data would stand in a row with those on all of it."""
    found = []
    for number, options in enumerate(
        (
            Options(("mnist",), seeds=1),
            Options(("mnist",), seeds=1, scale=0.3),
            Options(("mnist",), seeds=1, changes=LESS),
        )
    ):
        write_plan(tmp_path / str(number), "ablation", plan(find_study("ablation"), options))
        (scene,) = read_studies(tmp_path / str(number))[0].scenes
        group = Group("EV", scene.jobs[0].settings.model_dump(), MethodRuns("EV", []), changed(scene))
        found.append((conditions(group), departures(scene), candidates([group], "mnist", Where("EV", {})) != []))
    assert found == [
        ("weights by labels", [], True),
        ("weights by labels, 3,000 test samples, 30 % of the data", [], False),
        ("weights by labels, 50 test samples", ["test_limit = 50"], False),
    ]


def test_a_run_that_another_study_ran_for_longer_is_cut(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV",), 1, 2, scale=0.2, changes=TINY))
    for job in jobs:
        (tmp_path / job.name).symlink_to(finished / job.name)
    write_plan(tmp_path, "ablation", jobs)
    (result,) = read_studies(tmp_path)
    assert result.done == 2
    assert [len(run.metrics) for method in result.scenes[0].methods for run in method.runs] == [1, 1]


def test_the_errors_of_an_earlier_end_are_kept_where_a_run_goes_on(finished: Path, tmp_path: Path) -> None:
    directory, out = tmp_path / "studies", tmp_path / "kept"
    shutil.copytree(finished, directory)
    (plan_,) = plans_in(directory)
    run = directory / plan_.jobs[0].name
    before = json.loads((run / "confusion.json").read_text())
    Experiment.resume(run, {"rounds": 3}).run()
    assert json.loads((run / "confusion.json").read_text())["round"] == 3
    assert pack(directory, out)
    for place in (directory, out):
        (result,) = read_studies(place)
        cut = next(r for scene in result.scenes for m in scene.methods for r in m.runs if r.path.name == run.name)
        assert (len(cut.metrics), cut.confusion) == (2, before)


def test_arms_and_seeds_that_are_missing_are_named(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), (), 2, 3, scale=0.2, changes=TINY))
    for job in jobs:
        if (finished / job.name).is_dir() and (job.arm, job.settings.seed) != ("FedRandom", 1):
            (tmp_path / job.name).symlink_to(finished / job.name)
    write_plan(tmp_path, "ablation", jobs)
    (result,) = read_studies(tmp_path)
    said = findings(result.scenes[0])
    first, each = comparisons(result.scenes[0])
    assert first == "", "few comparisons need no sentence on all of them"
    assert "with one seed" in each[0], "only one seed has both arms"
    assert said[-1].startswith("Not finished yet: FedRandom (1 of 3 seeds done), EV (2 of 3 seeds done), CHASe.")


def test_runs_under_way_are_called_that(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("FedRandom", "EV"), 5, 2, scale=0.2, changes=TINY))
    for job in jobs:
        (tmp_path / job.name).symlink_to(finished / job.name)
    write_plan(tmp_path, "ablation", jobs)
    (result,) = read_studies(tmp_path)
    assert result.state == "0 of 4 jobs are finished"
    assert findings(result.scenes[0])[-1] == "Nothing here is finished: what is shown is of runs under way."


def test_a_run_that_reached_its_target_is_finished(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV",), 5, 1, scale=0.2, changes=TINY))
    (tmp_path / jobs[0].name).symlink_to(finished / jobs[0].name)
    early = [replace(jobs[0], settings=jobs[0].settings.model_copy(update={"target": 1e-9}))]
    for wanted, done in ((jobs, 0), (early, 1)):
        write_plan(tmp_path, "ablation", wanted)
        assert read_studies(tmp_path)[0].done == done


def test_without_what_the_others_are_compared_with_nothing_is_compared(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1, scale=0.2, changes=TINY))
    (tmp_path / jobs[0].name).symlink_to(finished / jobs[0].name)
    write_plan(tmp_path, "ablation", jobs)
    assert (
        "FedRandom, which the others are to be compared with, was not run"
        in findings(read_studies(tmp_path)[0].scenes[0])[0]
    )


def test_directories_of_one_study_are_told_apart(finished: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack(finished, tmp_path / name)
    (tmp_path / "two" / "notes.md").write_text("The second on a slow machine.\n")
    (tmp_path / "notes.md").write_text("Before the change.\n")
    text = publish(tmp_path).read_text()
    assert text.index("| study |") < text.index("Before the change.") < text.index("<summary>What each study runs")
    one, two = ((tmp_path / name / "ablation-study.md").read_text() for name in ("one", "two"))
    assert "Notes" not in one
    assert two.index("## What was found") < two.index("The second on a slow machine.") < two.index("## digits, ReCo")
    for name in ("one", "two"):
        assert f"| [ablation ({name})]({name}/ablation-study.md) |" in text
    assert text.count("4 of 6 jobs are finished") == 2


def test_links_lead_to_directories_of_any_name(finished: Path, tmp_path: Path) -> None:
    pack(finished, tmp_path / "full [2]")
    assert "[ablation (full \\[2\\])](full%20%5B2%5D/ablation-study.md)" in publish(tmp_path).read_text()


def test_an_export_names_a_damaged_file(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "runs")
    around = next((tmp_path / "runs").glob("*seed0/environment.json"))
    around.write_text("")
    with pytest.raises(ChaseError, match=rf"{re.escape(str(around))} cannot be read"):
        pack(tmp_path / "runs", tmp_path / "out")


def test_the_results_page_leads_with_what_holds_and_one_table(finished: Path, tmp_path: Path) -> None:
    """Twelve rounds of what `why` runs, both arms of one seed and one of the next: short, and the rest folded."""
    asked = Options(("digits",), ("FedRandom", "EV"), 12, 2, scale=0.2, changes=TINY)
    jobs = plan(find_study("why"), asked)
    write_plan(tmp_path / "runs", "why", jobs)
    for job in jobs[:3]:
        Experiment.begin(job.settings, tmp_path / "runs" / job.name).run()
    pack(tmp_path / "runs", tmp_path / "out" / "why")
    text = publish(tmp_path / "out").read_text()
    lead, rest = text.split("<details>", 1)
    assert lead.count("| --- |") == 1, "one table"
    assert "| digits | weights by labels, " in lead
    assert "| 12 | 1 of 2 |" in lead
    for name in ("What holds", "What does not hold", "What the paper did not control"):
        assert lead.count(f"**{name}**") == 1
        assert lead.index(f"**{name}**") < lead.index("| --- |")
    assert "[why.md](why.md)" in lead
    assert "Studies: [why](why/why-study.md)." in " ".join(lead.split())
    assert not re.search(r"^(\*\*|\w|- )", rest.split("</details>")[-1], re.MULTILINE), "the rest is folded"
    for page in (tmp_path / "out").rglob("*.md"):
        assert not too_wide(page.read_text(encoding="utf-8")), page
    assert rest.count("<details>") == 4  # and the first one
    assert "No run is finished" not in text
    assert (tmp_path / "out" / "why.md").is_file()
    (tmp_path / "none").mkdir()
    pack(tmp_path / "runs", tmp_path / "none" / "why")
    plans = json.loads((tmp_path / "none/why/why.study.json").read_text())
    for entry in plans["jobs"]:
        entry["settings"]["rounds"] = 60
    (tmp_path / "none/why/why.study.json").write_text(json.dumps(plans))
    assert publish(tmp_path / "none").read_text().startswith("# Results\n\nNo run is finished yet.\n\nStudies: [")
    assert "EV (1 of 2 seeds done)" in " ".join((tmp_path / "out" / "why" / "why-study.md").read_text().split())
    missing = " ".join((tmp_path / "out" / "why.md").read_text().split("## What is missing")[1].split())
    assert "EV (1 of 2 seeds done)" in missing


@pytest.mark.usefixtures("drawn_figures")
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_a_study_is_drawn(finished: Path, name: str) -> None:
    (result,) = read_studies(finished)
    methods = result.scenes[0].methods
    ends = [
        replace(
            run,
            settings={**run.settings, "cycle_rounds": 1},
            metrics=[{**line, "observed_ev": 0.5 + 0.1 * line["round"]} for line in run.metrics],
        )
        for run in methods[0].runs
    ]
    drawn = FIGURES[name]([MethodRuns("EV", ends), *methods[1:]])
    assert drawn is not None
    assert drawn.svg.startswith("<svg")
    assert "$" not in drawn.svg, "a number is written as a formula"


def test_accuracy_stands_against_the_ev_of_samples_that_all_methods_observe(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not against the mean EV of what each method watched, which is another population for each."""
    (result,) = read_studies(finished)
    drawn: list[plots.Curve] = []
    monkeypatch.setattr(plots, "lines", lambda title, x, y, curves: drawn.extend(curves) or "<svg>")
    observed = {1: 0.6, 2: 0.8}
    runs = [
        replace(run, metrics=[{**line, "observed_ev": observed[line["round"]], "mean_ev": 7.0} for line in run.metrics])
        for run in result.scenes[0].methods[0].runs
    ]
    assert FIGURES["ev-accuracy"]([MethodRuns("EV", runs)]) is not None
    (curve,) = drawn
    assert curve.x == pytest.approx([0.7, 0.7]), "smoothed over three rounds, of which there are two"
    means = [100 * sum(run.metrics[at]["test_accuracy"] for run in runs) / len(runs) for at in (0, 1)]
    assert curve.mean == pytest.approx([sum(means) / 2] * 2)


def test_costs_are_said_beside_the_base(finished: Path) -> None:
    (result,) = read_studies(finished)
    scene = result.scenes[0]

    def inferring(label: str, samples: float) -> MethodRuns:
        return MethodRuns(
            label,
            [replace(run, metrics=[{**run.metrics[0], "inferred_samples": samples}]) for run in scene.methods[0].runs],
        )

    part = replace(scene.part, figures=("inference-cost",), against="no FAm")
    said = findings(replace(scene, part=part, methods=[inferring("no FAm", 4000), inferring("FAmS", 500)]))
    brackets = "(in brackets, times no FAm)"
    assert f"Samples that a client infers per round, mean {brackets}. no FAm: 4,000; FAmS: 500 (0.12)." in said


def test_arms_that_are_numbers_stand_at_their_place() -> None:
    assert places(["mu = 0", "mu = 0.4"]) == ("mu", ["0", "0.4"], [0.0, 0.4])
    assert places(["FAmS", "mu = 0.4"]) == ("", ["FAmS", "mu = 0.4"], [0.0, 1.0])


def test_parts_that_are_steps_of_one_quantity_share_a_figure(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = read_studies(finished)
    scene, taken = result.scenes[0], []
    monkeypatch.setattr(charts, "values", lambda *given: taken.append(given) or "<svg>")
    steps = [replace(scene, part=replace(scene.part, title=f"mu = {mu}")) for mu in (0.2, 0.6)]
    under_way = replace(scene, part=replace(scene.part, title="mu = 0.9"), finished=frozenset())
    whole = replace(result, study=replace(result.study, across=True), scenes=[*steps, under_way])
    (section,) = parts_section(whole)
    assert section.title == "Over all parts"
    title, _, axis, names, at, lines = taken.pop()
    assert (title, axis, names, at) == ("Accuracy after round 2 by mu", "mu", ["0.2", "0.6"], [0.2, 0.6])
    assert [(line.label, line.at, len(line.found)) for line in lines] == [
        ("FedRandom", [0.2, 0.6], 2),
        ("EV", [0.2, 0.6], 2),
    ]
    text = "\n".join(across_text(whole, tmp_path, set()))
    assert f"## {scene.scene}, all parts" in text
    (file,) = (tmp_path / "figures").iterdir()
    assert file.name.startswith("ablation-digits-reco")
    assert f"](figures/{file.name})" in text
    assert parts_section(replace(whole, scenes=steps[:1])) == []
    assert parts_section(replace(whole, study=result.study)) == []


def test_number_class_beside_ev_is_paired_by_seed(finished: Path) -> None:
    """Two arms of digits as if they were of CIFAR-10, with accuracies of the paper's rounds made up."""
    (result,) = read_studies(finished)

    def made(label: str, percents: list[float]) -> MethodRuns:
        line = result.scenes[0].methods[0].first.metrics[-1]
        runs = [
            replace(result.scenes[0].methods[0].runs[i], metrics=[{**line, "round": 200, "test_accuracy": p / 100}])
            for i, p in enumerate(percents)
        ]
        return MethodRuns(label, runs)

    methods = [made("EV", [40.0, 50.0]), made("number-class", [41.0, 51.0])]
    jobs = [replace(job, settings=job.settings.model_copy(update={"data": "cifar10"})) for job in result.scenes[0].jobs]
    table = variant_table(replace(result.scenes[0], methods=methods, jobs=jobs))
    assert table is not None
    assert table.columns[-1] == "200"
    assert [row[-1] for row in table.texts] == ["+1.00 (+1.00 to +1.00)", "-0.1"]
    assert table.texts[0][1] == NONE


def test_nothing_to_export_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChaseError, match="holds no study"):
        pack(tmp_path, tmp_path / "out")
    with pytest.raises(ChaseError, match="no packed study"):
        publish(tmp_path)
    write_plan(tmp_path / "new", "ablation", plan(find_study("ablation"), Options(("digits",))))
    with pytest.raises(ChaseError, match="nothing to export"):
        pack(tmp_path / "new", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_that_are_not_the_papers_are_named(finished: Path) -> None:
    scene = read_studies(finished)[0].scenes[0]
    own = load("mnist", {"behaviour": "ReCo", "clients": 50, "lr": 0.1, "rounds": 7, "strategy": "random"})
    jobs = [replace(scene.jobs[0], settings=own)]
    assert departures(replace(scene, jobs=jobs)) == ["clients = 50", "lr = 0.1"]
    shared = own.model_copy(update={"clients": 10, "lr": load("mnist").lr, "partition": "shards-reference"})
    assert departures(replace(scene, jobs=[replace(jobs[0], settings=shared)])) == [], "it has a note of its own"


def test_ours_stand_beside_the_papers_in_a_sentence(finished: Path) -> None:
    scene = read_studies(finished)[0].scenes[0]
    own = [replace(job, settings=load("mnist", {"strategy": "random"})) for job in scene.jobs]
    fifty = [
        MethodRuns(
            m.label,
            [
                replace(r, metrics=[{**r.metrics[-1], "round": n, "test_accuracy": 0.7} for n in range(1, 61)])
                for r in m.runs
            ],
        )
        for m in scene.methods
    ]
    (said,) = paper_findings(replace(scene, jobs=own, methods=fifty))
    random, ev = (paper.accuracy("mnist", name)[50] for name in ("FedRandom", "EV"))
    assert (
        said
        == f"Ours against the paper's after round 50. FedRandom: 70.0 % against {random} %; EV: 70.0 % against {ev} %."
    )
    assert paper_findings(replace(scene, jobs=own)) == [], "its first round is the 50th"
    gaps = [
        MethodRuns(
            m.label,
            [
                replace(r, metrics=[{**x, "test_accuracy": None} if x["round"] == 50 else x for x in r.metrics])
                for r in m.runs
            ],
        )
        for m in fifty
    ]
    assert paper_findings(replace(scene, jobs=own, methods=gaps)) == [], "not evaluated then"
    other = [replace(job, settings=job.settings.model_copy(update={"clients": 50})) for job in own]
    assert paper_findings(replace(scene, jobs=other, methods=fifty)) == []


def test_isolated_clients_are_also_judged_by_what_they_hold(finished: Path) -> None:
    scene = read_studies(finished)[0].scenes[0]
    assert own_classes_findings(scene) == []
    method = scene.methods[0]
    scores = {str(client): {"per_class": [0.5] * 10} for client in range(2)}
    alone = [
        replace(run, metrics=[*run.metrics[:-1], {**run.metrics[-1], "client_scores": scores}]) for run in method.runs
    ]
    (said,) = own_classes_findings(replace(scene, methods=[MethodRuns("alone", alone), method]))
    assert re.search(r"mean over clients\. alone: 50\.0 %; FedRandom: \d+\.\d %\.$", said)


def test_questions_about_samples_that_never_changed_class_are_counted(finished: Path) -> None:
    scene = read_studies(finished)[0].scenes[0]
    run = scene.methods[-1].runs[0]
    asked = [{"ev": ev, "strategy": "ev", "client": ev % 2} for ev in (0, 0, 3, 1)]
    asked += [{"ev": 0, "strategy": "random", "client": 0}]
    assert settled_share(replace(run, selections=asked)) == 0.5
    assert settled_share(replace(run, selections=asked), lambda client: client == 1) == 0.0
    assert settled_share(replace(run, selections=asked[-1:])) is None


def test_the_papers_figures() -> None:
    assert paper.accuracy("cifar10", "CHASe")[200] == 45.2
    assert paper.accuracy("cifar10", "EV (gev table)") == paper.accuracy("cifar10", "EV")
    assert paper.accuracy("cifar100", "EV (gev table)")[50] == 21.4
    assert paper.accuracy("digits", "CHASe") == {}
    assert paper.accuracy("cifar10", "mu = 1")[200] == 45.2
    assert paper.accuracy("mnist", "mu = 1") == {}, "the paper's MNIST has mu = 0.1"
    assert all(len(row) == 7 and list(row) == sorted(row) for row in paper.ACCURACY.values() if row[-1] != 29.9)
    known = {name for _, name in (*paper.ACCURACY, *paper.SAME_AS)}
    for study in STUDIES.values():
        for part in study.parts:
            assert {arm.paper for arm in part.arms if arm.paper} <= known
            assert set(part.figures) <= set(FIGURES)
            assert not part.against or part.against in {arm.label for arm in part.arms}


def test_data_that_the_paper_did_not_use_has_no_column_of_its(finished: Path) -> None:
    (result,) = read_studies(finished)
    assert paper_table(result.scenes[0]) is None


def test_smoothing_over_three() -> None:
    import numpy as np

    assert smooth(np.array([1.0, 4.0, 7.0, 1.0])).tolist() == [2.5, 4.0, 4.0, 4.0]


def test_exported_runs_are_done_and_are_gone_on_from_elsewhere(finished: Path, tmp_path: Path) -> None:
    pack(finished, tmp_path / "kept")
    (kept,) = plans_in(tmp_path / "kept")
    run = [job for job in kept.jobs if job.arm != "CHASe"]
    assert [is_done(kept.directory, job) for job in kept.jobs] == [job in run for job in kept.jobs]
    assert {(p.state, p.rounds, p.at_start) for p in look(kept, run)} == {("done", 2, 2)}
    assert pack(tmp_path / "kept", tmp_path / "again") == 4
    places = (tmp_path / "kept", tmp_path / "again")
    one, other = ({p.relative_to(place): p.read_bytes() for p in place.rglob("*.gz")} for place in places)
    assert one == other
    assert len(one) == 8
    shutil.rmtree(kept.directory / run[0].name)
    assert not is_done(kept.directory, run[0])


def test_an_export_never_goes_over_runs_that_are_no_export(finished: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(ChaseError, match="holds runs that are no export"):
        pack(finished, finished)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before
    assert pack(finished, tmp_path / "kept") == pack(finished, tmp_path / "kept") == 4, "over an export it does"
    begun = tmp_path / "kept" / "digits-other-seed9"
    begun.mkdir()
    (begun / "settings.toml").touch()
    with pytest.raises(ChaseError, match=r"no export \(digits-other-seed9\)"):
        pack(finished, tmp_path / "kept")


def test_notes_that_are_no_text_are_refused_by_name(finished: Path, tmp_path: Path) -> None:
    pack(finished, tmp_path / "kept")
    (tmp_path / "notes.md").write_bytes(b"caf\xe9")
    with pytest.raises(ChaseError, match=r"notes\.md is not text in UTF-8"):
        publish(tmp_path)


def test_an_exported_study_on_a_file_takes_the_file_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ward.toml").write_text('data = "digits"\nclients = 2\nlocal_epochs = 2\n')
    (job,) = plan(find_study("ablation"), Options(("ward.toml",), ("EV",), 1, 1, changes={"lr": 0.5}))
    write_plan(tmp_path / "studies", "ablation", [job])
    write_plan(tmp_path / "studies", "ablation", [job])
    (work,) = plans_in(tmp_path / "studies")
    assert [kept.preset for kept in work.jobs] == [str(tmp_path / "ward.toml")]
    Experiment.begin(job.settings, tmp_path / "studies" / job.name).run()
    pack(tmp_path / "studies", tmp_path / "results" / "own")
    assert str(tmp_path) not in (tmp_path / "results/own/ablation.study.json").read_text()
    Path("ward.toml").unlink()
    text = publish(tmp_path / "results").read_text()
    assert "--data own/ward.toml --rounds 1 --seeds 1 --set lr=0.5 --arm EV --out own" in text


def test_an_exported_run_that_was_not_done_begins_again(finished: Path, tmp_path: Path) -> None:
    pack(finished, tmp_path / "kept")
    (kept,) = plans_in(tmp_path / "kept")
    job = replace(kept.jobs[0], settings=kept.jobs[0].settings.model_copy(update={"rounds": 3}))
    assert not is_done(kept.directory, job)
    again = open_job(kept.directory, job)
    assert again is not None
    assert len(again.run()) == 3
    assert is_done(kept.directory, job)
    assert read_jsonl(kept.directory / "aside" / "1" / job.name / "metrics.jsonl") == read_jsonl(
        finished / job.name / "metrics.jsonl"
    )


def test_a_run_that_begins_again_for_longer_keeps_what_a_shorter_study_reads(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(finished, tmp_path)
    (kept,) = plans_in(tmp_path)
    short = kept.jobs[0]
    wanted = replace(short, settings=short.settings.model_copy(update={"rounds": 3}))
    write_plan(tmp_path, "cost", [wanted])
    (job,) = next(plan for plan in plans_in(tmp_path) if plan.study == "cost").jobs
    assert (short.ends, job.ends) == ((), (2,))
    begun = open_job(tmp_path, job)
    assert begun is not None
    commit, where = Checkpoint.commit, tmp_path / job.name

    def killed(self: Checkpoint, round: int, arrays: Arrays) -> None:
        if round == 2:
            raise KeyboardInterrupt
        commit(self, round, arrays)

    monkeypatch.setattr(Checkpoint, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        begun.run(ends=job.ends)
    before = json.loads((finished / job.name / "confusion.json").read_text())
    assert json.loads((where / "confusion-2.json").read_text()) == before, "there before the round counts as done"
    (where / "confusion-2.json").unlink()
    monkeypatch.undo()
    again = open_job(tmp_path, job)
    assert again is not None
    assert again.record.settings.rounds == 3
    again.run(ends=job.ends)
    assert json.loads((where / "confusion-2.json").read_text()) == before
    assert json.loads((where / "confusion.json").read_text())["round"] == 3
    assert open_job(tmp_path, job) is None
    assert [path.name for path in (tmp_path / "aside").iterdir()] == ["1"]


def test_an_arm_without_bought_labels_stands_beside_the_others_and_in_the_command(tmp_path: Path) -> None:
    asked = Options(("digits",), (), 2, 1, scale=0.2, changes=TINY, no_labels=True)
    jobs = [job for job in plan(find_study("ablation"), asked) if job.arm in ("FedRandom", "no labels")]
    write_plan(tmp_path, "ablation", plan(find_study("ablation"), asked))
    for job in jobs:
        Experiment.begin(job.settings, tmp_path / job.name).run()
    (result,) = read_studies(tmp_path)
    labels = {m.label: m.first.last("labels") for m in result.scenes[0].methods}
    assert labels["no labels"] == 0 < labels["FedRandom"]
    assert any("no labels against FedRandom" in text for text in comparisons(result.scenes[0])[1])
    (command,) = commands(result, "x")
    assert command.endswith("--no-labels --out x")
    assert "budget" not in command
