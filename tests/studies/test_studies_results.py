"""A finished study: page, tables, export and the results page, from two seeds of tiny runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chase.core.errors import ChaseError
from chase.experiment import Experiment
from chase.studies import paper
from chase.studies.catalog import STUDIES, find_study
from chase.studies.figures import FIGURES, smooth
from chase.studies.page import write_study
from chase.studies.plan import Options, plan, write_plan
from chase.studies.publish import pack, publish
from chase.studies.results import paper_table, read_studies

TINY = {"clients": 2, "local_epochs": 2}


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
    assert "Not finished yet: CHASe." in text
    assert "Samples of each class, by client" in text
    assert "Confusion: EV" in text
    assert text.count("data:image/png;base64,") >= 4, "the gallery shows what was asked for"
    tables = {file.name for file in (finished / "ablation-tables").iterdir()}
    assert {name.rsplit(".", 1)[1] for name in tables} == {"csv", "tex"}
    assert any("results" in name for name in tables)


def test_results_are_made_from_the_packed_runs_alone_and_the_same_each_time(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert pack(finished, out / "tiny") == 4
    page = publish(out)
    first = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    text = page.read_text()
    assert "4 of 6 jobs are finished" in text
    assert "chase study ablation --data digits --rounds 2 --seeds 2" in text
    assert not any("checkpoint" in str(p) for p in first)
    assert str(finished).encode() not in b"".join(first.values())
    linked = re.findall(r"!\[\w+\]\(([^)]+)\)", text)
    assert linked
    assert all((out / name).read_text().startswith("<svg xmlns=") for name in linked)
    assert "var(--" not in (out / linked[0]).read_text()
    pack(finished, out / "tiny")
    publish(out)
    again = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert {p: b for p, b in first.items() if p.suffix != ".svg"} == {
        p: b for p, b in again.items() if p.suffix != ".svg"
    }


def test_a_run_that_another_study_ran_for_longer_is_cut(finished: Path, tmp_path: Path) -> None:
    jobs = plan(find_study("ablation"), Options(("digits",), ("EV",), 1, 2, scale=0.2, changes=TINY))
    for job in jobs:
        (tmp_path / job.name).symlink_to(finished / job.name)
    write_plan(tmp_path, "ablation", jobs)
    (result,) = read_studies(tmp_path)
    assert result.done == 2
    assert [len(run.metrics) for method in result.scenes[0].methods for run in method.runs] == [1, 1]


def test_nothing_to_export_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChaseError, match="holds no study"):
        pack(tmp_path, tmp_path / "out")
    with pytest.raises(ChaseError, match="no packed study"):
        publish(tmp_path)


def test_the_papers_figures() -> None:
    assert paper.accuracy("cifar10", "CHASe")[200] == 45.2
    assert paper.accuracy("cifar10", "EV (gev table)") == paper.accuracy("cifar10", "EV")
    assert paper.accuracy("cifar100", "EV (gev table)")[50] == 21.4
    assert paper.accuracy("digits", "CHASe") == {}
    assert all(len(row) == 7 and list(row) == sorted(row) for row in paper.ACCURACY.values() if row[-1] != 29.9)
    known = {name for _, name in paper.ACCURACY}
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
