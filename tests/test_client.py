"""The order of a turn, on a client of forty generated images, six of them labelled, with B = 5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import Site, ids, small_settings

from chase.annotation.annotator import Answer
from chase.client.choose import choose
from chase.client.context import Costs, turn_metrics
from chase.client.train import observed_samples, prepare_teachers, rest_and_watch
from chase.core.errors import ClientError
from chase.core.weights import digest
from chase.learning.losses import unit
from chase.models.net import set_weights

CHASE = small_settings()
EPOCHS = CHASE.local_epochs


def chase(**changes: object) -> Site:
    return Site(small_settings(**changes))


def test_the_first_turn_selects_nothing_and_watches_all() -> None:
    site = chase(subset_size=4)
    turn = site.turn(1)
    assert turn.questions == ()
    assert turn.state.watched.tolist() == list(range(6, 40))
    assert site.person.asked == []
    assert turn.update.num_labeled == 6
    assert turn.state.turn == 1


def test_labels_given_at_once_train_in_the_same_turn() -> None:
    site = chase()
    site.turn(1)
    turn = site.turn(2)
    assert len(turn.questions) == 5
    assert turn.update.num_labeled == 11
    assert turn.update.metrics["labels"] == 5
    assert turn.state.pools.asked.size == 0
    assert site.trained >= EPOCHS * 11
    asked = ids(*(q.sample for q in turn.questions))
    assert (turn.state.labels_of(asked) == site.truth[asked]).all()


def test_labels_that_come_later_train_in_a_later_turn() -> None:
    site = Site(CHASE, at_once=False)
    site.turn(1)
    turn = site.turn(2)
    assert turn.update.num_labeled == 6
    assert turn.state.pools.asked.size == 5
    first = turn.questions[0].sample
    site.person.ready = [Answer(first, 1, "late")]
    turn = site.turn(3)
    assert turn.update.num_labeled == 7
    assert turn.state.labels_of(ids(first)).tolist() == [1]


def test_a_client_asks_at_most_its_budget_less_what_is_unanswered() -> None:
    site = Site(CHASE, at_once=False)
    site.turn(1)
    site.turn(2)
    assert site.turn(3).questions == ()
    site.person.ready = [Answer(q.sample, 0, "late") for q in site.person.asked[:2]]
    turn = site.turn(4)
    assert len(turn.questions) == 2
    assert turn.state.pools.asked.size == 5


def test_a_client_asks_by_its_own_calendar() -> None:
    site = Site(small_settings(local_epochs=2), period=3)
    asked = [len(site.turn(round).questions) for round in range(1, 9)]
    assert asked == [0, 5, 0, 0, 5, 0, 0, 5]


def test_an_order_to_select_goes_before_the_calendar_and_one_to_train_asks_nothing() -> None:
    site = Site(small_settings(local_epochs=2), period=50)
    site.turn(1)
    site.turn(2)
    assert len(site.turn(3, phase="select").questions) == 5
    assert site.turn(4).questions == ()
    busy = Site(small_settings(local_epochs=2))
    busy.turn(1)
    assert busy.turn(2, phase="train").questions == ()
    assert len(busy.turn(3).questions) == 5


def test_the_watched_with_the_highest_ev_are_asked_for() -> None:
    site = chase()
    site.turn(1)
    ev = np.zeros(40, dtype=np.int64)
    ev[[10, 11, 12, 13, 14, 3]] = [1, 2, 2, 2, 2, 2]  # 3 is labelled already
    site.store.state = replace(site.store.state, ev=ev, watched=ids(*range(8, 15)))
    site.client._state = None
    turn = site.turn(2)
    assert {q.sample for q in turn.questions} == {10, 11, 12, 13, 14}
    assert {q.sample: q.ev for q in turn.questions}[10] == 1


def test_frozen_are_the_watched_of_ev_zero_that_were_not_selected() -> None:
    site = Site(small_settings(awaken=False))
    site.turn(1)
    ev = np.zeros(40, dtype=np.int64)
    ev[[20, 21]] = 2
    watched = ids(*range(18, 26))  # 20 and 21 lead, three of the other six are asked for, three freeze
    site.store.state = replace(site.store.state, ev=ev, watched=watched)
    site.client._state = None
    turn = site.turn(2)
    asked = {q.sample for q in turn.questions}
    assert {20, 21} < asked < set(watched.tolist())
    assert set(turn.state.pools.dormant.tolist()) == set(watched.tolist()) - asked
    assert set(turn.state.watched.tolist()) == set(range(6, 40)) - set(watched.tolist())


def test_freezing_happens_in_every_turn_also_in_those_that_ask_nothing() -> None:
    site = Site(small_settings(awaken=False), period=50)
    site.turn(1)
    ev = np.ones(40, dtype=np.int64)
    ev[[8, 9, 17]] = 0
    site.store.state = replace(site.store.state, turn=2, ev=ev, watched=ids(*range(6, 16)))
    site.client._state = None
    turn = site.turn(3)
    assert turn.questions == ()
    assert turn.state.pools.dormant.tolist() == [8, 9]  # 17 was not watched


PARTS = {
    "all": {},
    "w/o S": {"subset": False},
    "w/o FAm": {"freeze": False},
    "freeze only": {"awaken": False, "subset": False},
    "subset only": {"freeze": False, "awaken": False},
    "nothing": {"freeze": False, "subset": False},
}


@pytest.mark.parametrize(
    ("parts", "dormant", "watched"),
    [
        # 34 unlabelled, 24 of them watched with EV 0, so 10 stay; B' = 15, so ceil(0.4 * 24) = 10 return
        ("all", 14, 8),
        ("w/o S", 14, 20),
        ("w/o FAm", 0, 8),
        ("freeze only", 24, 10),
        ("subset only", 0, 8),
        ("nothing", 0, 34),
    ],
)
def test_each_switch_alone(parts: str, dormant: int, watched: int) -> None:
    site = Site(small_settings(subset_size=8, **PARTS[parts]), period=50)
    ev = np.ones(40, dtype=np.int64)
    ev[6:30] = 0
    state = replace(site.store.state, turn=3, ev=ev, watched=ids(*range(6, 34)))
    after = rest_and_watch(site.context, state, site.order(4))
    assert after.pools.dormant.size == dormant
    assert after.watched.size == watched
    assert after.pools.unlabeled.size == 34 - dormant


def test_awakening_is_measured_by_three_budgets() -> None:
    for budget, returned in ((5, 0), (6, 4)):  # 15 unlabelled: not below 15, but below 18
        site = Site(small_settings(budget=budget))
        pools = site.store.state.pools.freeze(range(21, 30)).put_aside(range(30, 40))
        assert pools.unlabeled.size == 15
        state = replace(site.store.state, turn=3, pools=pools, ev=np.ones(40, dtype=np.int64))
        after = rest_and_watch(site.context, state, site.order(4))
        assert after.pools.unlabeled.size == 15 + returned


def test_first_watch_caps_the_first_turn_only() -> None:
    site = Site(small_settings(first_watch=7, freeze=False))
    assert site.turn(1).state.watched.size == 7
    assert site.turn(2).state.watched.size == 34 - 5


def test_teachers_are_computed_once_a_turn_and_everything_is_counted() -> None:
    site = chase()
    first = site.turn(1)
    assert site.inferred == EPOCHS * 34 == first.update.metrics["inferences"]
    second = site.turn(2)
    watched = second.state.watched.size
    assert watched >= CHASE.batch_size
    assert site.inferred == (2 + EPOCHS) * watched == second.update.metrics["inferences"]
    assert second.update.metrics["inferred_samples"] == watched
    assert site.trained == 2 * EPOCHS * second.update.num_labeled


@pytest.mark.parametrize("changes", [{"align": "none"}, {"mu": 0.0}, {"strategy": "ev"}])
def test_without_alignment_there_are_no_teachers(changes: dict[str, object]) -> None:
    site = chase(**changes)
    site.turn(1)
    turn = site.turn(2)
    assert site.inferred == EPOCHS * turn.state.watched.size
    assert site.trained == EPOCHS * turn.update.num_labeled
    assert turn.state.local_weights is None


def test_alignment_is_skipped_in_the_first_turn_and_with_fewer_watched_than_a_batch() -> None:
    site = chase()
    batch = CHASE.batch_size
    third = replace(site.store.state, turn=3, local_weights=site.weights)
    for state, prepared in (
        (replace(third, watched=ids(*range(10, 10 + batch))), True),
        (replace(third, watched=ids(*range(10, 9 + batch))), False),
        (replace(third, watched=ids(*range(10, 30)), turn=0), False),
        (replace(third, watched=ids(*range(10, 30)), local_weights=None), False),
    ):
        costs = Costs()
        found = prepare_teachers(site.context, state, site.order(4), costs)
        assert (found is not None) == prepared
        assert costs.inferences == (2 * state.watched.size if prepared else 0)
        assert costs.split == (state.watched.size if prepared else 0)


def test_alignment_on_features_compares_what_the_last_layer_sees() -> None:
    """For a network with a projection (VGG-19) these are the projection's outputs; logits have two columns here."""
    site = chase(align_on="features", align="all-global")
    local = {name: array + 0.1 for name, array in site.weights.items()}
    watched = ids(*range(10, 30))
    state = replace(site.store.state, turn=3, local_weights=local, watched=watched)
    found = prepare_teachers(site.context, state, site.order(4), Costs())
    assert found is not None
    assert found.on == "features"
    teachers = []
    site.net.eval()
    for weights in (local, site.weights):
        set_weights(site.net, weights)
        with torch.no_grad():
            teachers.append(unit(site.net.embed(site.samples.ready(torch.from_numpy(watched)))))
    before, received = teachers
    assert before.shape[1] > 2
    assert torch.allclose(found.directions, (before - received) / site.context.settings.tau, atol=1e-5)


