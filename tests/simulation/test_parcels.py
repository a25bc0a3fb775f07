"""Messages to and from Ray actors: cut into small pieces and put together again, whatever their size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chase.simulation import parcels
from chase.simulation.batches import plan_pieces

VALUES: list[Any] = [
    None,
    {"text": "name", "blob": b"12345", "none": None},
    {"a": np.arange(7, dtype=np.float32), "b": [np.float64(2.5) * np.ones((3, 5)), np.empty((0, 2), np.int64)]},
    {"large": np.random.default_rng(0).random(60_000), "odd": np.frombuffer(b"xyz", np.uint8), "scalar": np.array(7)},
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("count", [1, 2, 7, 24])
def test_a_value_comes_back_from_any_number_of_pieces(value: Any, count: int) -> None:
    answer = parcels.answer(value, count)
    pieces = [answer] if count == 1 else list(answer)
    assert len(pieces) == count
    assert same(parcels.answered(pieces if count > 1 else answer), value)
    assert same(parcels.answered(parcels.answer(value, 0)), value)


def test_arrays_can_be_used_where_they_lie() -> None:
    found = parcels.unpack(parcels.pack(VALUES[3]))
    assert found["large"].flags.aligned
    assert not found["large"].flags.owndata


def test_an_answer_of_the_expected_size_comes_in_pieces_that_travel_with_the_call() -> None:
    for size in (1, 89_000, 91_000, 500_000, parcels.PIECE * parcels.MOST):
        pieces = parcels.cut(bytes(size), parcels.pieces_for(size))
        assert max(map(len, pieces)) <= parcels.PIECE
        assert sum(map(len, pieces)) == size
    assert parcels.pieces_for(parcels.PIECE * parcels.MOST + 1) == 0


def blocks(clients: int, size: int = 32) -> list[list[int]]:
    return [list(range(clients))[at : at + size] for at in range(0, clients, size)]


@pytest.mark.parametrize(("clients", "actors"), [(1, 1), (1, 4), (10, 2), (33, 1), (100, 2), (1000, 2), (1000, 60)])
@pytest.mark.parametrize("seconds", [float("inf"), 0.003, 1.0, 0.0])
def test_every_client_is_in_one_piece_of_one_block(clients: int, actors: int, seconds: float) -> None:
    pieces = plan_pieces(blocks(clients), np.ones(clients), actors, seconds)
    assert sorted(client for piece in pieces for client in piece) == list(range(clients))
    assert all(len({client // 32 for client in piece}) == 1 for piece in pieces)


def test_small_clients_go_in_whole_blocks_and_the_rest_in_pieces_that_end_together() -> None:
    sizes = [len(piece) for piece in plan_pieces(blocks(100), np.ones(100), 2, 0.003)]
    assert sizes[:2] == [32, 32]
    assert sorted(sizes[2:], reverse=True) == [9, 9, 9, 5, 4]


def test_blocks_of_dear_clients_go_whole_only_where_there_is_much_to_do_beside_them() -> None:
    assert all(len(piece) < 32 for piece in plan_pieces(blocks(100), np.ones(100), 2, 1.0))
    assert [len(piece) for piece in plan_pieces(blocks(200), np.ones(200), 2, 1.0)][:3] == [32, 32, 32]


def test_few_dear_clients_go_one_by_one_the_dearest_first() -> None:
    costs = np.array([1.0, 5.0, 3.0, 2.0])
    assert plan_pieces(blocks(4), costs, 2, 2.0) == [[1], [2], [3], [0]]
