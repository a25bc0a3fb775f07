"""Labels saved, the main metric first, and single seeds instead of bands: all on numbers worked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from chase.core.errors import SettingsError
from chase.report import method_tables, plots, tables
from chase.report.html import data_name, render
from chase.report.labels_saved import labels_saved, saved_sentences, saved_table
from chase.report.runs import accuracy, by_method, find_runs, metric
from chase.report.table_files import comparison_tables
from chase.run.metrics import main_value, stop_reason
from chase.run.scoring import TestSet
from chase.server.evaluation import mean_auc, mean_scores
from chase.settings import from_mapping, parse_changes


def compared(make_run, tmp_path, arms):
    for strategy, by_seed in arms.items():
        for seed, accuracies in enumerate(by_seed):
            make_run(f"{strategy}-{seed}", accuracies, strategy=strategy, seed=seed)
    return by_method(find_runs([tmp_path]))


def test_labels_that_a_method_saves_are_counted_seed_by_seed(make_run, tmp_path) -> None:
    """A round brings 2 labels. Random ends at 0.6 and 0.5 with 6 labels; margin is there after rounds 2 and 3."""
    arms = {
        "margin": [[0.3, 0.6, 0.7, 0.8], [0.2, 0.4, 0.5, 0.9]],
        "random": [[0.3, 0.4, 0.5, 0.6], [0.2, 0.3, 0.4, 0.5]],
    }
    methods = compared(make_run, tmp_path, arms)
    (margin,) = labels_saved(methods)
    assert margin.needed.tolist() == [2.0, 4.0]
    assert margin.of.tolist() == [6.0, 6.0]
    assert margin.saved.tolist() == [4.0, 2.0]
    assert np.allclose(margin.share, [400 / 6, 200 / 6])
    table = saved_table(methods)
    assert table is not None
    assert table.texts[0][:3] == ["margin", "2 of 2", "3 (2–4)"]
    assert saved_sentences(methods) == [
        "margin reached the accuracy that random ended with (55.0 %) with 3 labels instead of 6: 3 labels saved (50 %)."
    ]
    assert "labels-saved" in comparison_tables(methods)


def test_a_method_that_never_gets_there_saves_nothing(make_run, tmp_path) -> None:
    methods = compared(make_run, tmp_path, {"margin": [[0.1, 0.2]], "random": [[0.3, 0.4]]})
    assert labels_saved(methods)[0].got_there == 0
    assert "never reached the accuracy that random ended with (40.0 %)" in saved_sentences(methods)[0]


def test_the_comparison_leads_with_labels_saved(make_run, tmp_path) -> None:
    compared(make_run, tmp_path, {"margin": [[0.3, 0.6, 0.7]], "random": [[0.3, 0.4, 0.5]]})
    page = render(find_runs([tmp_path]))
    assert page.index("labels saved (") < page.index("Area under the label curve")
    assert page.index("Labels saved against random") < page.index("Results")


def test_labels_are_counted_by_the_main_metric(make_run, tmp_path) -> None:
    """Balanced accuracy of the hand-made lines is 3/4 of accuracy for both methods, so the labels are the same."""
    for name, accuracies in (("margin", [0.3, 0.6]), ("random", [0.3, 0.4])):
        make_run(name, accuracies, strategy=name, main_metric="balanced-accuracy")
    methods = by_method(find_runs([tmp_path]))
    assert np.allclose(labels_saved(methods)[0].goal, [30.0])
    assert tables.summary(methods).columns[3] == "balanced accuracy, %"
    assert tables.summary(methods).texts[0][3] == "45.0"
    assert tables.brief(tables.summary(methods)).columns[3:5] == ["balanced accuracy, %", "accuracy, %"]
    shown = tables.round_by_round(methods[0].first)
    assert list(shown.columns[:3]) == ["round", "balanced accuracy, %", "accuracy, %"]
    assert shown.texts[-1][1] == "45.0"
    page = render(find_runs([tmp_path]))
    assert "Balanced accuracy over labels" in page
    assert "test balanced accuracy" in page


def test_results_differences_and_targets_are_those_of_the_main_metric(make_run, tmp_path) -> None:
    for name, accuracies in (("margin", [0.4, 0.8]), ("random", [0.4, 0.6])):
        make_run(name, accuracies, strategy=name, main_metric="balanced-accuracy")
    methods = by_method(find_runs([tmp_path]))
    found = method_tables.results(methods)
    assert found.columns[2] == "balanced accuracy after round 2, %"
    assert found.texts[0][2] == "60.0"  # 3/4 of 80 %
    assert found.texts[0][list(found.columns).index("balanced accuracy minus random's, points")] == "+15.00"
    assert method_tables.targets(methods) == [45.0, 60.0]
    assert method_tables.to_reach(methods, [60.0]).texts[0][2] == "1 of 1"
    assert method_tables.cost(methods).texts[0][1] == "60.0"
    assert "60.0 % against 45.0 %" in method_tables.findings(methods)[0]
    assert "Balanced accuracy minus that of random" in render(find_runs([tmp_path]))


def test_the_area_under_the_roc_curve_can_be_the_main_metric() -> None:
    """Two classes, four samples: three of the four pairs of a sample of each are in order, so 3/4 for both classes."""
    outputs = torch.tensor([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    labels = np.array([0, 0, 1, 1])
    assert mean_auc(outputs, labels) == 0.75
    assert mean_auc(outputs, np.array([1, 1, 1, 1])) is None
    found = TestSet(lambda weights: outputs, labels, 2, areas=True).scores({})
    assert main_value(found, "auc") == 0.75
    assert "auc" not in TestSet(lambda weights: outputs, labels, 2).scores({})
    assert main_value({"test_accuracy": 0.5}, "auc") is None  # sites that are scored elsewhere tell accuracy alone
    assert mean_scores([found, found | {"auc": 0.25}])["auc"] == 0.5
    ended = stop_reason(from_mapping({"main_metric": "auc", "target": 0.7}), [found | {"labels": 1, "round": 1}])
    assert ended == "target AUC 70.0% reached"


def test_the_target_is_still_read_under_its_earlier_name() -> None:
    assert from_mapping({"target_accuracy": 0.5}).target == 0.5
    assert from_mapping({"run": {"target_accuracy": 0.5}}).target == 0.5
    assert parse_changes(["target_accuracy=0.5"]) == {"target": 0.5} == parse_changes(["run.target-accuracy=0.5"])
    with pytest.raises(SettingsError, match="given twice"):
        from_mapping({"target_accuracy": 0.5, "target": 0.5})


def test_macro_f1_as_the_main_metric_moves_to_the_front(make_run, tmp_path) -> None:
    make_run("one", [0.3, 0.6], main_metric="macro-f1")
    assert list(tables.summary(by_method(find_runs([tmp_path]))).columns[3:5]) == ["macro-F1, %", "accuracy, %"]


def test_with_fewer_than_four_seeds_single_seeds_are_drawn(make_run, tmp_path) -> None:
    for seed in range(4):
        make_run(f"seed{seed}", [0.1 * (seed + 1), 0.2 * (seed + 1)], seed=seed)
    runs = find_runs([tmp_path])
    few = plots.curve(by_method(runs[:3])[0], metric("round"), accuracy)
    assert few is not None
    assert few.each is not None
    assert np.allclose(few.each, [[10, 20], [20, 40], [30, 60]])
    assert np.array_equal(few.low, few.mean)
    assert np.array_equal(few.high, few.mean)
    many = plots.curve(by_method(runs)[0], metric("round"), accuracy)
    assert many is not None
    assert many.each is None
    assert (many.low < many.mean).all()
    assert "Thin lines are single seeds" in plots.says_spread(by_method(runs[:3]))
    assert "Bands are 95 %" in plots.says_spread(by_method(runs))
    drawn = plots.lines("t", "round", "accuracy (%)", [few])
    assert drawn.count("stroke-width: 0.7") == 3


def test_the_reliability_diagram_is_drawn(make_run, tmp_path) -> None:
    path = make_run("one", [0.3, 0.6])
    quality = {
        "tested": 10,
        "accuracy": 0.6,
        "accuracy_interval": [0.3, 0.8],
        "majority_accuracy": 0.5,
        "balanced_accuracy": 0.6,
        "auc": 0.7,
        "ece": 0.2,
        "reliability": [{"count": 10, "confidence": 0.8, "accuracy": 0.6}],
        "classes": [],
    }
    (path / "confusion.json").write_text(json.dumps({"round": 2, "matrix": [[1]], "quality": quality}))
    page = render(find_runs([tmp_path]))
    assert "Reliability: how often a prediction is right" in page


def test_the_head_of_a_report_names_the_learner_and_not_the_folder_of_the_data(make_run, tmp_path) -> None:
    make_run("one", [0.3, 0.6], strategy="margin", learner="closed-form", data="/home/anna/my data/items.csv")
    page = render(find_runs([tmp_path]))
    assert "margin on items.csv" in page
    assert "closed-form learner, " in page
    assert data_name("hub:owner/set") == "hub:owner/set"
    assert data_name("../fashion/") == "fashion"
