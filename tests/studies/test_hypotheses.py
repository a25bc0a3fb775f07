"""Hypotheses and their page, on accuracies made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chase.report import charts
from chase.report.runs import MethodRuns, RunData
from chase.report.statistics import Difference, paired_p
from chase.report.tables import NONE, ReportTable
from chase.settings import load
from chase.studies.abstract import POINTS, abstract, later_methods
from chase.studies.awakened import awakened_table, easy_then
from chase.studies.beside_paper import beside_note, beside_paper, jump
from chase.studies.campaign import CAMPAIGN, left
from chase.studies.catalog import STUDIES, find_study
from chase.studies.clients_alone import clients_alone
from chase.studies.field import FIELD_NOTE, against, compared_with, field_sentences, field_table, field_text, rows_of
from chase.studies.hypotheses import FEW_LABELS, HYPOTHESES, Hypothesis, family, family_size
from chase.studies.hypothesis_tests import (
    CONTRADICTED,
    NOT_RUN,
    SUPPORTED,
    Finding,
    Group,
    compare,
    corrected_together,
    findings_of,
    groups_of,
    last_rounds,
)
from chase.studies.observations import (
    above_even,
    above_half,
    awakenings,
    most_willing,
    never_together,
    pull,
    pulled,
    woken_change,
    zero_share,
)
from chase.studies.overview import MOST_NAMED, compared, conditions, evidence, main_table, tables_of, what_holds
from chase.studies.plan import Options, StudyJob, plan
from chase.studies.results import SceneResult, StudyResult
from chase.studies.verdict_grid import in_short
from chase.studies.verdict_table import if_all_were_one_family
from chase.studies.why_page import (
    LONGEST,
    accuracies,
    drawings,
    missing,
    note_of,
    picks_table,
    pulled_table,
    section,
    seen_by_ev,
    something_to_go_by,
    why_page,
)

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
    (found,) = compare(groups, weights, "mnist")
    assert found.difference.values == pytest.approx([20.0, 30.0])
    (none,) = compare(groups, weights, "cifar10")
    assert none.seeds == 0


def test_every_length_of_runs_is_compared_and_of_its_pairs_the_one_with_most_seeds() -> None:
    short = [group("EV", "labelled", [0.6, 0.6, 0.6]), group("FedRandom", "labelled", [0.5, 0.5, 0.5])]
    long = [group("EV", "labelled", [0.9, 0.8], length=9), group("FedRandom", "labelled", [0.5, 0.5], length=9)]
    fewer = [group("EV", "labelled", [0.1]), group("FedRandom", "labelled", [0.9])]
    (found,) = compare([*long, *fewer, *short], hypothesis_of("H4"), "mnist")
    assert (found.seeds, found.rounds) == (3, 6), "two seeds at another length are too few"
    (alone,) = compare(long, hypothesis_of("H4"), "mnist")
    assert (alone.seeds, alone.rounds) == (2, 9)
    assert alone.difference.values == pytest.approx([40.0, 30.0])
    longer = [group("EV", "labelled", [0.3] * 3, length=9), group("FedRandom", "labelled", [0.5] * 3, length=9)]
    early, late = compare([*longer, *short], hypothesis_of("H4"), "mnist")
    assert (early.rounds, late.rounds) == (6, 9)
    assert [f.difference.interval.mean for f in (early, late)] == pytest.approx([10.0, -20.0])


def test_lengths_are_families_of_their_own() -> None:
    """H1 at both lengths: p alone * 3 each, as where it stands alone."""
    noise = np.array([0.0, 0.03, -0.03, 0.02, -0.02, 0.01])
    groups = []
    for length, size in ((6, 1.0), (9, 0.5)):
        groups.append(group("FedRandom", "labelled", (0.5 + size * noise).tolist(), length=length))
        groups.append(group("no labels", "labelled", [0.6] * 6, length=length))
    groups.append(group("EV", "labelled", [0.7] * 6))
    early, late = (f for f in findings_of(groups) if f.hypothesis.key == "H1" and f.data == "mnist")
    assert (early.rounds, late.rounds) == (6, 9)
    for found in (early, late):
        assert found.p_alone is not None
        assert found.difference.p == pytest.approx(3 * found.p_alone)
    assert evidence(early) == "MNIST +9.8 points at round 6, 6 seeds"
    once = next(f for f in findings_of(groups) if f.hypothesis.key == "H4" and f.data == "mnist")
    assert evidence(once) == "MNIST +19.8 points at round 6, 6 seeds", "beside others of other rounds"


def test_what_a_table_shows_is_said_with_its_rounds_and_not_where_it_fails_at_one() -> None:
    def found(key: str, rounds: int, sign: int = 1, p: float = 0.01) -> Finding:
        values = sign * np.array([5.0, 6.0, 7.0, 5.0, 6.0, 7.0])
        return Finding(hypothesis_of(key), "mnist", Difference(key, values, p=p), rounds)

    both = [found(key, rounds) for key in ("H18", "H19") for rounds in (60, 200)]
    assert note_of(both, "Table.", " Found at {at}.", {"H18", "H19"}) == "Table. Found at rounds 60 and 200.\n"
    early = [*both[:3], found("H19", 200, p=0.5)]
    assert note_of(early, "Table.", " Found at {at}.", {"H18", "H19"}) == "Table. Found at round 60.\n"
    lost = [*both[:3], found("H19", 200, sign=-1)]
    assert note_of(lost, "Table.", " Found at {at}.", {"H18", "H19"}) == "Table.\n"
    apart = [both[0], both[3]]
    assert note_of(apart, "Table.", " Found at {at}.", {"H18", "H19"}) == "Table.\n", "not at one round"


def test_runs_with_other_settings_than_a_hypothesis_names_do_not_count() -> None:
    groups = [group("EV", "labelled", [0.9], lr=0.5), group("FedRandom", "labelled", [0.5], lr=0.5)]
    assert compare(groups, hypothesis_of("H4"), "mnist")[0].verdict == NOT_RUN


def test_few_initial_labels_are_a_hypothesis_of_their_own() -> None:
    few = {"behaviour": "free", "budget": 2, "initial_labels": 0.014}
    groups = [group("EV", "labelled", [0.6], "digits", **few), group("FedRandom", "labelled", [0.5], "digits", **few)]
    assert compare(groups, hypothesis_of("H6"), "digits")[0].difference.values == pytest.approx([10.0])
    assert compare(groups, hypothesis_of("H7"), "digits")[0].verdict == NOT_RUN
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
    assert said["H3"].verdict == "provisional (interval above 0, untested)"
    assert said["H3"].provisional
    assert not said["H3"].holds
    assert said["H5"].verdict == "not decided (the interval holds 0)"
    assert said["H5"].open
    assert said["H10"].verdict == NOT_RUN
    assert what_holds(list(said.values())).startswith(
        "**What holds**\n\n- Bought labels do harm where clients are weighted by labels (no labels minus random: MNIST "
        "+9.9 points, 6 seeds).\n\n**Provisional, fewer than 6 seeds**\n\n- "
    )
    assert not said["H4"].holds
    assert said["H4"].fails


def test_comparisons_of_one_question_are_corrected_together_whether_they_have_run_or_not() -> None:
    """H1 to H3 on MNIST are one family of three: p alone * 3 for the smallest, whatever else has six seeds."""
    noise = np.array([0.0, 0.03, -0.03, 0.02, -0.02, 0.01])
    labels = [group("FedRandom", "labelled", (0.5 + noise).tolist()), group("no labels", "labelled", [0.56] * 6)]
    more = [group(arm, "labelled", (0.4 + 2 * noise).tolist()) for arm in ("EV", "CHASe", "CHASe, all-global")]
    alone, among = (
        next(f for f in findings_of(some) if f.hypothesis.key == "H1") for some in (labels, [*labels, *more])
    )
    assert alone.p_alone is not None
    assert alone.difference.p == pytest.approx(3 * alone.p_alone)
    assert among.difference.p == alone.difference.p
    assert family_size(("What bought labels are worth", "mnist")) == 3
    assert sum(family_size(key) for key in {family(h, d) for h in HYPOTHESES for d in h.data}) == sum(
        len(h.data) for h in HYPOTHESES
    )


def test_an_interval_beside_0_that_the_correction_does_not_decide_says_so() -> None:
    values = [0.60, 0.64, 0.60, 0.66, 0.605, 0.655]
    groups = [group("FedRandom", "labelled", [0.59] * 6), group("no labels", "labelled", values)]
    found = next(f for f in findings_of(groups) if f.hypothesis.key == "H1")
    assert found.difference.interval.low > 0
    assert found.p_alone is not None
    assert found.p_alone < 0.05 <= (found.difference.p or 0.0)
    assert found.verdict == "not decided (the interval lies above 0, p does not decide)"


def test_a_difference_can_be_claimed_to_be_larger_than_another() -> None:
    few = {"behaviour": "free", "budget": 2, "initial_labels": 0.014}
    many = {**few, "initial_labels": 0.3}
    groups = [
        group("EV", "labelled", [0.6, 0.7], "digits", **few),
        group("FedRandom", "labelled", [0.5, 0.5], "digits", **few),
        group("EV", "labelled", [0.8, 0.8, 0.9], "digits", **many),
        group("FedRandom", "labelled", [0.75, 0.7, 0.1], "digits", **many),
    ]
    assert compare(groups, hypothesis_of("H21"), "digits")[0].difference.values == pytest.approx([5.0, 10.0])
    assert compare(groups[:3], hypothesis_of("H21"), "digits")[0].verdict == NOT_RUN


def test_one_seed_decides_nothing() -> None:
    groups = [group("FedRandom", "labelled", [0.5]), group("no labels", "labelled", [0.9])]
    found = findings_of(groups)
    assert next(f for f in found if f.hypothesis.key == "H1").verdict == "not decided (one seed)"
    text = what_holds(found)
    assert text.startswith(
        "**What holds**\n\n- Nothing is settled by the runs so far.\n\n**What does not hold**\n\n- None"
    )
    assert (
        "**Not decided**\n\n- Bought labels do harm where clients are weighted by labels (no labels minus random: "
        "MNIST +40.0 points, 1 seed).\n" in text
    )
    assert "Provisional" not in text, "no list without a line"


def test_tables_by_hand() -> None:
    one = group("EV", "labelled", [0.5, 0.7])
    (row,) = accuracies([one]).texts
    assert row[:5] == ["MNIST", "weights by labels", "EV", "6", "50"]
    assert row[6:] == ["0, 1", "50.0 / 70.0"]
    (picked,) = picks_table([one]).texts
    assert picked[3:] == ["6", "40", NONE, "100", "25"]


def test_the_table_at_the_top_is_over_the_seeds_that_all_arms_of_a_row_have() -> None:
    groups = [
        group("FedRandom", "labelled", [0.5, 0.7, 0.9], length=60),
        replace(group("EV", "labelled", [0.6, 0.8], length=60), planned=3),
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
    words = "*the paper* (weights by labels in its text, another order in its code)"
    assert paper == ["MNIST", words, "50", "3", "75.0", "78.9", "79.6", NONE, NONE]
    fewer = main_table([groups[0], replace(groups[1], planned=2)])
    assert fewer is not None
    assert fewer.texts[0][3] == "2", "no more are wanted of EV"
    assert main_table(groups[3:]) is None, "five rounds say nothing of accuracy"
    turned = main_table(groups[2::-1])
    assert turned is not None
    assert turned.texts == table.texts, "what has fewest conditions is first"
    longer = main_table([group("EV", "labelled", [0.6, 0.8], length=200), *groups])
    assert longer is not None
    assert [row[2] for row in longer.texts] == ["60", "200", "60", "50", "200"], "ours, then the paper's of both"


def test_arms_that_share_no_seed_are_marked() -> None:
    other = group("EV", "labelled", [0.6, 0.8], length=60)
    moved = Group(other.arm, other.settings, MethodRuns("EV", other.method.runs[1:]), {}, 2)
    table = main_table([group("FedRandom", "labelled", [0.5], length=60), moved])
    assert table is not None
    assert table.texts[0][3:6] == ["differ", "50.0", "80.0"]


def test_a_sentence_names_some_hypotheses_and_counts_the_others() -> None:
    arms = {"no labels": 0.4, "FedRandom": 0.5, "EV": 0.6, "CHASe": 0.7, "CHASe, all-global": 0.8}
    seeds = np.linspace(0, 0.05, 6)
    groups = [group(arm, w, (v + v * seeds).tolist()) for w in ("labelled", "equal") for arm, v in arms.items()]
    found = findings_of(groups)
    more = len({f.hypothesis.brief for f in found if f.holds}) - MOST_NAMED
    assert more > 0
    assert f"- And {more} more in [why.md](why.md).\n" in what_holds(found)
    assert "**What does not hold**\n\n- Bought labels do harm" in what_holds(found)


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
    assert row == ["MNIST", "weights by labels", "EV", "2", "2", "75", "50", "75", "33"]
    found = {f.hypothesis.key: f for f in findings_of([one])}
    assert found["H18"].difference.values.tolist() == [25.0, 25.0]
    assert found["H19"].provisional
    beside = Group("FedRandom", settings, MethodRuns("FedRandom", [replace(run, selections=[])]))
    shown = seen_by_ev([beside, one]).texts
    assert shown[0] == ["MNIST", "weights by labels", "random", "2", "1", NONE, NONE, "75", "33"], "the control"
    assert shown[1] == row
    assert seen_by_ev([group("FedRandom", "labelled", [0.5])]).rows == []


def test_to_whose_classes_a_model_is_pulled_by_hand() -> None:
    """Client 0 asks most and holds classes 0 and 1: 30 of 40 samples are taken for these, 20 belong to them.

    Recall: 10 of 10, 9 of 10, then 5 and 4 of 10.
    """
    matrix = [[10, 0, 0, 0], [1, 9, 0, 0], [5, 0, 5, 0], [0, 5, 1, 4]]
    run = replace(
        run_of([0.1] * 6, 0, "random"),
        selections=[*asked(0, 0, 0, 3), *asked(1, 0)],
        confusion={"matrix": matrix},
        coverage={"held": [[5, 5, 0, 0], [0, 0, 5, 5]]},
    )
    assert pulled(run, {0}) == pytest.approx((75.0, 50.0, 95.0, 45.0))
    assert pull(run) == pytest.approx(25.0)
    assert np.isnan(pulled(run, {0, 1})).all(), "they hold all classes"
    assert np.isnan([*pulled(run, set()), *pulled(run_of([0.1], 0), {0})]).all()
    even = replace(run, confusion={"matrix": (10 * np.eye(4)).tolist()}, settings={**run.settings, "strategy": "ev"})
    settings = load("mnist", {}).model_dump()
    groups = [
        Group("FedRandom", settings, MethodRuns("FedRandom", [run])),
        Group("EV", settings, MethodRuns("EV", [even])),
        Group("no labels", settings, MethodRuns("no labels", [replace(run, selections=[])])),
    ]
    rows = pulled_table(groups).texts
    assert [row[2:] for row in rows] == [
        ["random", "6", "1", "75", "50", "95", "45"],
        ["EV", "6", "1", "50", "50", "100", "100"],
        ["no labels", "6", "1", "75", "50", "95", "45"],
    ]
    found = {f.hypothesis.key: f.difference.values.tolist() for f in findings_of(groups)}
    assert (found["H22"], found["H23"], found["H24"]) == ([25.0], [-25.0], [])
    longer = replace(run, metrics=[*run.metrics, *run_of([0.1] * 7, 0).metrics[6:]])
    equal = load("mnist", {"client_weights": "equal"}).model_dump()
    groups = [Group("FedRandom", settings, MethodRuns("FedRandom", [longer])), groups[0]]
    groups.append(Group("FedRandom", equal, MethodRuns("FedRandom", [even]), {"client_weights": "equal"}))
    assert [f.rounds for f in compare(groups, hypothesis_of("H24"), "mnist")] == [6]
    assert compare([groups[0], groups[2]], hypothesis_of("H24"), "mnist")[0].verdict == NOT_RUN, "ends of other rounds"


def test_our_figures_stand_beside_those_of_the_paper() -> None:
    """Values of one round are the same in all of a run but the first, so every mean of five rounds is that value."""
    groups = [
        group("FedRandom", "equal", [0.88, 0.9], length=60),
        group("EV", "equal", [0.9], length=60, image_size=32),
        group("EV", "labelled", [0.7], length=60),
        group("EV", "labelled", [0.6, 0.8], length=76),
        group("CHASe, all-global", "labelled", [0.885], length=60),
        group("EV", "labelled", [0.9], length=49),
        group("EV", "labelled", [0.9], length=60, data_share=0.5),
        group("no labels", "labelled", [0.9], length=60),
    ]
    table = beside_paper(groups)
    assert list(table.columns[3:]) == ["seeds", "50", "60", "75", "76", "100", "125", "150", "175", "200", "jump"]
    dashes = ["–"] * 5
    assert [[row[1], row[2], row[3], *row[4:9]] for row in table.texts] == [
        ["*the paper*", "random", "3", "75.0", "–", "78.7", "–", "80.6"],
        ["*the paper*", "EV", "3", "78.9", "–", "82.2", "–", "83.8"],
        ["*the paper*", "CHASe", "3", "79.6", "–", "82.2", "–", "84.0"],
        ["weights by labels", "CHASe, all-global", "1", "88.5\\*", "88.5\\*", *dashes[:3]],
        ["weights by labels", "EV", "2", "70.0", "70.0", "70.0", "70.0", "–"],
        ["equal weights", "random", "2", "89.0\\*", "89.0\\*", *dashes[:3]],
        ["equal weights, 32x32 pixels", "EV", "1", "90.0\\*", "90.0\\*", *dashes[:3]],
    ]
    assert all(row[9:] == [*dashes[:4], "0.0"] for row in table.texts[3:])


def test_how_much_the_accuracy_jumps_by_hand() -> None:
    """Between 50 and 60 % in every round, or from 50 by one point once in twenty rounds."""
    steady = replace(group("EV", "equal", [0.5], length=60), method=MethodRuns("EV", [run_of([0.5] * 59 + [0.51], 0)]))
    jumps = replace(group("EV", "shuffled", [0.5], length=60), method=MethodRuns("EV", [run_of([0.5, 0.6] * 30, 0)]))
    assert (jump(steady.method.runs), jump(jumps.method.runs)) == pytest.approx((0.05, 10.0))
    assert [row[-1] for row in beside_paper([steady, jumps]).texts] == ["–", "0.1", "10.0"]
    assert "10.0 points with shuffled weights and 0.1 with equal weights" in beside_note([steady, jumps]).replace(
        "\n", " "
    )
    assert "shuffled weights" not in beside_note([steady])
    assert "shuffled weights" not in beside_note([steady, replace(jumps, method=steady.method)]), "as steady as others"


def falling(accuracies: list[float], dormant: list[int], easy: list[float] | None = None) -> RunData:
    run = run_of(accuracies, 0, "chase")
    lines = [{**line, "pools": {"dormant": some}} for line, some in zip(run.metrics, dormant, strict=True)]
    if easy is not None:
        lines = [{**line, "easy_share_most": share} for line, share in zip(lines, easy, strict=True)]
    return replace(run, metrics=lines, settings={**run.settings, "data": "cifar10"})


def test_how_accuracy_changes_when_frozen_samples_awaken_by_hand() -> None:
    """Samples awaken in rounds 5, 6, 10 and 16: 6 and 10 follow shortly after others, and 16 is too late to compare."""
    dormant = [0, 10, 20, 30, 25, 20, 40, 50, 60, 55, 60, 65, 70, 75, 80, 70]
    run = falling([0.1, 0.4, 0.5, 0.6, 0.3, 0.2, 0.4, *[0.5] * 9], dormant)
    assert awakenings(run) == [4, 15], "round 10 is within five rounds of round 6"
    assert woken_change(run) == pytest.approx(100 * ((0.3 + 0.2 + 0.4) / 3 - (0.4 + 0.5 + 0.6) / 3))
    assert np.isnan(woken_change(run_of([0.1] * 9, 0))), "nothing was frozen"
    assert awakenings(run_of([0.1] * 9, 0)) == []
    early = falling([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [9, 8, 9, 9, 9, 9])
    assert np.isnan(woken_change(early)), "fewer than three rounds before it"


def test_the_page_tells_what_awakened_samples_cost() -> None:
    settings = load("cifar10", {}).model_dump()
    dormant = [0, 10, 20, 30, 25, 20, 40, 50]
    falls, stays = [0.1, 0.4, 0.5, 0.6, 0.3, 0.2, 0.4, 0.5], [0.1, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]
    runs = [falling(falls, dormant, [0.0, 0.5, 0.5, 0.6, 1.0, 0.9, 0.4, 0.6]) for _ in range(2)]
    groups = [
        Group("CHASe", settings, MethodRuns("CHASe", runs)),
        Group("EV", settings, MethodRuns("EV", [falling(stays, dormant)])),
        Group("FedRandom", settings, MethodRuns("FedRandom", [run_of(stays, 0)])),
    ]
    rows = awakened_table(groups).texts
    assert [row[2:] for row in rows] == [
        ["CHASe", "8", "2", "2.0", "1.0", "-20.0 (-20.0 to -20.0)"],
        ["EV", "8", "1", "2.0", "1.0", "–"],
    ]
    said = easy_then(groups).replace("\n", " ")
    assert "In one run that recorded it, 95 % of the watched samples" in said, "in rounds 5 and 6; both have one name"
    assert "and 52 % in other rounds" in said, "the mean of 0.5, 0.5, 0.6, 0.4 and 0.6"
    other = replace(groups[0], changed={"normalisation": "statistics"})
    assert easy_then([other]) == "", "not as in the table"
    assert easy_then(groups[1:]) == "", "not recorded"
    (found,) = compare(groups, hypothesis_of("H25"), "cifar10")
    assert found.difference.values.tolist() == pytest.approx([30.0])


def test_an_arm_of_two_studies_stands_once_with_most_of_its_runs() -> None:
    """Study ablation wants two seeds of random selection, study authors one of them; they share their runs."""
    runs = [replace(run_of([0.1, *[0.5] * 11], seed), path=Path(f"seed{seed}")) for seed in range(2)]
    results = []
    for name, seeds, changes in (("authors", 1, {}), ("ablation", 2, {"normalisation": "statistics"})):
        options = Options(("cifar10",) if changes else (), ("FedRandom",), 12, seeds, changes=changes)
        jobs = [job for job in plan(find_study(name), options) if job.arm == "FedRandom"][-seeds:]
        some, done = MethodRuns("FedRandom", runs[:seeds]), frozenset(job.name for job in jobs)
        scene = SceneResult(STUDIES[name], STUDIES[name].parts[-1], jobs[0].scene, jobs, [some], done)
        results.append(StudyResult(STUDIES[name], [scene], seeds, seeds))
    for order in (results, results[::-1]):
        (only,) = groups_of(order)
        assert (len(only.method.runs), only.planned) == (2, 2)


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
    first = text.split("\n## ")[1]
    assert first.startswith("In short")
    row = "| H1 | bought labels do harm where clients are weighted by labels | no labels minus random | +10.0 early |"
    assert row in first.splitlines()
    assert "H1, H2, H3, H4, H5, H8, H10, H11, H12, H17, H25, H26, H27, H28 on CIFAR-10" in first
    assert "Not finished yet: EV" in text
    assert "The pull was found" not in text, "nothing is said to be found that does not hold"
    assert {file.name for file in figures} >= {"why-page-mnist-accuracy-12.svg", "why-page-mnist-largest-share.svg"}
    assert why_page([], tmp_path) == ("", {})


def test_each_length_of_runs_has_a_figure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "values", lambda title, *rest: ", ".join(line.label for line in rest[-1]))
    groups = [group("FedRandom", "equal", [0.8], length=n) for n in (60, 200)]
    groups += [group("EV", "labelled", [0.7], length=60), group("EV", "equal", [0.9], length=200)]
    drawn = drawings([*groups, group("EV", "equal", [0.9], length=30)], [])
    title = "Accuracy by client weights, MNIST, round"
    assert {name: (figure.title, figure.svg) for name, figure in drawn.items()} == {
        "mnist-accuracy-60": (f"{title} 60", "weights by labels, equal weights"),
        "mnist-accuracy-200": (f"{title} 200", "equal weights"),
    }


def test_what_is_left_of_the_campaign_counts_runs_of_the_wanted_length() -> None:
    jobs = plan(find_study("why"), CAMPAIGN[0].options)

    def finished(own: list[StudyJob]) -> StudyResult:
        study = STUDIES["why"]
        scene = SceneResult(study, study.parts[0], jobs[0].scene, own, [], frozenset(job.name for job in own))
        return StudyResult(study, [scene], len(own), len(jobs))

    counts = {planned.command: (done, total) for planned, done, total in left([finished(jobs[:7])])}
    assert counts["chase study why --data mnist --rounds 60 --seeds 6"] == (7, 60)
    assert counts["chase study strong --rounds 60 --seeds 6"][1] == 168
    assert CAMPAIGN[0] not in [planned for planned, _, _ in left([finished(jobs)])]
    shorter = [replace(job, settings=job.settings.model_copy(update={"rounds": 5})) for job in jobs]
    assert left([finished(shorter)]) == [], "no part of the campaign"
    assert "seeds 6 --out why`: 7 of 60 runs are finished" in missing([finished(jobs[:7])])


def test_the_documents_name_the_commands_of_the_campaign() -> None:
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    named = [line.strip() for line in text.splitlines() if line.startswith("    chase study") and "campaign/" in line]
    assert [sorted(line.split()) for line in named] == [
        sorted(f"{planned.command} --out campaign/{planned.directory}".split()) for planned in CAMPAIGN
    ]


def test_in_short_a_hypothesis_stands_once_with_all_its_data_sets_and_lengths() -> None:
    seeds = np.linspace(0, 0.05, 6)
    groups = [
        group(arm, "equal", (value + seeds * value).tolist(), data)
        for data in ("mnist", "cifar10")
        for arm, value in (("FedRandom", 0.5), ("EV", 0.6))
    ]
    groups += [group("FedRandom", "equal", [0.5, 0.6, 0.7], length=9), group("EV", "equal", [0.5, 0.6, 0.7], length=9)]
    groups += [group("no labels", "equal", (0.9 - seeds).tolist(), "cifar10")]
    lines = in_short(findings_of(groups)).splitlines()
    assert lines[2] == "|  | claim | difference | MNIST, round 6 | MNIST, round 9 | CIFAR-10 |"
    assert lines[4:6] == [
        "| H3 | bought labels help with equal weights | random minus no labels | – | – | -36.2 **fails** |",
        "| H5 | EV beats random selection with equal weights | EV minus random "
        "| +10.2 **holds** | 0.0 open | +10.2 **holds** |",
    ]
    assert lines[-1].startswith("**Not run yet:** H1, H2, H3, H4, ")
    assert in_short([]) == "## In short\n"


def test_a_long_table_opens_on_a_click_after_what_it_means() -> None:
    short, long = (ReportTable(("a",), [["x"]] * rows) for rows in (LONGEST, LONGEST + 1))
    assert [part.split("\n")[0] for part in section("Title", short, "note")] == ["## Title", "| a |", "note"]
    shown = section("Title", long, "note")
    assert shown[:2] == ["## Title\n", "note"]
    assert shown[2].startswith("<details><summary>Title: the table</summary>")
    assert section("Title", None, "note") == section("Title", ReportTable(("a",), []), "note") == []


def test_every_hypothesis_says_what_is_subtracted_from_what() -> None:
    said = {hypothesis.key: compared(hypothesis) for hypothesis in HYPOTHESES}
    assert all(said.values())
    assert said["H1"] == "no labels minus random"
    assert said["H11"] == "CHASe, all-global minus CHASe"
    assert said["H2"] == "equal weights minus weights by labels"
    assert all(" minus " in text for key, text in said.items() if key != "H18")


def test_clients_alone_are_told_by_hand() -> None:
    """Two clients of one class each: 90 and 70 % of their own after round 1, all after round 2."""
    usual = load("mnist", {}).model_dump()

    def line(at: int, own: tuple[float, float]) -> dict[str, Any]:
        scores = {"0": {"per_class": [own[0], 0.0]}, "1": {"per_class": [0.0, own[1]]}}
        pools = {**POOLS, "labeled": 20 * at}
        return {"round": at, "test_accuracy": 0.4, "pools": pools, "mean_ev": 1.5 / at, "client_scores": scores}

    run = RunData(
        Path("x"),
        {**usual, "seed": 0, "clients": 2},
        [line(1, (0.9, 0.7)), line(2, (1.0, 1.0))],
        coverage={"held": [[5, 0], [0, 5]]},
    )
    jobs = plan(find_study("isolated"), Options(("mnist",), ("isolated",), rounds=2, seeds=1))
    part, done = STUDIES["isolated"].parts[0], frozenset(job.name for job in jobs)
    scene = SceneResult(STUDIES["isolated"], part, jobs[0].scene, jobs, [MethodRuns("isolated", [run])], done)
    table = clients_alone([StudyResult(STUDIES["isolated"], [scene], 1, 1)])
    assert table is not None
    assert table.texts == [["MNIST", "1", "1", "10", "80.0", "1.50"], ["MNIST", "2", "1", "20", "100.0", "0.75"]]
    assert clients_alone([StudyResult(STUDIES["isolated"], [replace(scene, finished=frozenset())], 0, 1)]) is None
    both = [StudyResult(STUDIES["isolated"], [scene], 1, 1)] * 2
    assert clients_alone(both) == table, "a data set stands once"
    for key, value in {"data_share": 0.5, "test_limit": 10, "lr": 0.5}.items():
        other = [replace(job, settings=job.settings.model_copy(update={key: value})) for job in jobs]
        assert clients_alone([StudyResult(STUDIES["isolated"], [replace(scene, jobs=other)], 1, 1)]) is None, key
    assert clients_alone([]) is None


@pytest.mark.parametrize(("evs", "said"), [((3, 2, 5, 1), True), ((0, 0, 5, 1), False)])
def test_that_ev_tells_samples_apart_is_said_only_where_it_does(evs: tuple[int, ...], said: bool) -> None:
    seeds = np.linspace(0, 0.05, 6)
    ev = group("EV", "equal", (0.6 + seeds).tolist(), "cifar10")
    runs = [
        replace(run, settings={**run.settings, "strategy": "ev"}, selections=asked(0, *evs)) for run in ev.method.runs
    ]
    groups = [
        replace(ev, method=MethodRuns("EV", runs)),
        group("FedRandom", "equal", (0.5 + seeds).tolist(), "cifar10"),
    ]
    groups[1].method.runs[0].metrics[-1]["test_accuracy"] += 0.01  # differences that vary
    assert bool(something_to_go_by(findings_of(groups), groups)) is said
    assert something_to_go_by([], groups) == ""
    few = {key: value for key, value in FEW_LABELS.items() if key != "client_weights"}
    won = group("EV", "labelled", (0.8 + seeds).tolist(), "digits", **few)
    half = [replace(r, settings={**r.settings, "strategy": "ev"}, selections=asked(0, 0, 4)) for r in won.method.runs]
    digits = [replace(won, method=MethodRuns("EV", half)), group("FedRandom", "labelled", [0.7] * 6, "digits", **few)]
    text = something_to_go_by(findings_of([*groups, *digits]), [*groups, *digits])
    assert ("and\n50 % of its picks have an EV of 0 (H6)" in text) is said
    lost = [replace(digits[0], method=MethodRuns("EV", digits[1].method.runs)), digits[1]]
    assert "digits" not in something_to_go_by(findings_of([*groups, *lost]), [*groups, *lost]), "H6 does not hold"
    seen = [replace(r, selections=asked(0, 3, 4)) for r in half]
    clear = [replace(won, method=MethodRuns("EV", seen)), digits[1]]
    assert "digits" not in something_to_go_by(findings_of([*groups, *clear]), [*groups, *clear]), "no pick of EV 0"


def test_less_data_than_was_published_is_said_beside_the_figures() -> None:
    plain = group("FedRandom", "labelled", [0.5, 0.6], "cifar100")
    assert conditions(plain) == "weights by labels", "not known"
    runs = [replace(run, coverage={"held": [[4000, 5000], [1000, 0]]}) for run in plain.method.runs]
    some = replace(plain, method=MethodRuns("FedRandom", runs))
    assert conditions(some) == "weights by labels, 10,000 of 50,000 training samples"
    share = replace(some, changed={"data_share": 0.2})
    assert conditions(share) == "weights by labels, 20 % of the data", "said already"
    whole = replace(run_of([0.1], 0), coverage={"held": [[50_000]]})
    assert conditions(replace(plain, method=MethodRuns("FedRandom", [whole]))) == "weights by labels"


def strong_group(arm: str, finals: list[float], **settings: Any) -> Group:
    return group(arm, "labelled", finals, length=60, **settings)


def test_methods_of_the_field_are_set_against_random_selection() -> None:
    """Six comparisons are planned, and the one with the least p counts six times, whatever has run."""
    noise = np.array([0.0, 0.01, -0.01, 0.02, -0.02, 0.01])
    groups = [
        strong_group("FedRandom", (0.5 + noise).tolist()),
        strong_group("FEAL", (0.6 + 0.5 * noise).tolist()),
        strong_group("IFAL", (0.4 + 0.5 * noise).tolist()),
        strong_group("LoGo", (0.5 - noise).tolist()),
        strong_group("FairFAL", [0.7 + 0.001 * seed for seed in range(3)]),
    ]
    found = {d.label: d for d in against("FedRandom", groups, 60)}
    assert list(found) == ["FEAL", "IFAL", "LoGo", "FairFAL"]
    assert found["IFAL"].p == pytest.approx(6 * paired_p(100 * (-0.1 - 0.5 * noise)), rel=1e-6)
    assert found["FairFAL"].p is None
    rows = {("mnist", "weights by labels", 60): groups}
    assert field_sentences(rows).split("\n") == [
        "**Minus random selection**",
        "",
        "- **Better:** MNIST, weights by labels (6 seeds): FEAL +9.9.",
        "- **Worse:** MNIST, weights by labels (6 seeds): IFAL -10.1.",
        "- **Provisional, fewer than 6 seeds:** MNIST, weights by labels (3 seeds): FairFAL +20.1.",
        "- **Not decided:** MNIST, weights by labels (6 seeds): LoGo -0.3.",
        "",
        *FIELD_NOTE.split("\n"),
    ]
    assert field_sentences({("mnist", "weights by labels", 60): groups[:1]}) == FIELD_NOTE
    assert against("FedRandom", groups[1:], 60) == [], "nothing to compare with"


def test_the_abstract_says_what_the_runs_decide_and_no_more() -> None:
    noise = np.array([0.0, 0.01, -0.01, 0.005, -0.005, 0.002])
    groups = [
        group("FedRandom", "labelled", (0.5 + noise).tolist(), length=60),
        group("no labels", "labelled", (0.6 - noise).tolist(), length=60),
        group("FedRandom", "equal", (0.7 - noise).tolist(), length=60),
        group("no labels", "equal", (0.65 + noise).tolist(), length=60),
    ]
    title, question, answers = abstract(findings_of(groups), [])
    assert title.startswith("## ")
    assert "what decides it?" in question
    assert answers == (
        "1. **Who counts how much in the average decides whether bought labels help.** Where clients are weighted by "
        "labels, as in the paper's text, labels that they buy cost 9.9 points (MNIST at round 60; H1); with equal "
        "weights as many labels bring 4.9 points (H3), and random selection gains 19.9 (H2).\n"
    )
    assert abstract(findings_of(groups[:2]), []) == [], "H2 and H3 have not run"
    turned = [replace(groups[0], method=groups[1].method), replace(groups[1], method=groups[0].method), *groups[2:]]
    assert abstract(findings_of(turned), []) == [], "H1 is contradicted"
    cifar = [
        group(arm, "equal", (v + sign * noise).tolist(), "cifar10")
        for arm, v, sign in (("FedRandom", 0.5, 1), ("no labels", 0.4, -1))
    ]
    assert (
        "(H2). With equal weights they bring 10.1 points on CIFAR-10 at round 6 (H3).\n"
        in abstract(findings_of([*groups, *cifar]), [])[-1]
    )


def test_sentences_of_the_abstract_take_the_figures_of_one_round() -> None:
    noise = np.array([0.0, 0.01, -0.01, 0.005, -0.005, 0.002])
    undecided = noise[::-1] * 3
    groups = [
        group("FedRandom", "equal", (0.5 + noise).tolist(), "cifar10", length=60),
        group("EV", "equal", (0.5 + undecided).tolist(), "cifar10", length=60),
        group("FedRandom", "equal", (0.6 + noise).tolist(), "cifar10", length=200),
        group("EV", "equal", (0.62 - noise).tolist(), "cifar10", length=200),
    ]
    (answer,) = abstract(findings_of(groups), [])[-1].splitlines()
    assert answer.startswith(
        "1. **With equal weights EV is ahead of random selection on CIFAR-10**, by 1.9 points at round 200"
    )
    on_mnist = [replace(g, settings={**g.settings, "data": "mnist"}) for g in groups]
    assert abstract(findings_of(on_mnist), []) == [], "a point begins with what it is about"
    both = abstract(findings_of([*groups, *on_mnist]), [])[-1]
    assert (
        "H5). On MNIST at round 60, with two classes per client, no difference is decided with equal weights (H5).\n"
        in both
    )


def test_every_sentence_of_the_abstract_speaks_of_hypotheses_on_their_data() -> None:
    for sentence in (sentence for point in POINTS for sentence in point):
        assert all(sentence.data in hypothesis_of(key).data for key in sentence.when), sentence
        named = {key for key in sentence.when if key in sentence.text}
        assert named or "There " in sentence.text, sentence


def test_the_abstract_counts_later_methods_without_ev() -> None:
    (said,) = later_methods(field_studies(["FedRandom", "EV", "FEAL"]))
    assert said.startswith(
        "**Of the other published methods none is shown to beat random selection** (MNIST, weights by labels). "
    )
    assert later_methods(field_studies(["FedRandom", "EV"])) == []


def test_ev_and_random_selection_are_compared_once() -> None:
    """Under the preset's conditions by hypotheses H4 and H5, elsewhere among the methods of a row."""
    noise = np.array([0.0, 0.01, -0.01, 0.02, -0.02, 0.01])
    arms = {"FedRandom": 0.5 + noise, "EV": 0.6 + noise / 2, "LoGo": 0.4 - noise}
    own = [strong_group(arm, values.tolist()) for arm, values in arms.items()]
    spread = [strong_group(arm, values.tolist(), partition="dirichlet", alpha=0.1) for arm, values in arms.items()]
    rows = {("mnist", "by classes", 60): own, ("mnist", "spread", 60): spread}
    random, ev = compared_with("FedRandom", rows), compared_with("EV", rows)
    assert [(one.where, one.points) for one in random["above"]] == [("MNIST, spread", "EV +9.9")]
    assert [(one.where, one.points) for one in random["below"]] == [
        ("MNIST, by classes", "LoGo -10.3"),
        ("MNIST, spread", "LoGo -10.3"),
    ]
    assert [one.points for one in ev["below"]] == ["LoGo -20.2", "LoGo -20.2"]
    assert not ev["above"]
    assert not ev["open"]


