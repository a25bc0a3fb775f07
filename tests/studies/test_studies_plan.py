"""From a study to its jobs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support import small_settings

from chase.core.errors import ChaseError, SettingsError
from chase.learning.training import TrainingResult, train
from chase.settings import from_mapping
from chase.simulation.world import load_data
from chase.studies import estimate
from chase.studies.catalog import STUDIES, find_study
from chase.studies.estimate import Sizes, Speed, held, seconds_per_round, shortages_of, sizes_of, work
from chase.studies.plan import Options, StudyPlan, kernels_in, plan, plans_in, write_plan
from chase.studies.repeat import preset_of
from chase.studies.runner import look
from chase.studies.study import EV, Scene, Study, StudyPart


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_plans_jobs_that_fit_on_small_data(name: str) -> None:
    jobs = plan(find_study(name), Options(("digits",), rounds=2, seeds=1))
    assert jobs
    assert all(job.settings.engine == "inprocess" and job.settings.data == "digits" for job in jobs)
    places = [(job.part, job.scene, job.arm) for job in jobs]
    assert len(set(places)) == len(places), "an arm stands twice beside itself"


def test_all_arms_of_a_seed_come_before_the_next_seed() -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), rounds=2, seeds=2))
    assert [(job.arm, job.settings.seed) for job in jobs] == [
        (arm, seed) for seed in (0, 1) for arm in ("FedRandom", "EV", "CHASe")
    ]


def test_studies_share_the_runs_that_they_have_in_common() -> None:
    options = Options(("digits",), rounds=2, seeds=1)
    ablation = {job.name for job in plan(find_study("ablation"), options)}
    cost = [job.name for job in plan(find_study("cost"), options)]
    assert ablation < set(cost)
    assert len(set(cost)) == len(cost) - 1, "CHASe is both a method and FAmS"


def test_a_name_depends_on_what_decides_results_and_on_nothing_else() -> None:
    def names(**options: object) -> list[str]:
        return [job.name for job in plan(find_study("ablation"), Options(("digits",), seeds=1, **options))]  # type: ignore[arg-type]

    assert names(rounds=2) == names(rounds=50)
    assert not set(names()) & set(names(changes={"lr": 0.5}))
    assert not set(names()) & set(names(scale=0.5))


def test_settings_that_decide_no_result_make_no_scene_of_their_own() -> None:
    plain, logged, other = (
        plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1, changes=changes))[0]
        for changes in ({}, {"log_to": ["tensorboard"], "data_dir": "/data"}, {"clients": 3})
    )
    assert (logged.scene, logged.name, logged.base) == (plain.scene, plain.name, plain.base)
    assert other.scene != plain.scene
    (ending,) = plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1, changes={"target": 0.9}))
    assert ending.scene == "digits, ReCo, target 0.9", "it decides how long runs are"


def test_a_plan_reads_back_and_grows(tmp_path: Path) -> None:
    first = plan(find_study("ablation"), Options(("digits",), rounds=2, seeds=1))
    write_plan(tmp_path, "ablation", first)
    more = plan(find_study("ablation"), Options(("digits",), rounds=2, seeds=2))
    write_plan(tmp_path, "ablation", more)
    (found,) = plans_in(tmp_path)
    assert {job.name: job.settings for job in found.jobs} == {job.name: job.settings for job in more}
    assert [job.scene for job in found.jobs] == ["digits, ReCo"] * 6


def test_a_file_goes_by_its_bare_name_and_is_kept_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "ward.toml"
    file.write_text('data = "digits"\nclients = 3\n')
    (job,) = plan(find_study("ablation"), Options((str(file), str(file)), ("EV",), 2, 1))
    assert job.scene == "ward, ReCo"
    write_plan(tmp_path, "ablation", [job])
    (found,) = plans_in(tmp_path)
    assert preset_of(found.jobs[0]) == str(file)
    with pytest.raises(SettingsError, match="names 'ward' twice"):
        plan(find_study("ablation"), Options((str(file), "other/ward.toml"), ("EV",), 2, 1))


def test_what_fits_the_arm_is_enough() -> None:
    options = Options(("digits",), ("FedRandom",), 2, 1, changes={"local_epochs": 1})
    assert plan(find_study("ablation"), options)[0].settings.local_epochs == 1, "the other arms need two"


def test_a_scene_never_holds_two_settings(tmp_path: Path) -> None:
    file = tmp_path / "ward.toml"
    for clients, arm in ((3, "EV"), (3, "FedRandom"), (4, "CHASe")):
        file.write_text(f'data = "digits"\nclients = {clients}\n')
        jobs = plan(find_study("ablation"), Options((str(file),), (arm,), 2, 1))
        if clients == 3:
            write_plan(tmp_path, "ablation", jobs)
        else:
            with pytest.raises(ChaseError, match="holds 'ward, ReCo' with other settings: a file was edited"):
                write_plan(tmp_path, "ablation", jobs)
    (found,) = plans_in(tmp_path)
    assert {job.arm for job in found.jobs} == {"EV", "FedRandom"}


def test_unknown_arms_and_damaged_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ChaseError, match="did you mean 'CHASe'"):
        plan(find_study("ablation"), Options(("digits",), arms=("CHASE",)))
    (tmp_path / "ablation.study.json").write_text("{")
    with pytest.raises(ChaseError, match="cannot be read"):
        plans_in(tmp_path)


def test_the_estimate_counts_steps_and_inferences() -> None:
    """10 clients of 100 samples, 20 labelled throughout, E = 3, batch 10: 2 * 3 steps per client, no inference."""
    same = {"clients": 10, "initial_labels": 0.2, "budget": 0, "batch_size": 10, "local_epochs": 3, "rounds": 5}
    sizes = Sizes(train=1000, test=50)
    plain = work(small_settings(strategy="random", **same), sizes, Speed(step=1.0, inference=0.0))
    assert plain == pytest.approx(10 * 6)
    tested = work(small_settings(strategy="random", **same), sizes, Speed(step=0.0, inference=1.0))
    assert tested == pytest.approx(50)
    tracked = work(
        small_settings(strategy="ev", freeze=False, subset=False, **same), sizes, Speed(step=0.0, inference=1.0)
    )
    assert tracked == pytest.approx(50 + 10 * 3 * 80)
    alone = work(small_settings(strategy="random", form="isolated", **same), sizes, Speed(0.0, 1.0))
    assert alone == pytest.approx(500)


def test_rounds_follow_the_cycle_length_so_that_each_makes_as_many_requests() -> None:
    for rounds, shortest in ((0, 200), (75, 75)):
        jobs = plan(find_study("cycles"), Options(rounds=rounds, seeds=1))
        found = {job.settings.cycle_rounds: job.settings.rounds for job in jobs}
        assert found == {length: shortest * length // 25 for length in (25, 50, 75, 100)}
        assert len({-(-rounds // length) for length, rounds in found.items()}) == 1
    assert not any("rounds 200" in job.scene for job in jobs)


def test_rounds_follow_a_cycle_length_that_was_set() -> None:
    scene = Scene("digits", {"form": "cycles", "cycle_rounds": 25}, rounds=200)
    alone = Study("alone", "", (StudyPart((scene,), (EV,)),))
    for rounds, found in ((0, 800), (50, 200)):
        (job,) = plan(alone, Options(rounds=rounds, seeds=1, changes={"cycle_rounds": 100}))
        assert (job.settings.cycle_rounds, job.settings.rounds) == (100, found)


@pytest.mark.parametrize("changes", [{"client_weights": "equal"}, {"behaviour": "AbCo"}, {"normalisation": "half"}])
def test_what_all_scenes_have_in_common_may_be_set(changes: dict[str, str]) -> None:
    jobs = plan(find_study("ablation"), Options(rounds=2, seeds=1, changes=changes))
    ((key, value),) = changes.items()
    assert {getattr(job.settings, key) for job in jobs} == {value}
    assert len({job.scene for job in jobs}) == 4
    (one, *_) = plan(find_study("recommend"), Options(("digits",), seeds=1, changes={"budget": 5}))
    assert one.settings.budget == 5, "digits alone has one budget"


def test_the_estimate_counts_one_request_per_cycle() -> None:
    """100 samples each, 20 labelled, 5 cycles of 10 rounds: 4 requests of 2.5 % of 80 samples, so 24 labels on average.

    EV is tracked in 1 / 10 of the rounds, and every request scores the 76 samples that are left with two models.
    """
    same = {"clients": 10, "initial_labels": 0.2, "batch_size": 10, "local_epochs": 3, "rounds": 50}
    cycles = {"form": "cycles", "cycle_rounds": 10, "cycle_budget": "fixed", "behaviour": "ReCo", **same}
    sizes = Sizes(train=1000, test=0)
    steps = work(small_settings(strategy="random", **cycles), sizes, Speed(step=1.0, inference=0.0))
    assert steps == pytest.approx(10 * 3 * 2.4)
    scored = work(small_settings(strategy="ksas", **cycles), sizes, Speed(step=0.0, inference=1.0))
    assert scored == pytest.approx(10 * 2 * 76 * 4 / 50)
    plain = {"freeze": False, "subset": False, **cycles}
    seen = work(small_settings(strategy="ev", **plain), sizes, Speed(step=0.0, inference=1.0))
    assert seen == pytest.approx(10 * 3 * 76 / 10)


@pytest.mark.parametrize(
    ("strategy", "seconds"), [("feal", 0.0), ("fairfal", 6 * (3.0 + 30)), ("ifal", 3 * 3.0 * 7 + 30)]
)
def test_the_estimate_counts_models_that_are_trained_for_a_request(strategy: str, seconds: float) -> None:
    """Every client asks in every round and has 30 labels on average, 3 steps: 18 / 3 epochs alone, or 3 distilled."""
    same = {"clients": 10, "initial_labels": 0.2, "batch_size": 10, "local_epochs": 3, "rounds": 20, "budget": 1}
    settings = small_settings(strategy=strategy, behaviour="AbCo", alone_epochs=18, **same)
    random = small_settings(strategy="random", behaviour="AbCo", **same)
    sizes, speed = Sizes(train=1000, test=0), Speed(step=1.0, inference=1.0, distilled_step=7.0)
    more = work(settings, sizes, speed) - work(random, sizes, speed)
    passes = 2 if strategy == "feal" else 3
    assert more == pytest.approx(10 * (70 * passes + seconds))


def test_a_step_of_distillation_is_measured_where_a_method_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(estimate, "measured_distilled", lambda key: asked.append(key) or 1000.0)
    settings = small_settings(strategy="ifal", behaviour="AbCo", budget=1, rounds=2)
    assert seconds_per_round(settings) > 1000
    assert seconds_per_round(settings.model_copy(update={"strategy": "feal"})) < 1000
    assert len(asked) == 1
    data = load_data(settings)
    assert 0 < estimate.measure_distilled(settings, data) < 1


def test_the_variants_of_ev_stand_beside_random_selection_and_all_methods_share_a_population() -> None:
    (part,) = find_study("ev-variants").parts
    assert [arm.label for arm in part.arms] == ["FedRandom", "EV", "number-class", "EV + GEV"]
    jobs = plan(find_study("ev-accuracy"), Options(("digits",), rounds=2, seeds=1))
    assert {job.settings.observe_ev for job in jobs} == {200}


def test_an_own_table_that_a_run_accepts_is_estimated_too(tmp_path: Path) -> None:
    words = ["good", "bad"]
    rows = [f"{'fine film' if n % 2 else 'dull plot'} {n},{words[n % 2]},{n % 3}" for n in range(60)]
    (tmp_path / "reviews.csv").write_text("\n".join(["words,verdict,ward", *rows]))
    own = {"data": str(tmp_path / "reviews.csv"), "text_column": "words", "label_column": "verdict"}
    more = {"site_column": "ward", "partition": "natural", "tokens": "characters", "text_length": 12}
    settings = from_mapping({**own, **more, "classes": "bad,good", "clients": 3, "net": "char-lstm"}).resolved()
    data = load_data(settings)
    assert data.classes == ("bad", "good")
    assert seconds_per_round(settings) > 0
    alone = settings.model_copy(update={"clients": 1})
    assert held(alone, data) == 15 < held(settings, data) == len(data.train)


def test_the_estimate_counts_all_owners_where_all_are_clients(tmp_path: Path) -> None:
    """Six owners, two of whom take part: as much as six clients, although the setting says one."""
    rows = [f"{n % 7},{n % 5},{'ab'[n % 2]},{n % 6}" for n in range(120)]
    (tmp_path / "items.csv").write_text("\n".join(["x,y,label,ward", *rows]))
    own = {"data": str(tmp_path / "items.csv"), "site_column": "ward", "partition": "natural", "net": "mlp"}
    named = from_mapping({**own, "clients": 6, "away": 0.5, "share_of_clients": 1 / 3}).resolved()
    every = from_mapping({**own, "owners": "all", "away": 0.5, "share_of_clients": 1 / 3}).resolved()
    data = load_data(every)
    assert sizes_of(every, data) == Sizes(len(data.train), len(data.test), 6)
    assert sizes_of(named, data) == Sizes(len(data.train), len(data.test))
    speed = Speed(step=1.0, inference=0.1)
    assert work(every, sizes_of(every, data), speed) == work(named, sizes_of(named, data), speed)
    there = named.model_copy(update={"away": 0.0})
    assert work(there, sizes_of(there, data), speed) == work(named, sizes_of(named, data), speed), "a third is there"
    assert seconds_per_round(every) > 0
    assert shortages_of(every) == shortages_of(named)


def test_the_estimate_is_measured_with_what_computes_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a setting says, or what the directory began with; where that is not here, what is."""
    seen: list[str] = []

    def train_once(net: Any, *arguments: Any) -> TrainingResult:
        seen.append(net.kernels)
        return train(net, *arguments)

    monkeypatch.setattr(estimate, "train", train_once)
    monkeypatch.setattr(estimate, "PASSES", 1)
    estimate.measured.cache_clear()
    for changes, kernels in ({}, "fused"), ({}, "compiled"), ({"kernels": "plain"}, "compiled"):
        (job,) = plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1, changes=changes))
        look(StudyPlan("ablation", tmp_path / "ablation.study.json", [job], kernels), [job])
    estimate.measured.cache_clear()
    assert seen == ["fused", "auto", "plain"]
    write_plan(tmp_path, "ablation", [job])
    body = json.loads((tmp_path / "ablation.study.json").read_text())
    (tmp_path / "ablation.study.json").write_text(json.dumps({**body, "kernels": "fused"}))
    assert kernels_in(tmp_path) == "fused"