def test_observed_samples_stay_the_same_whatever_becomes_of_them() -> None:
    """Labelled, asked for, frozen or not: EV is observed on one population in every turn."""
    site = chase(observe_ev=30)
    first = observed_samples(site.context, site.store.state)
    assert first.size == 30
    assert np.intersect1d(first, site.store.state.pools.labeled).size > 0, "initial labels are among them"
    for turn in (1, 2, 3):
        state = site.turn(turn).state
        assert observed_samples(site.context, state).tolist() == first.tolist()
    assert np.intersect1d(first, state.pools.labeled).size > 6, "and what was labelled since"


def test_a_turn_counts_the_easy_samples_that_alignment_told_apart() -> None:
    """Of twelve watched samples two have EVs of 3 and 9, the others 0: the mean is 1, and ten are easy."""
    site = chase()
    watched = ids(*range(10, 22))
    tracked = site.store.state.with_tracking(watched, np.array([3, 9] + [0] * 10), np.ones(12, dtype=np.int64))
    costs = Costs()
    state = replace(tracked, turn=3, local_weights=site.weights, watched=watched)
    assert prepare_teachers(site.context, state, site.order(4), costs) is not None
    assert (costs.easy, costs.split) == (10, 12)
    said = turn_metrics(state, costs)
    assert (said["easy_sum"], said["easy_count"]) == (10.0, 12.0)
    assert "easy_count" not in turn_metrics(state, Costs())


