"""Hypotheses and their page, on accuracies made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chase.report.runs import MethodRuns, RunData
from chase.report.tables import NONE
from chase.settings import load
from chase.studies.catalog import STUDIES, find_study
from chase.studies.hypotheses import HYPOTHESES, Hypothesis
from chase.studies.hypothesis_tests import (
    CONTRADICTED,
    NOT_RUN,
    SUPPORTED,
    Group,
    compare,
    findings_of,
    groups_of,
    last_rounds,
)
from chase.studies.observations import above_even, above_half, most_willing, never_together, zero_share
from chase.studies.overview import MOST_NAMED, conditions, main_table, three_sentences
from chase.studies.plan import Options, plan
from chase.studies.results import SceneResult, StudyResult
from chase.studies.why_page import accuracies, picks_table, seen_by_ev, why_page

POOLS = {"labeled": 10, "unlabeled": 90, "asked": 0, "dormant": 0, "set_aside": 0}


def run_of(accuracies: list[float], seed: int, strategy: str = "random") -> RunData:
    lines = [
        {
            "round": at + 1,
            "test_accuracy": value,
            "labels": 10 * at,
            "pools": POOLS,
            "picks": 10 if at else 0,
            "picks_by_chance": 4 if at else None,
            "asked_classes": {"0": {"0": 5, "1": 5}} if at else {},
            "largest_share": 0.25,
            "per_class": [value, value],
        }
        for at, value in enumerate(accuracies)
    ]
    return RunData(Path("x"), {"seed": seed, "strategy": strategy, "data": "mnist"}, lines)


def group(arm: str, weights: str, finals: list[float], data: str = "mnist", length: int = 6, **settings: Any) -> Group:
    runs = [run_of([0.1, *[value] * (length - 1)], seed) for seed, value in enumerate(finals)]
    given = {"client_weights": weights, **settings}
    usual = load(data, {}).model_dump()
    changed = {key: value for key, value in given.items() if usual[key] != value}
    return Group(arm, load(data, given).model_dump(), MethodRuns(arm, runs), changed, len(finals))


def hypothesis_of(key: str) -> Hypothesis:
    return next(hypothesis for hypothesis in HYPOTHESES if hypothesis.key == key)


def test_the_last_five_rounds_count() -> None:
    run = run_of([0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.99], 0)
    assert last_rounds(run, 6) == pytest.approx(100 * (0.1 + 0.2 + 0.3 + 0.4 + 0.5) / 5)


def test_arms_of_two_scenes_are_paired_by_seed() -> None:
    groups = [
        group("FedRandom", "equal", [0.1, 0.1], image_size=64),
        group("FedRandom", "equal", [0.2, 0.2], data_share=0.1),
        group("FedRandom", "labelled", [0.5, 0.6]),
        group("FedRandom", "equal", [0.7, 0.9]),
    ]
    weights = hypothesis_of("H2")
    assert compare(groups, weights, "mnist").difference.values == pytest.approx([20.0, 30.0])
    assert compare(groups, weights, "cifar10").seeds == 0


def test_of_several_pairs_the_one_with_most_seeds_counts_and_then_the_longest() -> None:
    short = [group("EV", "labelled", [0.6, 0.6, 0.6]), group("FedRandom", "labelled", [0.5, 0.5, 0.5])]
    long = [group("EV", "labelled", [0.9, 0.8], length=9), group("FedRandom", "labelled", [0.5, 0.5], length=9)]
    found = compare([*long, *short], hypothesis_of("H4"), "mnist")
    assert (found.seeds, found.rounds) == (3, 6)
    alone = compare(long, hypothesis_of("H4"), "mnist")
    assert (alone.seeds, alone.rounds) == (2, 9)
    assert alone.difference.values == pytest.approx([40.0, 30.0])


def test_runs_with_other_settings_than_a_hypothesis_names_do_not_count() -> None:
    groups = [group("EV", "labelled", [0.9], lr=0.5), group("FedRandom", "labelled", [0.5], lr=0.5)]
    assert compare(groups, hypothesis_of("H4"), "mnist").verdict == NOT_RUN


def test_few_initial_labels_are_a_hypothesis_of_their_own() -> None:
    few = {"behaviour": "free", "budget": 2, "initial_labels": 0.014}
    groups = [group("EV", "labelled", [0.6], "digits", **few), group("FedRandom", "labelled", [0.5], "digits", **few)]
    assert compare(groups, hypothesis_of("H6"), "digits").difference.values == pytest.approx([10.0])
    assert compare(groups, hypothesis_of("H7"), "digits").verdict == NOT_RUN
    planned = plan(find_study("few-labels"), Options(rounds=2, seeds=1))
    assert {job.settings.initial_labels for job in planned} == {0.014, 0.3}
    assert {job.settings.budget for job in planned if job.arm == "EV"} == {2}


def test_verdicts_need_six_seeds_for_a_test_and_say_so_below() -> None:
    noise = np.array([0.0, 0.01, -0.01, 0.005, -0.005, 0.002])
    groups = [
        group("FedRandom", "labelled", (0.5 + noise).tolist()),
        group("no labels", "labelled", (0.6 - noise).tolist()),
        group("EV", "labelled", (0.4 + 2 * noise).tolist()),
        group("FedRandom", "equal", [0.71, 0.72]),
        group("no labels", "equal", [0.61, 0.63]),
        group("EV", "equal", [0.75, 0.66]),
    ]
    said = {f.hypothesis.key: f for f in findings_of(groups) if f.data == "mnist"}
    assert said["H1"].verdict == SUPPORTED
    assert said["H1"].difference.p is not None
    assert said["H4"].verdict == CONTRADICTED
    assert said["H3"].verdict == "supported (interval above 0, untested)"
    assert said["H5"].verdict == "not decided (within noise)"
    assert said["H5"].open
    assert said["H10"].verdict == NOT_RUN
    assert said["H3"].holds
    assert not said["H4"].holds
    assert said["H4"].fails


def test_one_seed_decides_nothing() -> None:
    groups = [group("FedRandom", "labelled", [0.5]), group("no labels", "labelled", [0.9])]
    found = findings_of(groups)
    assert next(f for f in found if f.hypothesis.key == "H1").verdict == "not decided (one seed)"
    text = three_sentences(found)
    assert "**What holds:** nothing is settled by the runs so far." in text
    assert (
        "**not decided:** bought labels do harm where clients are weighted by labels (MNIST +40.0 points, 1 seed)."
        in text
    )
    assert text.count("\n\n") == 2, "three sentences"


def test_tables_by_hand() -> None:
    one = group("EV", "labelled", [0.5, 0.7])
    (row,) = accuracies([one]).texts
    assert row[:5] == ["MNIST", "weights by labels", "EV", "6", "50"]
    assert row[6:] == ["0, 1", "50.0 / 70.0"]
    (picked,) = picks_table([one]).texts
    assert picked[3:] == ["40", NONE, "100", "25"]


def test_the_table_at_the_top_is_over_the_seeds_that_all_arms_of_a_row_have() -> None:
    groups = [
        group("FedRandom", "labelled", [0.5, 0.7, 0.9], length=60),
        group("EV", "labelled", [0.6, 0.8], length=60),
        group("FedRandom", "equal", [0.9], length=60, image_size=64, partition="shards-reference"),
        group("FedRandom", "labelled", [0.1], length=5),
    ]
    table = main_table(groups)
    assert table is not None
    first, theirs, paper = table.texts
    assert first[:4] == ["MNIST", "weights by labels", "60", "2 of 3"]
    assert first[4].startswith("60.0 (")
    assert first[5].startswith("70.0 (")
    assert first[6:] == [NONE, NONE, NONE]
    assert theirs[1:5] == ["equal weights, 64x64 pixels, shared shards", "60", "1", "90.0"]
    assert paper == ["MNIST", "*the paper*, weights by labels", "50", "3", "75.0", "78.9", "79.6", NONE, NONE]
    assert main_table(groups[3:]) is None, "five rounds say nothing of accuracy"


def test_arms_that_share_no_seed_are_marked() -> None:
    other = group("EV", "labelled", [0.6, 0.8], length=60)
    moved = Group(other.arm, other.settings, MethodRuns("EV", other.method.runs[1:]), {}, 2)
    table = main_table([group("FedRandom", "labelled", [0.5], length=60), moved])
    assert table is not None
    assert table.texts[0][3:6] == ["differ", "50.0", "80.0"]


def test_a_sentence_names_some_hypotheses_and_counts_the_others() -> None:
    arms = {"no labels": 0.4, "FedRandom": 0.5, "EV": 0.6, "CHASe": 0.7, "CHASe, all-global": 0.8}
    groups = [group(arm, w, [v, v + 0.01]) for w in ("labelled", "equal") for arm, v in arms.items()]
    found = findings_of(groups)
    more = len({f.hypothesis.brief for f in found if f.holds}) - MOST_NAMED
    assert more > 0
    assert f"and {more} more in why.md" in three_sentences(found)
    assert "**What does not hold:** bought labels do harm" in three_sentences(found)


def test_conditions_are_in_words() -> None:
    few = group("EV", "labelled", [0.6], "digits", behaviour="free", budget=2, initial_labels=0.014)
    words = "weights by labels, all clients label equally much, 2 labels per request, 1.4 % labelled at the start"
    assert sorted(conditions(few).split(", ")) == sorted(words.split(", "))


def asked(client: int, *evs: int) -> list[dict[str, Any]]:
    return [{"round": 2, "client": client, "ev": ev, "strategy": "ev"} for ev in evs]


def test_what_ev_can_see_by_hand() -> None:
    """Client 0 asks most: three of its four picks have EV 0, one of two at client 1.

    Classes 0, 1 are held together, 1, 2 too, 0 and 2 never: 2 of 6 ordered pairs, and 6 of 8 errors.
    """
    run = replace(
        run_of([0.1, 0.2], 0, "ev"),
        selections=[*asked(0, 0, 0, 0, 3), *asked(1, 0, 2)],
        confusion={"matrix": [[9, 1, 4], [0, 9, 1], [2, 0, 9]]},
        coverage={"held": [[5, 5, 0], [0, 5, 5]]},
    )
    assert most_willing(run) == {0}
    assert (zero_share(run, willing=True), zero_share(run, willing=False)) == (75.0, 50.0)
    assert above_half(run) == 25.0
    assert never_together(run) == pytest.approx((75.0, 100 / 3))
    assert above_even(run) == pytest.approx(75.0 - 100 / 3)
    bare = run_of([0.1], 0)
    assert np.isnan([zero_share(bare, willing=True), *never_together(bare)]).all()
    settings = load("mnist", {}).model_dump()
    one = Group("EV", settings, MethodRuns("EV", [run, replace(run, settings={**run.settings, "seed": 1})]))
    (row,) = seen_by_ev([one]).texts
    assert row == ["MNIST", "weights by labels", "EV", "2", "75", "50", "75", "33"]
    found = {f.hypothesis.key: f for f in findings_of([one])}
    assert found["H18"].difference.values.tolist() == [25.0, 25.0]
    assert found["H19"].holds
    assert seen_by_ev([group("FedRandom", "labelled", [0.5])]).rows == []


def test_the_page_leads_with_what_holds_and_names_what_is_missing(tmp_path: Path) -> None:
    jobs = plan(find_study("why"), Options(("mnist",), rounds=12, seeds=2))
    own = [job for job in jobs if job.settings.client_weights == "labelled"]
    methods = [
        MethodRuns("FedRandom", [run_of([0.1, *[v] * 11], seed) for seed, v in enumerate((0.5, 0.51))]),
        MethodRuns("no labels", [run_of([0.1, *[v] * 11], seed) for seed, v in enumerate((0.6, 0.61))]),
    ]
    done = frozenset(job.name for job in own if job.arm in ("FedRandom", "no labels"))
    scene = SceneResult(STUDIES["why"], STUDIES["why"].parts[0], own[0].scene, own, methods, done)
    result = StudyResult(STUDIES["why"], [scene], len(done), len(jobs))
    assert [g.arm for g in groups_of([result])] == ["FedRandom", "no labels"]
    text, figures = why_page([(tmp_path, result)], tmp_path)
    first = text.split("## Hypotheses and verdicts")[0]
    assert "**Holds**\n\n- H1: With clients weighted by labels, as in the paper, bought labels do harm" in first
    assert "(MNIST +10.0 points, 2 seeds, untested)." in first
    assert "H1, H2, H3, H4, H5, H8, H10, H11, H12, H17 on CIFAR-10" in first
    assert "Not finished yet: EV" in text
    assert {file.name for file in figures} >= {"why-page-mnist-accuracy.svg", "why-page-mnist-largest-share.svg"}
    assert why_page([], tmp_path) == ("", {})