def test_the_estimate_counts_the_start_of_a_process(tmp_path: Path) -> None:
    (job,) = plan(find_study("ablation"), Options(("digits",), ("EV",), 2, 1))
    (waiting,) = look(StudyPlan("ablation", tmp_path / "ablation.study.json", [job]), [job], dry=True)
    assert waiting.start_seconds > 0.2
    assert waiting.left == pytest.approx(2 * waiting.expected + waiting.start_seconds)
    (real,) = look(StudyPlan("ablation", tmp_path / "ablation.study.json", [job]), [job])
    assert real.start_seconds == waiting.start_seconds, "what runs is told how long it takes, too"
    waiting.state = "running"
    assert waiting.left == pytest.approx(2 * waiting.expected)
    waiting.began = time.monotonic()
    assert waiting.left == pytest.approx(2 * waiting.expected + waiting.start_seconds, abs=0.1), "no round yet"
    waiting.rounds = 1
    assert waiting.left == pytest.approx(waiting.expected)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_an_arm_without_bought_labels_on_request(name: str) -> None:
    asked = Options(("digits",), rounds=2, seeds=1, no_labels=True)
    own = [job for job in plan(find_study(name), asked) if job.arm == "no labels"]
    scenes = {(job.part, job.scene) for job in plan(find_study(name), asked)}
    assert {(job.part, job.scene) for job in own} == scenes
    assert all(job.settings.budget == 0 and job.settings.strategy == "random" for job in own)


def test_an_arm_without_bought_labels_keeps_its_budget_of_nothing() -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), rounds=2, seeds=1, changes={"budget": 3}, no_labels=True))
    assert {job.arm: job.settings.budget for job in jobs} == {"FedRandom": 3, "EV": 3, "CHASe": 3, "no labels": 0}
    (alone,) = plan(find_study("ablation"), Options(("digits",), ("no labels",), rounds=2, seeds=1))
    assert alone.settings.budget == 0
