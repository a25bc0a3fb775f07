"""Secure sums of the closed-form learner: the server gets what a plain federation gives it, added up, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from closed_form.test_maps import CASES, small_map
from federation.real import federation_settings, saved_state
from federation.test_private_rounds import SETTINGS, federation, run, told, wire_of
from federation.transports import METRICS
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from chase.client.contribute import sum_shapes
from chase.closed_form.feature_map import InputSpec
from chase.core.errors import FederationError, UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.data.resident import Samples
from chase.federation.checks import check_answer
from chase.federation.ops.setup import Loopback, found
from chase.federation.rules import Rules
from chase.federation.secure_sum import Words
from chase.federation.secure_vector import HeadVector, NetworkVector, SumsVector, no_samples, whole
from chase.run.checkpoint import Checkpoint

CLOSED = {"learner": "closed-form", "filters": 8, "fit_passes": 1, "min_labels": 1, "strategy": "margin", "rounds": 3}
CLOSED |= {"client_weights": "labelled", "budget": 5}


def arrays(loopback: Loopback) -> dict[str, np.ndarray]:
    checkpoint = Checkpoint(loopback.federation.run / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    return checkpoint.read_arrays(manifest.server)


def labels_by_class(loopback: Loopback) -> list[int]:
    """Of all sites, from their own state."""
    states = [saved_state(home) for home in loopback.homes.values()]
    return sum(np.bincount(s.labels_of(s.pools.labeled), minlength=10) for s in states).tolist()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The model and the sums of a federation without masks."""
    fed = federation(tmp_path_factory.mktemp("plain"), CLOSED, evaluate="sites")
    run(fed, wire_of(fed))
    return arrays(fed)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def test_masked_sums_give_the_model_of_plain_ones_bit_for_bit(tmp_path: Path, plain: dict[str, np.ndarray]) -> None:
    fed = federation(tmp_path / "fed", CLOSED, evaluate="sites", secure=True)
    wire = wire_of(fed)
    metrics = run(fed, wire)
    same(arrays(fed), plain)
    assert plain["sums/counts"].sum() > 50
    assert [line["took_part"] for line in metrics] == [5, 5, 5]
    assert metrics[-1]["site_accuracy"] > 0.5
    sent = b"".join(part for _, kind, parts in wire.seen if kind in ("turn", "tally") for part in parts)
    assert b"sum." not in sent
    assert told(fed, "no sum") == []


@pytest.mark.parametrize("kind", ["turn", "shares", "masked", "unmask"])
def test_a_site_that_drops_out_in_one_round_catches_up_in_the_next(tmp_path: Path, kind: str) -> None:
    fed = federation(tmp_path / "fed", CLOSED, secure=True)
    wire = wire_of(fed)
    wire.lost, wire.rounds = {(102, kind)}, (2,)
    metrics = run(fed, wire)
    assert metrics[1]["took_part"] == (5 if kind == "unmask" else 4)
    assert metrics[2]["took_part"] == (4 if kind == "turn" else 5)  # who owes an answer is not asked in a secure round
    assert arrays(fed)["server/received"].tolist() == [3, 3, 1 if kind == "turn" else 3, 3, 3]
    if kind != "turn":
        assert arrays(fed)["sums/counts"].tolist() == labels_by_class(fed)  # none is missing and none counts twice


@pytest.mark.parametrize("kind", ["turn", "shares", "masked", "unmask"])
def test_features_are_fitted_without_a_site_that_drops_out(tmp_path: Path, kind: str) -> None:
    fed = federation(tmp_path / "fed", CLOSED | {"rounds": 1}, secure=True)
    wire = wire_of(fed)
    wire.lost, wire.rounds = {(101, kind)}, (-1, 0)
    (line,) = run(fed, wire)
    assert line["test_accuracy"] > 0.5
    assert told(fed, "no sum") == []


