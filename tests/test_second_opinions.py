"""Second opinions and new samples share the places of a request, in simulation with a team of people who err."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Site, final_weights, small_settings, timeless

from chase.annotation.annotator import Panel
from chase.client.choose import choose
from chase.client.context import Costs
from chase.core.errors import SettingsError
from chase.run.client_counts import ClientCounts, counts_of
from chase.run.experiment import Experiment

TEAM: dict[str, Any] = {
    "learner": "closed-form",
    "strategy": "margin",
    "annotator": "team",
    "skill": 0.7,
    "partition": "iid",
    "data_share": 0.5,
    "filters": 20,
    "fit_passes": 1,
    "second_opinions": 5,
    "rounds": 6,
}


def run(path: Path, **changes: Any) -> list[dict[str, Any]]:
    Experiment.begin(small_settings(**{**TEAM, **changes}), path).run()
    return journal(path)


def journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "selections.jsonl").read_text().splitlines()]


def metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_request_is_split_between_new_samples_and_second_opinions(tmp_path: Path) -> None:
    lines = run(tmp_path / "run")
    places = Counter((line["round"], line["client"]) for line in lines)
    assert set(places.values()) == {5}, "a second opinion takes the place of a new sample"
    again = [line for line in lines if line.get("again")]
    fresh = [line for line in lines if not line.get("again")]
    assert len(again) > 5
    assert len(fresh) > 5
    assert {line["strategy"] for line in again} == {"second opinion"}
    seen: set[tuple[int, int]] = set()
    for line in lines:
        who = (line["client"], line["sample"])
        assert (who in seen) == bool(line.get("again")), "only what was answered is asked again"
        seen.add(who)
    last = metrics(tmp_path / "run")[-1]
    assert last["labels"] == len(lines)
    assert last["second_opinions"] == len(again)
    assert sum(one["second_opinions"] for one in last["clients"].values()) == len(again)
    assert sum(sum(own.values()) for own in last["asked_classes"].values()) == 20 - sum(
        line["round"] == 6 for line in again
    )


def test_at_most_so_many_per_request_and_none_by_default(tmp_path: Path) -> None:
    two = run(tmp_path / "two", second_opinions=2)
    per = Counter((line["round"], line["client"]) for line in two if line.get("again"))
    assert max(per.values()) == 2
    run(tmp_path / "none", second_opinions=0)
    assert not any(line.get("again") for line in journal(tmp_path / "none"))
    assert "second_opinions" not in metrics(tmp_path / "none")[-1]


@pytest.mark.parametrize("changes", [{}, {"answer_delay": 2, "temperature": "leave-one-out"}, {"learner": "network"}])
def test_a_resumed_run_is_the_same_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    run(tmp_path / "whole", **changes)
    settings = small_settings(**{**TEAM, **changes, "rounds": 3})
    Experiment.begin(settings, tmp_path / "halves").run()
    for rounds in (4, 6):
        Experiment.resume(tmp_path / "halves", {"rounds": rounds}).run()
    assert timeless(metrics(tmp_path / "halves")) == timeless(metrics(tmp_path / "whole"))
    assert journal(tmp_path / "halves") == journal(tmp_path / "whole")
    assert final_weights(tmp_path / "halves") == final_weights(tmp_path / "whole")


def test_worker_processes_give_the_same(tmp_path: Path, forked_workers: None) -> None:
    one = run(tmp_path / "one", rounds=4)
    two = run(tmp_path / "two", rounds=4, engine="workers", workers=2)
    assert one == two
    assert final_weights(tmp_path / "one") == final_weights(tmp_path / "two")


@pytest.mark.parametrize("delay", [0, 2])
def test_second_opinions_are_paid_from_the_total_budget(tmp_path: Path, delay: int) -> None:
    lines = run(tmp_path / "run", total_budget=97, rounds=40, answer_delay=delay)
    assert len(lines) == 97
    assert sum(bool(line.get("again")) for line in lines) > 0
    last = metrics(tmp_path / "run")[-1]
    assert (last["labels"], last["second_opinions_waiting"]) == (97, 0)
    assert all(line["labels"] <= 97 for line in metrics(tmp_path / "run"))


def panel(votes: list[tuple[int, int, int]], **changes: Any) -> Panel:
    values = {"waiting": {}, "closed": frozenset(), "given": 0} | changes
    return Panel(votes=np.array(votes, dtype=np.int64).reshape(-1, 3), **values)


def split(site: Site, said: Panel) -> list[tuple[int, bool]]:
    state = site.store.state
    _, questions = choose(site.context, state, site.order(2), Costs(), said)
    return [(q.sample, q.again) for q in questions]


def doubting_site() -> Site:
    """A client of 40 samples after its first turn, samples 0 to 5 labelled; the network prefers one class for all."""
    site = Site(small_settings(strategy="random", second_opinions=5))
    site.turn(1)
    return site


def test_open_second_opinions_hold_their_places_and_closed_ones_are_left_alone() -> None:
    site = doubting_site()
    wrong = [(s, 0, 1 - int(site.truth[s])) for s in range(6)]
    site.store.state.label[:6] = [label for _, _, label in wrong]
    asked = split(site, panel(wrong))
    again = [sample for sample, second in asked if second]
    assert len(asked) == 5
    assert again
    assert asked[: len(again)] == [(sample, True) for sample in again], "they come first"
    without = split(site, panel(wrong, closed=frozenset(again)))
    assert not {sample for sample, second in without if second} & set(again)
    assert not any(second for _, second in split(site, panel(wrong, most=0)))
    assert not any(second for _, second in split(site, panel([])))


def test_what_is_waited_for_counts_against_the_budget() -> None:
    site = doubting_site()
    site.store.state = site.store.state.__class__(**{**vars(site.store.state), "opinions_waiting": 3})
    assert len(split(site, panel([], waiting={0: 1, 1: 1, 2: 1}))) == 2


def test_one_person_gives_no_second_opinion(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs several people, but annotator = 'oracle' is one"):
        Experiment.begin(small_settings(second_opinions=3), tmp_path / "run")


def test_counts_without_second_opinions_are_those_of_earlier_versions() -> None:
    old = {"labels": 3.0, "pool_labeled": 4.0, "pool_unlabeled": 5.0}
    old |= {"pool_asked": 1.0, "pool_dormant": 0.0, "pool_set_aside": 0.0}
    assert counts_of(old) == (3, 4, 5, 1, 0, 0)
    assert counts_of({**old, "second_opinions": 2.0, "second_opinions_waiting": 1.0}) == (3, 4, 5, 1, 0, 0, 2, 1)
    counts = ClientCounts(3, {0: (3, 4, 5, 1, 0, 0), 1: (3, 4, 5, 1, 0, 0, 2, 1)})
    assert counts.spent == 3 + 1 + 3 + 1 + 1
    line = counts.metrics()
    assert (line["second_opinions"], line["clients"]["0"]["second_opinions"]) == (2, 0.0)
    assert ClientCounts.resume(3, {}, line).spent == counts.spent
    assert "second_opinions" not in ClientCounts(3, {0: (3, 4, 5, 1, 0, 0)}).metrics()
