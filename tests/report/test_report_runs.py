from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chase.core.errors import RunDirectoryError
from chase.report import method_tables, plots, tables
from chase.report.client_results import client_accuracies
from chase.report.runs import PROCESSOR, WALL, accuracy, by_method, clock, find_runs, frozen_share, metric, read_run
from chase.report.sections import cards


def test_series_have_gaps_where_nothing_was_measured(make_run):
    run = read_run(make_run("a", [0.1, None, 0.3]))
    np.testing.assert_allclose(accuracy(run), [10.0, np.nan, 30.0])
    assert run.last("test_accuracy") == 0.3
    np.testing.assert_allclose(WALL.elapsed(run), [0.5, 1.0, 1.5])
    np.testing.assert_allclose(frozen_share(run), [0.0, 4 / 40 * 40 / 36, 8 / 34], rtol=1e-9)


def test_time_is_processor_time_where_every_run_tells_it(make_run):
    paths = [make_run("a", [0.1, 0.2]), make_run("b", [0.1, 0.2], seed=1)]
    for number, path in enumerate(paths):
        assert clock(by_method(find_runs(paths))) is WALL
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        told = [line | {"seconds_processor": number + line["round"]} for line in lines]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    (method,) = by_method(find_runs(paths))
    assert clock([method]) is PROCESSOR
    np.testing.assert_allclose(PROCESSOR.elapsed(method.runs[1]), [2, 5])
    assert PROCESSOR.per_round(method.runs[1]) == 2.5
    assert "processor seconds per round" in method_tables.cost([method]).columns
    assert "processor seconds" in tables.summary([method], PROCESSOR).columns
    assert "2.00 processor seconds per round" in cards([method])


def test_a_run_that_never_froze_has_no_frozen_share(make_run):
    assert np.isnan(frozen_share(read_run(make_run("a", [0.1])))).all()


def test_runs_that_differ_in_seed_alone_are_one_method(make_run):
    paths = [make_run("a", [0.1, 0.2], seed=1), make_run("b", [0.3, 0.4], seed=0), make_run("c", [0.5], strategy="ev")]
    methods = by_method(find_runs(paths))
    assert [(m.label, m.seeds) for m in methods] == [("chase", [0, 1]), ("ev", [0])]
    assert methods[0].first.path == paths[1]


def test_a_copy_of_a_run_is_no_second_seed(make_run):
    paths = [make_run("a", [0.1, 0.2]), make_run("copy", [0.1]), make_run("b", [0.3, 0.4], seed=1)]
    (method,) = by_method(find_runs(paths))
    assert [run.path for run in method.runs] == [paths[0], paths[2]], "the longest of the copies"
    assert method.runs[0].notes == [f"left out, because it has the same settings and seed as {paths[0]}: {paths[1]}"]
    assert method.runs[1].notes == []
    people = [make_run(name, [0.1], annotator="page") for name in ("p", "q")]
    assert len(find_runs(people)) == 2, "two people who labelled the same samples"
    around = json.loads((people[0] / "environment.json").read_text()) | {"run": "one"}
    for path in people:
        (path / "environment.json").write_text(json.dumps(around))
    assert len(find_runs(people)) == 1, "a copy all the same"


def test_a_directory_of_runs_and_comparisons_shows_all_but_studies(make_run):
    paths = [
        make_run("all/one", [0.1]),
        make_run("all/both/two", [0.2], seed=1),
        make_run("all/study/x", [0.3], seed=2),
    ]
    where = paths[0].parent
    (where / "study" / "why.study.json").write_text("{}")
    assert sorted(run.path for run in find_runs([where])) == sorted(paths[:2])
    (paths[0] / "settings.toml").unlink()
    with pytest.raises(RunDirectoryError, match=r"settings\.toml is missing: put that file back"):
        find_runs([paths[0]])


def test_labels_name_what_tells_methods_apart(make_run):
    paths = [make_run("a", [0.1]), make_run("b", [0.1], mu=1.0), make_run("c", [0.1], data="mnist")]
    assert [m.label for m in by_method(find_runs(paths))] == [
        "chase, digits, mu 0.1",
        "chase, digits, mu 1.0",
        "chase, mnist, mu 0.1",
    ]