def test_what_one_correction_over_the_whole_page_would_leave() -> None:
    noise = np.array([0.0, 0.01, -0.01, 0.005, -0.005, 0.002])
    groups = [
        group("FedRandom", "labelled", (0.5 + noise).tolist()),
        group("no labels", "labelled", (0.6 - noise).tolist()),
        group("EV", "labelled", (0.505 - noise).tolist()),
    ]
    found = findings_of(groups)
    alone = {f.hypothesis.key: f.p_alone for f in found if f.p_alone is not None}
    assert list(alone) == ["H1", "H4"]
    corrected = zip(found, corrected_together(found), strict=True)
    together = {f.hypothesis.key: p for f, p in corrected if f.data == "mnist"}
    assert together["H1"] == pytest.approx(2 * alone["H1"])
    assert together["H4"] == pytest.approx(max(alone["H4"], 2 * alone["H1"]))
    assert together["H2"] is None
    text = " ".join(if_all_were_one_family(found).split())
    assert "over all 2 tested rows at once, these stay decided: H1 on MNIST." in text
    assert if_all_were_one_family(findings_of(groups[:1])) == ""


def test_the_results_page_shows_the_setting_in_question_at_once() -> None:
    groups = [
        group("FedRandom", "equal", [0.5, 0.7], length=60),
        group("FedRandom", "labelled", [0.5, 0.7], length=60, behaviour="AbCo"),
        group("FedRandom", "labelled", [0.5, 0.7], "emnist", length=60),
    ]
    shown, folded = tables_of(groups)
    assert shown is not None
    assert folded is not None
    assert next(row[:2] for row in shown.texts) == ["MNIST", "equal weights"]
    assert [row[0] for row in folded.texts] == ["MNIST", "EMNIST"], "the paper's rows stand once"
    alone, rest = tables_of(groups[2:])
    assert alone is not None
    assert alone.texts[0][0] == "EMNIST"
    assert rest is None


