from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from chase.core.errors import CheckpointError, UpdateError
from chase.core.weights import (
    check_fits,
    contiguous,
    digest,
    from_bytes,
    not_finite,
    part_of,
    prefixed,
    read,
    read_part,
    to_bytes,
    without,
)


def weights(*values: float, count: int = 0) -> dict[str, np.ndarray]:
    return {"w": np.array(values, dtype=np.float32), "n": np.array(count, dtype=np.int64)}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"w": np.zeros(2, np.float32)}, "arrays do not match the model: n"),
        (weights(1, 2) | {"extra": np.zeros(1)}, "arrays do not match the model: extra"),
        (weights(1, 2, 3), r"'w' is float32\[3\], the model has float32\[2\]"),
        (weights(1, 2) | {"w": np.zeros(2)}, r"'w' is float64\[2\], the model has float32\[2\]"),
        (weights(1, float("nan")), "'w' holds NaN or infinity"),
        (weights(1, float("inf")), "'w' holds NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_who_and_what(bad: dict, sentence: str) -> None:
    with pytest.raises(UpdateError, match=f"client 3: {sentence}"):
        check_fits(bad, weights(0, 0), "client 3")


def test_weights_that_fit_pass() -> None:
    check_fits(weights(5, 6, count=9), weights(0, 0), "client 3")


def test_digest_differs_by_the_smallest_change_and_not_by_order_or_layout() -> None:
    a = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.zeros(2, np.float32)}
    assert digest(a) == digest({"y": a["y"], "x": np.asfortranarray(a["x"])})
    nudged = a["x"].copy()
    nudged[1, 2] = np.nextafter(nudged[1, 2], np.float32(9))
    others = [
        a | {"x": nudged},
        a | {"x": a["x"].reshape(3, 2)},
        a | {"x": a["x"].astype(np.float64)},
        {"z": a["x"], "y": a["y"]},
        a | {"y": np.array([0.0, -0.0], np.float32)},
    ]
    assert len({digest(a), *(digest(o) for o in others)}) == 1 + len(others)


def test_bytes_read_back_to_the_same_arrays(tmp_path: Path) -> None:
    arrays = weights(1.5, -2.5, count=4) | {"strided": np.arange(12.0).reshape(3, 4)[:, ::2]}
    (tmp_path / "a.safetensors").write_bytes(to_bytes(arrays, {"note": "x"}))
    assert digest(read(tmp_path / "a.safetensors")) == digest(arrays)
    assert load(to_bytes(arrays))["n"] == 4


@pytest.mark.parametrize("content", [b"", b"not a safetensors file", to_bytes(weights(1, 2))[:-3]])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"cannot read .*bad\.safetensors"):
        read(tmp_path / "bad.safetensors")
    with pytest.raises(CheckpointError, match=r"cannot read .*bad\.safetensors"):
        read_part(tmp_path / "bad.safetensors", "w")


def test_a_single_number_keeps_its_shape_in_a_file(tmp_path: Path) -> None:
    """The counter of a batch norm has no dimension; with one it would fit the network no more."""
    path = tmp_path / "weights.safetensors"
    path.write_bytes(to_bytes({"count": np.array(5, dtype=np.int64), "t": np.arange(6.0).reshape(2, 3).T}))
    found = read(path)
    assert found["count"].shape == ()
    assert found["t"].tolist() == np.arange(6.0).reshape(2, 3).T.tolist()


def test_several_sets_fit_into_one_and_come_out_as_they_went_in() -> None:
    one, other = {"w": np.ones(2), "a.b": np.zeros(1)}, {"w": np.zeros(3)}
    together = prefixed("one.", one) | prefixed("other.", other)
    assert part_of(together, "one.").keys() == one.keys()
    assert np.array_equal(part_of(together, "other.")["w"], other["w"])
    assert part_of(together, "none.") == {}
    assert without(together, "one.").keys() == {"other.w"}
    assert without(together, "one.", "other.") == {}


def test_a_part_of_a_file_is_read_without_the_rest(tmp_path: Path) -> None:
    one, other = {"w": np.ones(2), "a.b": np.zeros(1)}, {"w": np.zeros(3)}
    path = tmp_path / "both.safetensors"
    path.write_bytes(to_bytes(prefixed("one.", one) | prefixed("other.", other)))
    assert digest(read_part(path, "one.")) == digest(one)
    assert read_part(path, "none.") == {}


KINDS = ("f8", "f4", "f2", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "?")
NAMES = ('é"', "a.b", "x\x1f\n", "/z\\", "ü")


@pytest.mark.parametrize("seed", range(40))
def test_bytes_are_those_of_the_library_and_read_back(seed: int) -> None:
    draw = np.random.default_rng(seed)
    arrays = {
        f"{draw.choice(NAMES)}{n}": np.asarray(draw.integers(0, 2, size=tuple(draw.integers(0, 4, size=n % 4)))).astype(
            draw.choice(KINDS)
        )
        for n in range(1 + seed % 13)
    } | {"strided": np.arange(12.0).reshape(3, 4)[:, ::2]}
    note = {"format": "pt\n"} if seed % 2 else None
    blob = save({name: contiguous(array) for name, array in arrays.items()}, metadata=note or {})
    assert to_bytes(arrays, note) == blob
    found = from_bytes(blob)
    assert digest(found) == digest(arrays) == digest(load(blob))
    assert all(array.flags.writeable for array in found.values())


def test_types_that_the_format_names_otherwise_are_left_to_the_library() -> None:
    arrays = {"c": np.array([1 + 2j], dtype=np.complex64), "a": np.ones(2, np.float32)}
    assert to_bytes(arrays) == save(arrays, metadata={})


@pytest.mark.parametrize("size", [3, 5000])
def test_what_is_not_finite_is_found_by_name_however_large(size: int) -> None:
    fine = {"a": np.ones(4, np.float32), "b": np.ones(size, np.float32), "n": np.array(3), "none": np.empty(0)}
    assert not_finite(fine) is None
    assert not_finite(fine | {"b": np.where(np.arange(size) == size - 1, np.nan, 1.0)}) == "b"
    assert not_finite(fine | {"a": np.array([0.0, -np.inf])}) == "a"
    assert not_finite({"n": np.array(3)}) is None
    huge = np.full(size, 3e38, dtype=np.float32)
    assert not_finite({"a": huge}) is None
    assert not_finite({"a": np.append(huge, np.float32(np.nan))}) == "a"