def test_what_a_strategy_sets_is_named_only_within_one_strategy(make_run):
    chase, ev = make_run("a", [0.1], freeze=True), make_run("b", [0.1], strategy="random", freeze=False)
    assert [m.label for m in by_method(find_runs([chase, ev]))] == ["chase", "random"]
    without = make_run("c", [0.1], freeze=False)
    assert [m.label for m in by_method(find_runs([chase, without]))] == ["chase, freeze", "chase, no freeze"]


def test_a_curve_is_the_mean_of_the_rounds_that_all_runs_share(make_run):
    paths = [make_run("a", [0.1, None, 0.3, 0.9]), make_run("b", [0.3, 0.5, 0.5], seed=1)]
    (method,) = by_method(find_runs(paths))
    drawn = plots.curve(method, metric("round"), accuracy)
    assert drawn is not None
    np.testing.assert_allclose(drawn.x, [1, 3])
    np.testing.assert_allclose(drawn.mean, [20, 40])
    np.testing.assert_allclose(drawn.each, [[10, 30], [30, 50]])  # two seeds: each of them instead of a band
    more = [make_run(f"more{seed}", [0.1 if seed % 2 else 0.3], seed=seed, mu=0.7) for seed in range(4)]
    band = plots.curve(by_method(find_runs(more))[0], metric("round"), accuracy)
    assert band is not None
    half = 3.1824 * 11.547 / 2  # t(0.975, 3) times the standard error
    np.testing.assert_allclose([band.low[0], band.high[0]], [20 - half, 20 + half], atol=0.01)


def test_a_curve_over_labels_keeps_the_last_round_of_equal_labels():
    keep = plots.last_of_near(np.array([0.0, 5.0, 5.0, 5.01, 10.0]), 0.005)
    assert keep.tolist() == [True, False, False, True, True]


def test_a_directory_of_runs_counts_as_all_of_them(make_run, tmp_path):
    make_run("all/b", [0.1])
    make_run("all/a", [0.1], seed=1)
    (tmp_path / "all" / "other").mkdir()
    assert [run.path.name for run in find_runs([tmp_path / "all"])] == ["a", "b"]
    assert len(find_runs([tmp_path / "all", tmp_path / "all" / "a"])) == 2


def test_a_run_without_a_round_is_left_out_and_alone_is_refused(make_run):
    begun, done = make_run("a", []), make_run("b", [0.5])
    assert [run.path for run in find_runs([begun, done])] == [done]
    with pytest.raises(RunDirectoryError, match="no round is finished yet"):
        find_runs([begun])


@pytest.mark.parametrize("made", [True, False])
def test_a_place_without_a_run_is_refused(tmp_path: Path, made):
    place = tmp_path / "nothing"
    if made:
        place.mkdir()
    with pytest.raises(RunDirectoryError, match="has no run in it"):
        find_runs([place])
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        read_run(place)


def test_a_damaged_environment_is_named(make_run):
    path = make_run("a", [0.1])
    (path / "environment.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"environment\.json cannot be read"):
        read_run(path)


@pytest.mark.parametrize("line", ['{"round": 1}', "[1]", '"text"'])
def test_metrics_that_chase_did_not_write_are_named(make_run, line):
    path = make_run("a", [0.1])
    with (path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl, line 2"):
        read_run(path)


def test_an_isolated_client_is_measured_on_its_own_classes_like_the_global_model(make_run):
    """Client 0 holds classes 0 and 1 in equal parts, client 1 only class 0; class 2 was never measured."""
    run = read_run(make_run("a", [0.2, 0.4]))
    held = {"held": [[10, 10, 0], [5, 0, 5]], "clients": ["0", "1"], "classes": ["a", "b", "c"]}
    run = replace(run, coverage=held)
    assert client_accuracies(run) == pytest.approx([0.3, 0.4]), "(0.4 + 0.2) / 2, and 0.4"
    alone = {"0": {"per_class": [1.0, 0.5, 0.0]}, "1": {"per_class": [0.8, 0.0, 0.2]}}
    isolated = replace(run, metrics=[*run.metrics[:-1], {**run.metrics[-1], "client_scores": alone}])
    assert client_accuracies(isolated) == pytest.approx([0.75, 0.5])
    assert client_accuracies(replace(isolated, coverage={})) is None
