"""Hypotheses and their page, on accuracies made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chase.report.runs import MethodRuns, RunData
from chase.report.tables import NONE
from chase.settings import load
from chase.studies.catalog import STUDIES, find_study
from chase.studies.hypotheses import (
    CLAIMS,
    CONTRADICTED,
    NOT_RUN,
    OPEN,
    SUPPORTED,
    Group,
    compare,
    findings_of,
    groups_of,
    last_rounds,
)
from chase.studies.plan import Options, plan
from chase.studies.results import SceneResult, StudyResult
from chase.studies.why_page import accuracies, picks_table, why_page

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


def group(arm: str, weights: str, finals: list[float], data: str = "mnist", **settings: Any) -> Group:
    runs = [run_of([0.1, *[value] * 5], seed) for seed, value in enumerate(finals)]
    chosen = load(data, {"client_weights": weights, **settings}).model_dump()
    return Group(arm, chosen, MethodRuns(arm, runs))


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
    weights = next(claim for claim in CLAIMS if claim.key == "H2")
    assert compare(groups, weights, "mnist").values == pytest.approx([20.0, 30.0])
    assert compare(groups, weights, "cifar10").values.size == 0


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
    said = {f.claim.key: f for f in findings_of(groups) if f.data == "mnist"}
    assert said["H1"].verdict == SUPPORTED
    assert said["H1"].difference.p is not None
    assert said["H4"].verdict == CONTRADICTED
    assert said["H3"].verdict == "supported (interval above 0, untested)"
    assert said["H5"].verdict == OPEN
    assert said["H7"].verdict == NOT_RUN
    assert said["H3"].holds
    assert not said["H4"].holds


def test_tables_by_hand() -> None:
    one = group("EV", "labelled", [0.5, 0.7])
    (row,) = accuracies([one]).texts
    assert row[:5] == ["mnist", "labelled weights", "EV", "6", "50"]
    assert row[6] == "50.0 / 70.0"
    (picked,) = picks_table([one]).texts
    assert picked[3:] == ["40", NONE, "100", "25"]


def test_the_page_leads_with_what_holds_and_names_what_is_missing(tmp_path: Path) -> None:
    jobs = plan(find_study("why"), Options(("mnist",), rounds=6, seeds=2))
    own = [job for job in jobs if job.settings.client_weights == "labelled"]
    methods = [
        MethodRuns("FedRandom", [run_of([0.1, *[v] * 5], seed) for seed, v in enumerate((0.5, 0.51))]),
        MethodRuns("no labels", [run_of([0.1, *[v] * 5], seed) for seed, v in enumerate((0.6, 0.61))]),
    ]
    done = frozenset(job.name for job in own if job.arm in ("FedRandom", "no labels"))
    scene = SceneResult(STUDIES["why"], STUDIES["why"].parts[0], own[0].scene, own, methods, done)
    result = StudyResult(STUDIES["why"], [scene], len(done), len(jobs))
    assert [g.arm for g in groups_of([result])] == ["FedRandom", "no labels"]
    text, figures = why_page([(tmp_path, result)], tmp_path)
    first = text.split("## Hypotheses and verdicts")[0]
    assert "**Holds**\n\n- H1, mnist, +10.0 points, 2 seeds: In the paper's weighting, bought labels do harm" in first
    assert "**Not run yet.** cifar10: H1, H2" in first or "; cifar10: H1, H2" in first
    assert "Not finished yet: EV" in text
    assert {file.name for file in figures} >= {"why-page-mnist-accuracy.svg", "why-page-mnist-largest-share.svg"}
    assert why_page([], tmp_path) == ("", {})