def field_studies(arms: list[str]) -> list[StudyResult]:
    """Study ``strong`` on MNIST, both ways of sharing out data, with two seeds of these methods."""
    study, scenes = find_study("strong"), []
    jobs = plan(study, Options(("mnist",), rounds=12, seeds=2, no_labels=True))
    for words in dict.fromkeys(job.scene for job in jobs):
        own = [job for job in jobs if job.scene == words]
        runs = [replace(run_of([0.1, *[0.5] * 11], seed), path=Path(f"{words}-{seed}")) for seed in range(2)]
        methods = [MethodRuns(arm, runs) for arm in arms]
        done = frozenset(job.name for job in own if job.arm in arms)
        scenes.append(SceneResult(study, study.parts[0], words, own, methods, done))
    return [StudyResult(study, scenes, 2 * len(arms), len(jobs))]


def test_the_table_of_the_field_has_a_row_for_each_way_of_sharing_out_data() -> None:
    rows = rows_of(field_studies(["FedRandom", "EV", "FEAL"]))
    first, second = field_table(rows).texts
    assert first[:4] == ["MNIST", "weights by labels", "12", "2"]
    assert second[1] == "weights by labels, clients by Dirichlet(0.1)"
    assert [len(cell) > 1 for cell in first[4:]] == [True, True, False, False, True, False, False]
    assert field_table(rows).columns[4:] == ("random", "EV", "KAFAL (KSAS)", "LoGo", "FEAL", "FairFAL", "IFAL")
    assert field_text(field_studies(["FedRandom", "EV", "no labels"])) == [], "study why has these"
