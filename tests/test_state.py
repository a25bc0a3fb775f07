from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import ids

from chase.annotation.annotator import Answer
from chase.client.state import ClientState
from chase.core.errors import CheckpointError, PoolError
from chase.core.weights import digest


@pytest.fixture
def state() -> ClientState:
    return ClientState.start(ids(10, 20, 30, 40, 50), ids(20), ids(3))


def test_a_client_starts_with_its_initial_labels_only(state: ClientState) -> None:
    assert state.pools.labeled.tolist() == [20]
    assert state.label.tolist() == [-1, 3, -1, -1, -1]
    assert state.labels_spent == 0


def test_tracking_touches_the_watched_only(state: ClientState) -> None:
    state = state.with_tracking(ids(10, 30, 50), ids(4, 5, 6), ids(2, 3, 3))
    state = state.with_tracking(ids(30), ids(0), ids(1))
    assert state.ev_of(ids(10, 20, 30, 40, 50)).tolist() == [4, 0, 0, 0, 6]
    assert state.seen.tolist() == [2, 0, 1, 0, 3]


def test_answers_of_every_kind(state: ClientState) -> None:
    state = state.ask(ids(10, 30))
    state = state.with_answers([Answer(10, 1, "a"), Answer(20, 5, "a", "revised"), Answer(40, 2, "a", "unasked")], 6)
    assert state.pools.labeled.tolist() == [10, 20, 40]
    assert state.labels_of(ids(10, 20, 40)).tolist() == [1, 5, 2]
    assert state.labels_spent == 2, "a revision spends nothing"
    state = state.with_answers([Answer(30, None, "a"), Answer(20, None, "a", "on reflection")], 6)
    assert state.pools.set_aside.tolist() == [20, 30]
    assert state.labels_of(ids(20)).tolist() == [-1]
    state = state.with_answers([Answer(30, None, "a", "again"), Answer(20, 4, "a")], 6)
    assert state.pools.set_aside.tolist() == [30]
    assert state.labels_of(ids(20)).tolist() == [4]


def test_overdue_counts_from_the_turn_of_the_question(state: ClientState) -> None:
    state = replace(replace(state, turn=2).ask(ids(10)), turn=4).ask(ids(30))
    assert replace(state, turn=5).overdue(3).tolist() == [10]
    assert replace(state, turn=4).overdue(3).tolist() == []
    assert replace(state, turn=99).overdue(0).tolist() == []


def test_a_state_reads_back_to_the_same(state: ClientState) -> None:
    full = replace(
        state.ask(ids(10)).with_tracking(ids(30), ids(4), ids(2)),
        turn=7,
        labels_spent=3,
        watched=ids(30, 40),
        local_weights={"conv.weight": np.ones((2, 2), np.float32)},
        extras={"kept": np.arange(3)},
    )
    for one in (state, full):
        again = ClientState.from_arrays(one.to_arrays())
        assert digest(again.to_arrays()) == digest(one.to_arrays())
        assert (again.turn, again.labels_spent) == (one.turn, one.labels_spent)
        assert (again.local_weights is None) == (one.local_weights is None)


def test_a_state_that_is_not_whole_is_refused(state: ClientState) -> None:
    arrays = state.to_arrays()
    with pytest.raises(CheckpointError, match="lacks 'ev'"):
        ClientState.from_arrays({name: a for name, a in arrays.items() if name != "ev"})
    with pytest.raises(PoolError, match="given twice: 20"):
        ClientState.from_arrays(arrays | {"pool.asked": ids(20)})
