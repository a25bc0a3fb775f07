"""The rule by which a default is recommended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chase.report.runs import MethodRuns, RunData
from chase.studies.plan import Options, plan
from chase.studies.ranking import labels_needed, ranking, recommendation
from chase.studies.recommend import ARMS, STUDY, mean_ranks
from chase.studies.results import SceneResult, StudyResult


def test_mean_rank_over_data_sets_with_shared_ranks_for_ties() -> None:
    """On the first set b, then a and c share 2.5; on the second a, b, c: a (2.5 + 1) / 2, b 1.5, c (2.5 + 3) / 2."""
    found = mean_ranks({"one": {"a": 70.0, "b": 80.0, "c": 70.0}, "two": {"a": 90.0, "b": 85.0, "c": 10.0}})
    assert found == pytest.approx({"b": 1.5, "a": 1.75, "c": 2.75})
    assert list(found) == ["b", "a", "c"]


def test_a_method_that_was_not_run_everywhere_is_not_ranked() -> None:
    assert list(mean_ranks({"one": {"a": 1.0, "b": 2.0}, "two": {"a": 1.0}})) == ["a"]
    assert mean_ranks({}) == {}


def test_both_learners_are_planned_on_four_data_sets() -> None:
    jobs = plan(STUDY, Options(seeds=1))
    assert len(jobs) == 4 * len(ARMS)
    assert {job.settings.learner for job in jobs} == {"closed-form", "network"}
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.scene for job in jobs} == {"digits", "MNIST", "CIFAR-10", "EMNIST"}
    heads = {job.settings.head for job in jobs if job.settings.learner == "network"}
    assert heads == {"trained", "closed-form"}


def curve(seed: int, accuracies: list[float], passes: int = 0) -> RunData:
    """40 initial labels and 100 more in every round."""
    lines: list[dict[str, Any]] = [
        {
            "round": number + 1,
            "labels": 100 * number,
            "pools": {"labeled": 40 + 100 * number},
            "test_accuracy": value,
            "inferences": passes,
            "seconds": 1.0,
        }
        for number, value in enumerate(accuracies)
    ]
    return RunData(Path(f"run{seed}"), settings={"seed": seed, "data": "mnist"}, metrics=lines)


def result_of(methods: dict[str, list[RunData]]) -> StudyResult:
    jobs = plan(STUDY, Options(data=("mnist",), seeds=1))
    runs = [MethodRuns(label, found) for label, found in methods.items()]
    return StudyResult(STUDY, [SceneResult(STUDY, STUDY.parts[0], "MNIST", jobs, runs)], 1, 1)


def test_only_the_choosing_seeds_choose_and_only_fresh_seeds_report() -> None:
    """On seed 0 a is better; on seed 6 b is: a wins, and the labels needed are those of seed 6."""
    a = [curve(0, [0.5, 0.9, 0.95]), curve(6, [0.1, 0.2, 0.3])]
    b = [curve(0, [0.4, 0.5, 0.6]), curve(6, [0.5, 0.9, 0.95])]
    found = result_of({"closed-form, random": a, "network, random": b})
    assert recommendation(found).startswith("recommended provisionally: closed-form, random (mean rank 1.0; 1 data set")
    assert ranking(found).texts[0][:2] == ["closed-form, random", "1.0"]
    rows = labels_needed(found).texts
    assert rows[0] == ["MNIST", "88.3", "closed-form, random", "more than 240", "0 of 1", "reporting"]
    assert rows[1] == ["MNIST", "88.3", "network, random", "140", "1 of 1", "reporting"]


def test_labels_needed_come_with_an_interval_and_count_initial_labels() -> None:
    """Reached at 140, 140 and 240 labels: the mean is 173, its half-width 4.303 * 57.7 / sqrt(3) = 143."""
    runs = [curve(0, [0.5, 0.9, 0.95]), curve(1, [0.5, 0.89, 0.9]), curve(2, [0.5, 0.6, 0.9])]
    row = labels_needed(result_of({"closed-form, random": runs})).texts[0]
    assert row[3:] == ["173 (30 to 317)", "3 of 3", "choosing"]


def test_of_two_methods_with_one_rank_the_cheaper_wins() -> None:
    same = [0.5, 0.9, 0.95]
    found = result_of({"closed-form, badge": [curve(0, same, 9)], "closed-form, margin": [curve(0, same, 3)]})
    assert "closed-form, margin (mean rank 1.5" in recommendation(found)
    assert "Closed-form" not in recommendation(found)
