"""Folders of images and class names as people have them: other names of parts, links, odd names, no home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import encode, pixels

from chase.core.errors import DataError
from chase.data import sources
from chase.data.assemble import agree_classes
from chase.data.cache import cache_root, content_key


def fill(folder: Path, count: int = 4, brightness: int = 0) -> Path:
    """A folder of images that differ from those of other brightness."""
    folder.mkdir(parents=True)
    images = pixels(count, (1, 6, 6), np.zeros(count, dtype=np.int64), brightness) + np.uint8(brightness)
    for number, image in enumerate(images):
        (folder / f"{number}.png").write_bytes(encode(image, "PNG"))
    return folder


def divided(root: Path, *parts: str) -> Path:
    """Classes a and b in each part; images of different parts differ."""
    for number, part in enumerate(parts):
        fill(root / part / "a", brightness=20 * number)
        fill(root / part / "b", brightness=20 * number + 100)
    return root


def test_whole_numbers_of_one_value_have_one_order_in_every_process() -> None:
    code = "from chase.data.assemble import agree_classes; print(*agree_classes(['001', '01', '1', '-2', '10'], ()))"
    for seed in ("0", "1", "2", "3"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout == "-2 001 01 1 10\n"


def test_labels_that_only_look_like_numbers_are_texts() -> None:
    assert agree_classes(["--1", "2", "10"], ()) == ("--1", "10", "2")
    assert agree_classes(["-", "1"], ()) == ("-", "1")
    assert agree_classes(["9" * 5000, "10", "2"], ()) == ("10", "2", "9" * 5000)
    assert agree_classes(["10", "9", "-1"], ()) == ("-1", "9", "10")


@pytest.mark.parametrize("names", [("train", "test"), ("Train", "Test"), ("TRAINING", "testing")])
def test_parts_of_a_folder_are_found_in_any_case(tmp_path: Path, names: tuple[str, str]) -> None:
    root = divided(tmp_path / "x", *names)
    (root / names[0] / "a" / "9.png").write_bytes((root / names[0] / "a" / "0.png").read_bytes())
    found = sources.load(str(root))
    assert (found.classes, len(found.train), len(found.test)) == (("a", "b"), 9, 8)


@pytest.mark.parametrize(
    ("parts", "do"),
    [
        (("train", "val", "test"), "move val elsewhere, or give {0}/train as the data and {0}/test as the setting"),
        (("Train", "Test", "extra"), "move extra elsewhere, or give {0}/Train as the data and {0}/Test as the setting"),
        (("train", "Validation"), ": give {0}/train as the data and {0}/Validation as the setting test_data"),
        (("train", "Training"), ": give {0}/Training as the data"),
        (("dev", "test", "unlabeled"), ": give {0}/test as the data and {0}/dev as the setting test_data"),
        (("training",), ": give {0}/training as the data"),
    ],
)
def test_other_parts_are_not_taken_for_classes(tmp_path: Path, parts: tuple[str, ...], do: str) -> None:
    root = divided(tmp_path / "x", *parts)
    with pytest.raises(DataError, match=re.escape(do.format(root))) as refused:
        sources.load(str(root))
    assert f"{root} has the folders {', '.join(sorted(parts))}, which look like parts" in str(refused.value)


def test_parts_without_class_folders_are_parts_too(tmp_path: Path) -> None:
    for number, part in enumerate(("train", "val")):
        fill(tmp_path / "x" / part, brightness=50 * number)
    with pytest.raises(DataError, match="look like parts of a data set"):
        sources.load(str(tmp_path / "x"))


@pytest.mark.parametrize("classes", [("blood", "test"), ("bus", "test", "train"), ("dev", "test"), ("car", "train")])
def test_classes_may_be_called_like_parts(tmp_path: Path, classes: tuple[str, ...]) -> None:
    for number, name in enumerate(classes):
        fill(tmp_path / "x" / name, brightness=50 * number)
    assert sources.load(str(tmp_path / "x")).classes == classes


def test_what_archivers_leave_is_no_class(tmp_path: Path) -> None:
    root = divided(tmp_path / "x", "train", "test")
    for junk in ("__MACOSX", ".thumbs"):
        fill(root / junk / "a")
        fill(root / "train" / junk)
    found = sources.load(str(root))
    assert (found.classes, len(found.train), len(found.test)) == (("a", "b"), 8, 8)
    assert not any("MACOSX" in problem for problem in found.problems)


def test_links_to_folders_are_followed_and_loops_end(tmp_path: Path) -> None:
    fill(tmp_path / "store" / "cats" / "deep")
    root = tmp_path / "x"
    fill(root / "dog", brightness=100)
    (root / "cat").symlink_to(tmp_path / "store" / "cats")
    (root / "dog" / "again").symlink_to(root)
    (root / "dog" / "self").symlink_to("self")
    found = sources.load(str(root))
    assert found.classes == ("cat", "dog")
    assert np.bincount(np.concatenate([found.train_labels, found.test_labels])).tolist() == [4, 4]
    assert found.train_names is not None
    assert "cat/deep/0.png" in {*found.train_names, *(found.test_names or ())}
    assert not found.problems


@pytest.mark.parametrize("odd", [b"a/b\xfc1.png", b"k\xfc/0.png", b"a/k\xfc/0.png"])
def test_a_file_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path, odd: bytes) -> None:
    root = fill(tmp_path / "x" / "a").parent
    fill(root / "b", brightness=90)
    place = root / os.fsdecode(odd)
    place.parent.mkdir(exist_ok=True)
    place.write_bytes((root / "b" / "0.png").read_bytes())
    name = odd.decode("utf-8", "backslashreplace")
    said = name if b"k\xfc/0" not in odd or odd.startswith(b"a/") else "k\\xfc"
    with pytest.raises(DataError, match=re.escape(f"the file name {said} is not UTF-8: rename it")):
        sources.load(str(root))


def test_a_folder_whose_own_name_is_not_utf8_is_refused_and_an_odd_other_file_is_shown(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"d\xfc")
    fill(root / "a")
    with pytest.raises(DataError, match=r"d\\xfc is not UTF-8"):
        sources.load(str(root))
    fill(tmp_path / "x" / "a")
    fill(tmp_path / "x" / "b", brightness=90)
    (tmp_path / "x" / os.fsdecode(b"n\xfc.txt")).write_text("")
    assert any(r"n\xfc.txt" in problem for problem in sources.load(str(tmp_path / "x")).problems)


def test_a_key_has_room_for_every_file_name() -> None:
    keys = {content_key([], os.fsdecode(name)) for name in (b"b\xfc", b"b\xfd", "bü".encode())}
    assert len(keys) == 3


def test_without_a_home_directory_the_cache_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("CHASE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "chase"
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(DataError, match="set the environment variable CHASE_CACHE to a directory"):
        cache_root()