def test_a_step_without_a_sum_is_held_again_and_then_given_up(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", CLOSED | {"rounds": 1}, secure=True)
    wire = wire_of(fed)
    wire.lost, wire.rounds = {(node, "masked") for node in (100, 101, 102)}, (-1,)
    with pytest.raises(FederationError, match="5 times too few sites"):
        run(fed, wire)
    assert told(fed, "no sum") == ["only 2 sites sent vectors, 3 are needed: this round has no sum"] * 5


def update(**extras: np.ndarray) -> ClientUpdate:
    return ClientUpdate(0, 1, {}, 3, {"labels": 2.0}, dict(extras))


def test_words_worked_by_hand() -> None:
    vector = SumsVector({"b": (2,), "a": ()}, fractions=True)
    one = vector.words(update(a=np.array(-3.75), b=np.array([2.0**52, 0.25])))
    assert one[:3].view(np.int64).tolist() == [-4, 2**52, 0]
    assert one[3:6].view(np.int64).tolist() == [2**22, 0, 2**22]
    none = vector.words(update())
    assert not none[:6].any()
    found = vector.read(one + one + none)
    assert found.labels == 9
    assert found.metrics["labels"] == 6.0
    assert found.extras["a"] == -7.5
    assert found.extras["b"].tolist() == [2.0**53, 0.5]


@given(st.lists(st.integers(-(2**50), 2**50), min_size=3, max_size=8))
@examples(max_examples=50, deadline=None)
def test_whole_numbers_add_up_exactly(numbers: list[int]) -> None:
    vector = SumsVector({"a": (1,)}, fractions=False)
    words: list[Words] = [vector.words(update(a=np.array([float(n)]))) for n in numbers]
    assert vector.read(sum(words[1:], words[0])).extras["a"].tolist() == [float(sum(numbers))]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**53, 0.5])
def test_numbers_that_are_not_whole_are_refused(bad: float) -> None:
    with pytest.raises(FederationError, match="a number of a sum is"):
        whole(np.array([1.0, bad]))


@pytest.mark.parametrize(("name", "samples"), CASES, ids=[name for name, _ in CASES])
def test_the_server_knows_names_and_shapes_from_the_sums_of_no_samples(name: str, samples: Samples) -> None:
    feature_map, params = small_map(samples), dict[str, np.ndarray]()
    rows, empty = torch.arange(len(samples)), no_samples(InputSpec.of(samples))
    for step in range(feature_map.steps):
        total = feature_map.sums(step, params, samples, rows)
        none = feature_map.sums(step, params, empty, rows[:0])
        assert {n: a.shape for n, a in none.items()} == {n: a.shape for n, a in total.items()}
        assert not any(array.any() for array in none.values())
        params = feature_map.solve(step, params, total)


def sums_update(samples: int, **changes: np.ndarray) -> tuple[ClientUpdate, RoundOrder]:
    """Sums that so many samples could give, with changes."""
    order = RoundOrder(
        "run", 1, 0, {"head.weight": np.zeros((2, 3), dtype=np.float32)}, extras={"received": np.zeros(1)}
    )
    sums = {name: np.full(shape, float(samples)) for name, shape in sum_shapes(order).items()} | changes
    metrics = METRICS | {"pool_labeled": 4.0}
    return ClientUpdate(0, 1, {}, 4, metrics, {f"sum.{n}": a for n, a in sums.items()}), order


def test_sums_that_so_many_samples_cannot_give_are_refused() -> None:
    update, order = sums_update(10)
    check_answer(update, order, Rules(), 10)
    for changes, why in (
        ({"counts": np.array([9_999_999.0, 0.0])}, "'counts' hold 1e.07, which 10 samples cannot give"),
        ({"outer": np.full(6, 1e12)}, "'outer' hold 1e.12"),
        ({"features": np.full(3, -1e9)}, "'features' hold"),
        ({"cross": np.full((3, 2), 0.5)}, "'cross' contain a number that is not an integer"),
        ({"cross": np.full((3, 2), np.nan)}, "NaN"),
    ):
        update, order = sums_update(10, **changes)
        with pytest.raises(UpdateError, match=why):
            check_answer(update, order, Rules(), 10)


