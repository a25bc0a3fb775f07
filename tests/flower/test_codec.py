from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.federation.transport import Hello, SiteMessage, Tally
from chase.flower import codec

WEIGHTS = {
    "conv.weight": np.arange(6, dtype=np.float32).reshape(1, 2, 3) / 7,
    "norm.count": np.array(5, dtype=np.int64),
    "half": np.array([0.1, 65504], dtype=np.float16),
}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)


def update(**changes: object) -> ClientUpdate:
    values = {"client": 3, "round": 2, "weights": WEIGHTS, "num_labeled": 9, "metrics": {"labels": 1.0}}
    return ClientUpdate(**{**values, **changes})  # type: ignore[arg-type]


def test_an_order_comes_out_as_it_went_in() -> None:
    order = RoundOrder("run", 4, 2**62, WEIGHTS, "train", {"w": np.ones(2)}, False, {"proto": np.eye(2)})
    records = codec.pack_letter(SiteMessage(1, "turn", {"number": 3, "settings": {"lr": 0.1}}, order=order))
    header = codec.header_of(records)
    found = codec.order_of(records, header)
    assert (found.run, found.round, found.seed, found.phase, found.track) == ("run", 4, 2**62, "train", False)
    assert same(dict(found.start or {}), {"w": np.ones(2)})
    assert same(dict(found.weights), WEIGHTS)
    assert same(dict(found.extras), {"proto": np.eye(2)})
    assert header["settings"] == {"lr": 0.1}


def test_an_update_comes_out_as_it_went_in() -> None:
    found = codec.unpack(codec.pack_update(update(), {"labels": 1.0}))
    assert isinstance(found, ClientUpdate)
    assert (found.client, found.round, found.num_labeled, found.metrics) == (3, 2, 9, {"labels": 1.0})
    assert same(dict(found.weights), WEIGHTS)


def test_the_other_answers_come_out_as_they_went_in() -> None:
    for body in (Hello("site-a", ("class list: ...",)), Hello("site-a", ())):
        assert codec.unpack(codec.pack_hello(body)) == body
    assert codec.unpack(codec.pack_tally(Tally(3, 4))) == Tally(3, 4)
    assert codec.unpack(codec.pack_failure("training failed", False)) == codec.Failure("training failed", False)


def spoiled(name: str) -> RecordDict:
    records = codec.pack_update(update(), {"labels": 1.0})
    if name == "record too many":
        records["names"] = ConfigRecord({"file": "x"})
    elif name == "record too few":
        del records["metrics"]
    elif name == "other kind":
        records["weights/0"] = MetricRecord({"a": 1})
    elif name == "other header":
        records["update"] = ConfigRecord({"client": 1})
    elif name == "text as number":
        records["update"]["round"] = "2"
    elif name == "format":
        records["update"]["format"] = 99
    elif name == "list as metric":
        records["metrics"] = MetricRecord({"labels": [1, 2]})
    elif name == "pickled array":
        records["weights/0"] = ConfigRecord({"data": b"\x80\x04\x95garbage" * 9})
    elif name == "claims 10^15 numbers":
        records["weights/0"] = ConfigRecord({"data": blob({"w": claim([10**15], 0, 64)}, bytes(64))})
    elif name == "claims more than came":
        records["weights/0"] = ConfigRecord({"data": blob({"w": claim([1000], 0, 4000)}, bytes(64))})
    elif name == "shape overflows":
        records["weights/0"] = ConfigRecord({"data": blob({"w": claim([2**33, 2**33], 0, 64)}, bytes(64))})
    elif name == "header longer than the rest":
        records["weights/0"] = ConfigRecord({"data": (2**60).to_bytes(8, "little") + bytes(64)})
    elif name == "piece lacking":
        records["weights/2"] = ConfigRecord({"data": b"x"})
    elif name == "another array":
        records["start/0"] = records["weights/0"]
    return records


CASES = [
    "record too many",
    "record too few",
    "other kind",
    "other header",
    "text as number",
    "format",
    "list as metric",
    "pickled array",
    "claims 10^15 numbers",
    "claims more than came",
    "shape overflows",
    "header longer than the rest",
    "piece lacking",
    "another array",
]


def claim(shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def blob(header: dict[str, object], data: bytes) -> bytes:
    """A safetensors file whose header says what we like."""
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_not_exactly_an_update_is_refused(case: str) -> None:
    records = spoiled(case)
    tracemalloc.start()
    try:
        with pytest.raises(UpdateError):
            codec.unpack(records)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # refused before anything large is allocated
    finally:
        tracemalloc.stop()


def test_arrays_larger_than_agreed_are_refused_and_large_ones_travel_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "PIECE", 100)
    records = codec.pack_update(update(), {"labels": 1.0})
    assert len([name for name in records if name.startswith("weights/")]) > 2
    assert same(dict(codec.unpack_update(records).weights), WEIGHTS)
    with pytest.raises(UpdateError, match="more than 100 bytes"):
        codec.unpack(records, 100)


def test_texts_of_a_site_are_cut_and_cleaned() -> None:
    nasty = "red\x1b[31m\nnext line\u202ereversed\x07" + "x" * 5000
    said = codec.unpack(codec.pack_failure(nasty))
    assert isinstance(said, codec.Failure)
    assert said.reason.startswith("red [31m next linereversed x")
    assert len(said.reason) == 300
    hello = codec.unpack(codec.pack_hello(Hello("site\x1b]0;a", (nasty,))))
    assert isinstance(hello, Hello)
    assert hello.site == "site ]0;a"
    assert len(hello.objections[0]) == 300


def test_a_letter_of_another_format_is_refused() -> None:
    records = RecordDict({"letter": ConfigRecord({"header": '{"format": 99}'})})
    with pytest.raises(UpdateError, match="format 99"):
        codec.header_of(records)
    with pytest.raises(UpdateError, match="cannot be read"):
        codec.header_of(RecordDict())


def test_a_site_is_told_its_own_share_of_a_total_budget() -> None:
    order = RoundOrder("run", 3, 0, {}, allowances={0: 2, 1: 5})
    for allowances, wanted in (({0: 2, 1: 5}, {1: 5}), ({0: 2}, {1: 0}), (None, None)):
        letter = SiteMessage(7, "turn", {"number": 1}, order=replace(order, allowances=allowances))
        records = codec.pack_letter(letter)
        assert codec.order_of(records, codec.header_of(records)).allowances == wanted


def test_the_sites_of_a_secure_sum_are_never_sent() -> None:
    """``joint`` is written by the server alone: a site that sets it sends the same bytes as one that does not."""
    update = ClientUpdate(0, 1, {"w": np.zeros(2, dtype=np.float32)}, 5, {})
    claimed = codec.pack_update(replace(update, joint=(0, 1, 2)), {})
    assert str(claimed) == str(codec.pack_update(update, {}))
    read = codec.unpack(claimed)
    assert isinstance(read, ClientUpdate)
    assert read.joint == ()
