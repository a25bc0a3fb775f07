"""The rule by which a default is recommended."""

from __future__ import annotations

import pytest

from chase.studies.plan import Options, plan
from chase.studies.recommend import ARMS, STUDY, mean_ranks


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