def test_random_selection_infers_nothing_at_all() -> None:
    site = chase(strategy="random")
    for round in (1, 2, 3):
        turn = site.turn(round)
        assert site.inferred == 0 == turn.update.metrics["inferences"]
        assert "ev_sum" not in turn.update.metrics
    assert turn.update.num_labeled == 16


def test_a_client_without_labels_does_not_train_has_weight_zero_and_can_ask() -> None:
    site = Site(CHASE, labeled=0)
    before = digest(site.weights)
    first = site.turn(1)
    assert first.update.num_labeled == 0
    assert digest(first.update.weights) == before
    assert site.trained == site.inferred == 0
    assert first.state.watched.size == 0
    second = site.turn(2)
    assert len(second.questions) == 5
    assert second.update.num_labeled == 5
    assert digest(second.update.weights) != before


def test_a_repeated_order_is_answered_from_what_was_committed() -> None:
    site = chase()
    site.turn(1)
    first = site.turn(2)
    asked = list(site.person.asked)
    again = site.client.take_turn(site.order(2))
    assert again is first
    assert site.person.asked == asked
    assert site.store.state.turn == 2


def test_choosing_and_watching_change_no_state_in_place() -> None:
    site = chase()
    site.turn(1)
    state, order = site.store.state, site.order(2)
    before = {name: array.copy() for name, array in state.to_arrays().items()}
    one, questions = choose(site.context, state, order, Costs())
    two, same = choose(site.context, state, order, Costs())
    rest_and_watch(site.context, one, order)
    assert questions == same
    assert len(questions) == 5
    assert digest(one.to_arrays()) == digest(two.to_arrays())
    assert digest(state.to_arrays()) == digest(before)


def test_cannot_tell_sets_a_sample_aside() -> None:
    site = Site(CHASE, at_once=False)
    site.turn(1)
    asked = [q.sample for q in site.turn(2).questions]
    site.person.ready = [Answer(asked[0], None, "late", "blurred")]
    turn = site.turn(3)
    assert turn.state.pools.set_aside.tolist() == [asked[0]]
    assert turn.update.num_labeled == 6
    assert len(turn.questions) == 1, "what is set aside makes room to ask"


def test_what_is_overdue_returns_to_the_pool_and_is_withdrawn() -> None:
    site = Site(small_settings(patience=2, freeze=False), at_once=False)
    site.turn(1)
    asked = sorted(q.sample for q in site.turn(2).questions)
    assert site.turn(3).state.pools.asked.tolist() == asked
    assert site.person.withdrawn == []
    turn = site.turn(4)
    assert sorted(site.person.withdrawn) == asked
    assert len(turn.questions) == 5, "there is room to ask again"
    late = next(s for s in asked if s not in turn.state.pools.asked)
    site.person.ready = [Answer(late, 1, "very late")]
    turn = site.turn(5)
    assert late in turn.state.pools.labeled
    assert turn.update.metrics["labels"] == 1


def test_an_answer_that_cannot_be_is_an_error_with_client_round_and_stage() -> None:
    for answer, sentence in (
        (Answer(99, 0, "x"), "an answer names sample 99, which is not this client's"),
        (Answer(7, 2, "x"), "an answer gives class 2; classes are 0 to 1"),
        (Answer(7, -1, "x"), "an answer gives class -1; classes are 0 to 1"),
    ):
        site = chase()
        site.person.ready = [answer]
        with pytest.raises(ClientError, match=f"client 0, round 1, reading answers: {sentence}"):
            site.turn(1)
        assert site.store.turns == {}
