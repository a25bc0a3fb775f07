from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from chase.core import errors
from chase.core.errors import ChaseError, ClientError, unknown
from chase.core.messages import ClientUpdate, RoundOrder


def test_messages_cannot_be_changed_on_the_way() -> None:
    order = RoundOrder("run", 1, 0, {"w": np.zeros(1)})
    update = ClientUpdate(0, 1, order.weights, 5, {})
    for message in (order, update):
        with pytest.raises(dataclasses.FrozenInstanceError):
            message.round = 2


def test_what_goes_up_is_six_things_and_no_more() -> None:
    """``joint`` is not sent: the server names the sites whose parts are in a secure sum."""
    assert [f.name for f in dataclasses.fields(ClientUpdate) if f.name != "joint"] == [
        "client",
        "round",
        "weights",
        "num_labeled",
        "metrics",
        "extras",
    ]


def test_every_error_of_ours_has_one_root() -> None:
    ours = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(ours) > 5
    assert all(issubclass(e, ChaseError) for e in ours)


def test_an_unknown_name_comes_with_the_nearest_and_all_that_are_known() -> None:
    assert (
        unknown("strategy", "evv", ["random", "ev"]) == "unknown strategy 'evv'; did you mean 'ev'? known: ev, random"
    )
    assert unknown("strategy", "zzz", ["random", "ev"]) == "unknown strategy 'zzz'; known: ev, random"


def test_a_clients_error_says_who_when_and_where() -> None:
    error = ClientError("3", 7, "selection", ValueError("bad score"))
    assert str(error) == "client 3, round 7, selection: bad score"
    assert str(ClientError("3", 7, "saving", KeyboardInterrupt())) == "client 3, round 7, saving: KeyboardInterrupt"