def test_sums_are_not_larger_than_an_answer_may_be(tmp_path: Path) -> None:
    """200 filters, as is usual: 10 MB of sums beside a model of 100 KB."""
    settings = federation_settings(**SETTINGS | CLOSED | {"filters": 200})
    fed = found(tmp_path / "fed", settings, Rules(), secure=False)
    width = 8 * 200 + 8
    assert 8 * width * (width + 1) // 2 < fed.most_answer < 64 << 20


HEAD = {"head": "closed-form", "min_labels": 12, "strategy": "random", "rounds": 3, "client_weights": "labelled"}


def test_a_head_solved_from_masked_sums_is_that_of_plain_ones(tmp_path: Path) -> None:
    """Sites with fewer labels than ``min_labels`` send none: some in the first rounds, and how many counts."""
    plain, secure = (federation(tmp_path / name, HEAD, secure=name == "secure") for name in ("plain", "secure"))
    wire = wire_of(secure)
    ours, theirs = run(secure, wire), run(plain, wire_of(plain))
    assert told(secure, "no sum") == []
    assert [line["labels"] for line in ours] == [line["labels"] for line in theirs]
    assert b"head_sum" not in b"".join(part for _, kind, parts in wire.seen if kind == "turn" for part in parts)
    one, other = arrays(secure), arrays(plain)
    assert one.keys() == other.keys()
    assert other["head_sums/counts"].sum() > 12
    for name in one:
        size = max(1.0, float(np.abs(other[name]).max()))
        assert np.abs(one[name] - other[name]).max() < 1e-5 * size, name


def test_a_site_that_drops_out_of_the_sums_for_a_head_is_missing_in_them(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", HEAD | {"rounds": 2, "min_labels": 1}, secure=True)
    wire = wire_of(fed)
    wire.lost, wire.rounds = {(102, "masked")}, (2,)
    metrics = run(fed, wire)
    assert [line["took_part"] for line in metrics] == [5, 4]
    states = [saved_state(home) for home in fed.homes.values()]
    now = [int(s.pools.labeled.size) for s in states]
    first = metrics[0]["labels"]
    counted = arrays(fed)["head_sums/counts"].sum()
    assert counted < sum(now)
    assert counted > 0.5 * first


def test_words_of_a_head_worked_by_hand() -> None:
    origin = {"head.weight": np.array([[1.0, 2.0]], dtype=np.float32), "steps": np.array(7)}
    vector = HeadVector(NetworkVector(origin, equal=False), SumsVector({"head_sum.a": (2,)}, fractions=True))
    weights = {"head.weight": np.array([[2.0, 2.5]], dtype=np.float32), "steps": np.array(9)}
    some = ClientUpdate(0, 1, weights, 2, {"labels": 2.0}, {"head_sum.a": np.array([3.25, -8.0])})
    few = ClientUpdate(1, 1, weights, 1, {"labels": 1.0}, {})
    assert vector.words(some).size == vector.words(few).size == vector.size
    found = vector.read(vector.words(some) + vector.words(few))
    assert found.weights["head.weight"].tolist() == [[2.0, 2.5]]
    assert found.weights["steps"] == 7
    assert found.extras["head_sum.a"].tolist() == [3.25, -8.0]
    assert (found.labels, found.metrics["labels"], found.metrics["head_sites"]) == (3, 3.0, 1.0)
    none = vector.read(vector.words(few))
    assert none.extras == {}
    assert "head_sites" not in none.metrics


def test_sums_of_a_head_are_not_larger_than_an_answer_may_be(tmp_path: Path) -> None:
    plain = found(tmp_path / "plain", federation_settings(**SETTINGS), Rules(), secure=False)
    fed = found(tmp_path / "fed", federation_settings(**SETTINGS | HEAD), Rules(), secure=False)
    assert fed.most_answer > plain.most_answer


def test_sums_of_another_shape_are_refused() -> None:
    with pytest.raises(FederationError, match="other names or shapes"):
        SumsVector({"a": (2,)}, fractions=False).words(update(a=np.zeros(3)))
