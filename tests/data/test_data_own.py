"""A user's own data: folders of images, tables of texts and of image paths, and what can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from data_files import encode, pixels

from chase.core.errors import DataError
from chase.data import hub, sources, table_cells, tabular_files
from chase.data.options import DataOptions
from chase.data.texts import BUCKETS, LETTERS, characters, word_token, words_and_cut


def fill_folder(root: Path, name: str, count: int, brightness: int, size: int = 6, channels: int = 3) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    images = pixels(count, (channels, size, size), np.zeros(count, dtype=np.int64), brightness) + np.uint8(brightness)
    for number, image in enumerate(images):
        (root / name / f"{number}.png").write_bytes(encode(image, "PNG"))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pets"
    fill_folder(root, "cat", 10, 0)
    fill_folder(root, "dog", 5, 100)
    fill_folder(root, "unlabeled", 4, 60)
    return root


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_of_images(folder):
    data = sources.load(str(folder))
    assert data.classes == ("cat", "dog")
    assert data.train.shape == (3, 6, 6)
    assert (len(data.train), len(data.test)) == (16, 3)
    assert np.bincount(data.train_labels + 1).tolist() == [4, 8, 4]
    assert np.bincount(data.test_labels).tolist() == [2, 1]
    ready = data.train.ready(torch.arange(len(data.train)))
    assert ready.mean().abs() < 0.05
    assert ready.std() == pytest.approx(1, abs=0.05)


def test_grey_folders_stay_grey_and_can_be_resized(tmp_path):
    fill_folder(tmp_path / "x", "a", 4, 0, channels=1)
    fill_folder(tmp_path / "x", "b", 4, 90, channels=1)
    assert sources.load(str(tmp_path / "x")).train.shape == (1, 6, 6)
    assert sources.load(str(tmp_path / "x"), options=DataOptions(image_size=9)).train.shape == (1, 9, 9)
    assert sources.load(str(tmp_path / "x"), options=DataOptions(channels=3)).train.shape == (3, 6, 6)


def test_train_and_test_folders(tmp_path):
    for part, count in (("train", 4), ("test", 2)):
        fill_folder(tmp_path / "x" / part, "a", count, 0)
        fill_folder(tmp_path / "x" / part, "b", count, 90 if part == "train" else 70)
    data = sources.load(str(tmp_path / "x"))
    assert (len(data.train), len(data.test)) == (8, 4)
    assert any("test samples are also in the training part" in problem for problem in data.problems)


def test_new_content_is_read_anew(folder):
    before = len(sources.load(str(folder)).train)
    fill_folder(folder, "cat", 20, 0)
    assert len(sources.load(str(folder)).train) > before


def test_an_unreadable_image_is_named_and_skipped_on_request(folder):
    (folder / "cat" / "0.png").write_bytes(b"this is no image")
    with pytest.raises(DataError, match=r"cat/0\.png: it is not an image; .*bad_images=skip"):
        sources.load(str(folder))
    data = sources.load(str(folder), options=DataOptions(bad_images="skip"))
    assert len(data.train) + len(data.test) == 18
    assert any("cat/0.png" in problem and "skipped" in problem for problem in data.problems)


def test_a_truncated_image_is_named(folder):
    file = folder / "dog" / "1.png"
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match=r"dog/1\.png"):
        sources.load(str(folder))


def test_images_of_different_sizes_need_a_size(folder):
    fill_folder(folder, "emu", 2, 30, size=8)
    with pytest.raises(DataError, match=r"emu/0.png is 8x8 and .*cat/0.png is 6x6: set image_size"):
        sources.load(str(folder))
    assert sources.load(str(folder), options=DataOptions(image_size=7)).train.shape == (3, 7, 7)


def test_files_that_are_no_images_and_empty_folders_are_reported(folder):
    (folder / "cat" / "notes.txt").write_text("hello")
    (folder / "fox").mkdir()
    problems = " | ".join(sources.load(str(folder)).problems)
    assert "notes.txt" in problems
    assert "fox holds no image" in problems


REVIEWS = """comment,label,site
"good, very good",yes,north
bad,no,north
so bad,no,south
fine,yes,south
not labelled,,south
good again,yes,north
awful,no,south
,yes,north
"""


def test_a_csv_of_texts(tmp_path):
    path = write_csv(tmp_path / "reviews.csv", REVIEWS)
    data = sources.load(str(path), options=DataOptions(text_column="comment", text_length=5, test_share=0.3))
    assert data.train.kind == "text"
    assert data.train.shape == (5,)
    assert data.classes == ("no", "yes")
    assert data.group_names == ("north", "south")
    assert (data.train_labels < 0).sum() == 1
    assert data.train.vocabulary == BUCKETS
    assert "1 texts of reviews.csv are empty" in data.problems
    assert data.train.ready(torch.arange(2)).dtype == torch.int64


def test_cells_of_a_csv_stay_what_they_are(tmp_path):
    rows = "".join(f"text {n},{'NA' if n % 2 else '01'},00{n % 2}\n" for n in range(12))
    data = sources.load(str(write_csv(tmp_path / "x.csv", "text,label,site\n" + rows + "later,,007\n")))
    assert data.classes == ("01", "NA")
    assert data.group_names == ("000", "001", "007")
    assert (data.train_labels < 0).sum() == 1


def test_usual_column_names_need_no_setting(tmp_path):
    path = write_csv(tmp_path / "x.csv", REVIEWS)
    data = sources.load(str(path))
    assert data.train.kind == "text"
    assert data.groups is not None


def test_a_csv_of_image_paths(tmp_path, folder):
    lines = [f"pets/cat/{n}.png,c" for n in range(10)] + [f"pets/dog/{n}.png,d" for n in range(5)]
    path = write_csv(tmp_path / "list.csv", "\n".join(["path,label", *lines, "pets/unlabeled/0.png,"]))
    data = sources.load(str(path))
    assert data.classes == ("c", "d")
    assert len(data.train) + len(data.test) == 16
    (folder / "cat" / "3.png").unlink()
    with pytest.raises(DataError, match=r"pets/cat/3\.png"):
        sources.load(str(path))


def test_an_image_behind_a_path_is_part_of_the_key(tmp_path, folder):
    path = write_csv(tmp_path / "list.csv", "path,label\n" + "".join(f"pets/cat/{n}.png,{n % 2}\n" for n in range(8)))
    before = sources.load(str(path)).train.inputs.clone()
    (folder / "cat" / "0.png").write_bytes((folder / "dog" / "0.png").read_bytes())
    assert not np.array_equal(before.numpy(), sources.load(str(path)).train.inputs.numpy())


def test_a_parquet_of_texts_with_a_test_file(tmp_path):
    for part in ("train", "test"):
        pq.write_table(pa.table({"text": [f"{part} one", "two"], "label": [3, 10]}), tmp_path / f"{part}.parquet")
    data = sources.load(str(tmp_path))
    assert data.classes == ("3", "10")
    assert any(p.startswith("1 of 2 test samples are also in the training part (first: ") for p in data.problems)
    other = sources.load(str(tmp_path / "train.parquet"), options=DataOptions(test_data=str(tmp_path / "test.parquet")))
    assert len(other.test) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (DataOptions(text_column="remark"), r"has no text column 'remark'; it has: comment, label, site"),
        (DataOptions(text_column="comment", label_column="mark"), r"has no label column 'mark'"),
        (DataOptions(text_column="comment", site_column="place"), r"has no site column 'place'"),
        (DataOptions(image_column="picture"), r"has no image column 'picture'"),
        (DataOptions(image_column="a", text_column="b"), "give one of them"),
        (DataOptions(text_column="comment", classes=("yes", "maybe")), r"line 3: label 'no' is not one of"),
        (DataOptions(text_column="comment", classes=("yes", "no", "no")), "names a class twice"),
        (DataOptions(text_column="comment", test_data="nowhere.csv"), "nowhere.csv does not exist"),
    ],
)
def test_tables_that_do_not_fit_are_refused_in_a_sentence(tmp_path, options, words):
    path = write_csv(tmp_path / "reviews.csv", REVIEWS)
    with pytest.raises(DataError, match=words):
        sources.load(str(path), options=options)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "no column called label.*set label_column to one of a, b"),
        ("text,label\nx,\ny,\n", "no sample has a label"),
        ("text,label,site\nx,1,here\ny,2,\n", "x.csv, line 3: the site column 'site' is empty"),
        ("text,label\nx,1\ny,2,3\n", "line 3: 3 cells, but the header has 2"),
    ],
)
def test_odd_csv_files(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        sources.load(str(write_csv(tmp_path / "x.csv", content)))


def test_data_without_any_label_has_no_test_part_unless_it_is_given_one(tmp_path):
    path = write_csv(tmp_path / "x.csv", "text,label\nx,\ny,\nz,\n")
    data = sources.load(str(path), options=DataOptions(classes=("sick", "well")))
    assert (len(data.train), len(data.test)) == (3, 0)
    empty = write_csv(tmp_path / "empty.csv", "text,label\na,\n")
    with pytest.raises(DataError, match=r"no sample of the test part of x.csv has a label"):
        sources.load(str(path), options=DataOptions(classes=("sick", "well"), test_data=str(empty)))
    tests = write_csv(tmp_path / "tests.csv", "text,label\na,sick\nb,well\n")
    data = sources.load(str(path), options=DataOptions(classes=("sick", "well"), test_data=str(tests)))
    assert (len(data.train), len(data.test)) == (3, 2)


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        sources.load(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no images: put them into"):
        sources.load(str(tmp_path / "empty"))
    (tmp_path / "x.pdf").write_text("x")
    with pytest.raises(DataError, match="is neither a table"):
        sources.load(str(tmp_path / "x.pdf"))
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        sources.load("cifar1O")


def test_labels_of_a_parquet_outside_its_class_list(tmp_path):
    names = json.dumps({"info": {"features": {"label": {"names": ["a", "b"]}}}})
    table = pa.table({"text": ["x", "y", "z"], "label": [0, 1, 2]}).replace_schema_metadata({"huggingface": names})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row 2 .counted from 0.: label .2. is not one of the 2 classes a, b"):
        sources.load(str(tmp_path / "t.parquet"))


def test_words_are_hashed_the_same_everywhere():
    assert word_token("good") == 4816
    tokens, cut = words_and_cut(["Good, GOOD dog", "", "a b c d e f g"], 4)
    assert tokens[0].tolist() == [word_token("good"), word_token(","), word_token("good"), word_token("dog")]
    assert tokens[1].tolist() == [0, 0, 0, 0]
    assert (tokens[2] > 0).all()
    assert cut == 1


def test_characters_keep_the_end_of_a_text():
    assert len(LETTERS) == 80 == len(set(LETTERS))
    tokens = characters(["abc", "xyz~é"], 4)
    assert "".join(LETTERS[t] for t in tokens[0]) == " abc"
    assert "".join(LETTERS[t] for t in tokens[1]) == "yz ?"


def test_no_network_and_no_copy_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"chase data get mnist.*mnist/train\.parquet and mnist/test\.parquet"):
        sources.load("mnist", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_fetching_leaves_a_directory_of_the_users_alone(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "test.parquet").write_text("mine")
    with pytest.raises(DataError, match=r"exists but has no train\.parquet"):
        hub.get("mnist", tmp_path)
    assert (tmp_path / "mnist" / "test.parquet").read_text() == "mine"


def test_a_hub_data_set_is_read_by_its_id_from_the_local_layout(tmp_path):
    place = tmp_path / hub.local_name("hub:owner/reviews")
    place.mkdir()
    pq.write_table(pa.table({"body": list("abcdef"), "stars": [1, 2] * 3}), place / "train.parquet")
    options = DataOptions(text_column="body", label_column="stars")
    data = sources.load("hub:owner/reviews", str(tmp_path), options)
    assert data.classes == ("1", "2")


def test_hub_parts_are_saved_in_the_local_layout(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "text": datasets.Value("string")})
    part = datasets.Dataset.from_dict({"label": [0, 1], "text": ["x", "y"]}, features=features)
    hub.save_parts({"train": part, "test": part}, tmp_path)
    table = tabular_files.read_table(tmp_path / "train.parquet")
    assert tabular_files.class_names(table, "label") == ("no", "yes")
    assert table_cells.labels_as_text(table, "label") == ["no", "yes"]


def test_idx_files_become_upright_images(tmp_path):
    import gzip

    images = np.arange(2 * 28 * 28, dtype=np.int64).reshape(2, 28, 28).astype(np.uint8)
    head = bytes([0, 0, 8, 3]) + np.array([2, 28, 28], dtype=">u4").tobytes()
    (tmp_path / "i.gz").write_bytes(gzip.compress(head + images.tobytes()))
    labels = bytes([0, 0, 8, 1]) + np.array([2], dtype=">u4").tobytes() + bytes([3, 61])
    (tmp_path / "l.gz").write_bytes(gzip.compress(labels))
    for part in ("train", "test"):
        (tmp_path / "emnist").mkdir(exist_ok=True)
        hub.write_idx(tmp_path / "i.gz", tmp_path / "l.gz", tmp_path / "emnist" / f"{part}.parquet")
    data = sources.load("emnist", str(tmp_path))
    assert np.array_equal(data.train.inputs[:, 0].numpy(), images.transpose(0, 2, 1))
    assert [data.classes[c] for c in data.train_labels] == ["3", "z"]
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"no"))
    with pytest.raises(DataError, match="not an IDX file"):
        hub.read_idx(tmp_path / "bad.gz")


def test_parts_in_capital_letters_are_found(tmp_path: Path) -> None:
    rows = [f"{n},{'ab'[n % 2]}" for n in range(20)]
    (tmp_path / "TRAIN.CSV").write_text("value,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "Test.csv").write_text("value,label\n" + "\n".join(rows[:4]) + "\n")
    found = sources.load(str(tmp_path))
    assert (len(found.train), len(found.test)) == (20, 4)
