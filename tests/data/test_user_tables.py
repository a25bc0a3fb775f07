"""Tables as users keep them: ids, delimiters, encodings, numbers, categories, vectors, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import encode

from chase.core.errors import DataError
from chase.data import sources
from chase.data.names import Names
from chase.data.options import DataOptions


def write(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def reviews(count: int, separator: str = ",", extra: str = "") -> str:
    rows = [f"text number {n}{separator}{'good' if n % 2 else 'bad'}" for n in range(count)]
    return f"text{separator}label\n" + "\n".join(rows) + "\n" + extra


def test_names_pack_texts_and_give_them_back() -> None:
    texts = ["a", "", "süß", "c" * 300]
    names = Names.of(texts)
    assert list(names) == texts
    assert list(names.take(np.array([3, 0]))) == [texts[3], "a"]
    assert names[-2] == "süß"
    with pytest.raises(IndexError):
        names[4]


def test_rows_go_by_their_line_also_after_a_line_break_in_a_cell(tmp_path: Path) -> None:
    text = 'text,label\n"first\nsecond",a\n\nthird,b\nfourth,a\nfifth,b\n'
    data = sources.load(write(tmp_path / "x.csv", text))
    assert data.train_names is not None
    assert data.test_names is not None
    names = {*data.train_names, *data.test_names}
    assert names == {"x.csv:2", "x.csv:5", "x.csv:6", "x.csv:7"}
    row = list(data.train_names).index("x.csv:2") if "x.csv:2" in data.train_names else None
    if row is not None and data.train_texts is not None:
        assert data.train_texts[row] == "first\nsecond"


def test_an_id_column_names_the_samples_and_repeats_are_refused_with_both_lines(tmp_path: Path) -> None:
    rows = "\n".join(f"case-{n},text {n},{n % 2}" for n in range(10))
    data = sources.load(write(tmp_path / "x.csv", f"case,text,label\n{rows}\n"), options=DataOptions(id_column="case"))
    assert data.train_names is not None
    assert set(data.train_names) <= {f"case-{n}" for n in range(10)}
    twice = write(tmp_path / "y.csv", f"case,text,label\n{rows}\ncase-3,again,1\n")
    with pytest.raises(DataError, match=r"line 12: id 'case-3' is also that of y.csv, line 5"):
        sources.load(twice, options=DataOptions(id_column="case"))
    assert len(sources.load(twice).train) > 0  # no id column was asked for, and `case` is not a usual name


def test_a_folder_names_its_images_by_their_path(tmp_path: Path) -> None:
    for part, name, count in (("train", "a", 3), ("train", "b", 3), ("test", "a", 2), ("test", "b", 2)):
        (tmp_path / "x" / part / name).mkdir(parents=True)
        for n in range(count):
            image = np.full((1, 4, 4), 30 * n + len(part), dtype=np.uint8)
            (tmp_path / "x" / part / name / f"{n}.png").write_bytes(encode(image, "PNG"))
    data = sources.load(str(tmp_path / "x"))
    assert data.train_names is not None
    assert list(data.train_names) == [f"train/{c}/{n}.png" for c in "ab" for n in range(3)]
    assert data.test_names is not None
    assert data.test_names[0] == "test/a/0.png"


def test_image_paths_of_a_table_are_names(tmp_path: Path) -> None:
    for n in range(6):
        (tmp_path / f"p{n}.png").write_bytes(encode(np.full((1, 4, 4), 10 * n, dtype=np.uint8), "PNG"))
    rows = "\n".join(f"p{n}.png,{'ab'[n % 2]}" for n in range(6))
    data = sources.load(write(tmp_path / "x.csv", f"picture,label\n{rows}\n"))  # found by what the cells hold
    assert data.train.kind == "image"
    assert data.train_names is not None
    assert all(name.startswith("p") and name.endswith(".png") for name in data.train_names)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_delimiters_are_found(tmp_path: Path, separator: str) -> None:
    data = sources.load(write(tmp_path / "x.csv", reviews(10, separator)))
    assert data.classes == ("bad", "good")


def test_other_encodings_are_read_and_said(tmp_path: Path) -> None:
    text = "text,label\n" + "\n".join(f"Größe {n},{'süß' if n % 2 else 'herb'}" for n in range(10))
    data = sources.load(write(tmp_path / "x.csv", text, "cp1252"))
    assert data.classes == ("herb", "süß")
    assert any("not UTF-8 (line 2), so it was read as cp1252" in problem for problem in data.problems)
    assert sources.load(write(tmp_path / "y.csv", text, "utf-16")).classes == ("herb", "süß")
    assert sources.load(write(tmp_path / "z.csv", text, "utf-8-sig")).classes == ("herb", "süß")
    with pytest.raises(DataError, match="encoding = 'klingon' is not known"):
        sources.load(write(tmp_path / "x.csv", text), options=DataOptions(encoding="klingon"))


def test_numbers_and_categories_are_a_table(tmp_path: Path) -> None:
    rows = [
        f"{20 + n};{'m' if n % 3 else 'f'};{n / 4:.2f};{'ill' if n % 2 else 'well'}".replace(".", ",")
        for n in range(40)
    ]
    rows[7] = ";m;1,5;ill"
    data = sources.load(write(tmp_path / "x.csv", "age;sex;dose;label\n" + "\n".join(rows) + "\n"))
    assert data.train.kind == "table"
    assert [(c.name, c.kind, c.values) for c in data.train.columns] == [
        ("age", "numeric", ()),
        ("sex", "categorical", ("f", "m")),
        ("dose", "numeric", ()),
    ]
    ready = data.train.ready(data.train.rows(np.arange(len(data.train))))
    assert ready.shape == (len(data.train), 6)
    assert not ready.isnan().any()
    assert data.train.mean[0] == pytest.approx(39, abs=6)
    assert any("column 'age' has no number in 1 of 40 rows" in problem for problem in data.problems)


def test_columns_that_do_not_fit_a_table_are_refused_by_name(tmp_path: Path) -> None:
    rows = [f"{n},{n},{n % 2}" for n in range(40)]
    rows[5] = "five,5,1"
    with pytest.raises(DataError, match=r"x.csv, line 7: column 'a' holds numbers, but 'five' is not a number"):
        sources.load(write(tmp_path / "x.csv", "a,b,label\n" + "\n".join(rows)))
    notes = [f"{n},note number {n} by hand,{n % 2}" for n in range(80)]
    with pytest.raises(DataError, match=r"column 'note' is neither numbers nor .*text_column=note.*columns=\"a\""):
        sources.load(write(tmp_path / "y.csv", "a,note,label\n" + "\n".join(notes)))
    data = sources.load(str(tmp_path / "y.csv"), options=DataOptions(columns=("a",)))
    assert [c.name for c in data.train.columns] == ["a"]
    coded = sources.load(str(tmp_path / "x.csv"), options=DataOptions(columns=("a:category", "b")))
    assert coded.train.columns[0].kind == "categorical"


def test_lists_of_numbers_are_vectors(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    table = pa.table({"embedding": vectors.tolist(), "label": ["a", "b"] * 10, "id": [f"v{n}" for n in range(20)]})
    pq.write_table(table, tmp_path / "x.parquet")
    data = sources.load(str(tmp_path / "x.parquet"))
    assert data.train.kind == "vectors"
    assert data.train.shape == (8,)
    assert data.train_names is not None
    assert data.train_names[0].startswith("v")
    ready = data.train.ready(data.train.rows(np.arange(len(data.train))))
    assert ready.mean(dim=0).abs().max() < 1e-5
    broken = [None if n == 3 else row for n, row in enumerate(vectors.tolist())]
    pq.write_table(pa.table({"embedding": broken, "label": ["a", "b"] * 10}), tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet, row 3 .*column 'embedding' holds nothing"):
        sources.load(str(tmp_path / "y.parquet"))


def test_shards_of_the_hub_are_one_data_set(tmp_path: Path) -> None:
    (tmp_path / "x" / "data").mkdir(parents=True)
    for shard in range(2):
        table = pa.table({"text": [f"text {shard} {n}" for n in range(10)], "label": ["a", "b"] * 5})
        pq.write_table(table, tmp_path / "x" / "data" / f"train-0000{shard}-of-00002.parquet")
    pq.write_table(
        pa.table({"text": ["t", "u"], "label": ["a", "b"]}), tmp_path / "x" / "data" / "test-00000-of-00001.parquet"
    )
    data = sources.load(str(tmp_path / "x"))
    assert (len(data.train), len(data.test)) == (20, 2)
    assert data.train_names is not None
    assert data.train_names[13] == "train-00001-of-00002.parquet#3"


def test_several_labels_and_quantities_are_refused_by_name(tmp_path: Path) -> None:
    several = "text,label\n" + "".join(f"t{n},{'a;b' if n == 4 else 'ab'[n % 2]}\n" for n in range(20))
    with pytest.raises(
        DataError, match=r"column 'label' holds several labels per sample \(for example 'a;b' in x.csv, line 6"
    ):
        sources.load(write(tmp_path / "x.csv", several))
    amounts = "text,label\n" + "".join(f"t{n},{n * 0.37:.2f}\n" for n in range(60))
    with pytest.raises(DataError, match=r"column 'label' holds 60 different numbers with decimals, a quantity"):
        sources.load(write(tmp_path / "y.csv", amounts))
    pq.write_table(pa.table({"text": ["a", "b"], "label": [["x"], ["x", "y"]]}), tmp_path / "z.parquet")
    with pytest.raises(DataError, match="several labels per sample"):
        sources.load(str(tmp_path / "z.parquet"))


def test_texts_that_are_cut_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"{'word ' * (100 if n < 3 else 5)},{'ab'[n % 2]}\n" for n in range(10))
    data = sources.load(write(tmp_path / "x.csv", f"text,label\n{rows}"))
    assert any("3 of 10 texts (30%) are longer than 64 words" in problem for problem in data.problems)


def test_recordings_become_pictures_of_one_length(tmp_path: Path) -> None:
    from scipy.io import wavfile

    for name, pitch in (("low", 300.0), ("high", 3000.0)):
        (tmp_path / "x" / name).mkdir(parents=True)
        for n in range(4):
            time = np.arange(int(8000 * (0.5 + 0.1 * n))) / 8000
            wave = (0.5 * np.sin(2 * np.pi * pitch * time) * 32767).astype(np.int16)
            wavfile.write(tmp_path / "x" / name / f"{n}.wav", 8000, wave)
    data = sources.load(str(tmp_path / "x"))
    assert data.train.shape == (1, 64, 64)
    assert data.seconds == pytest.approx(0.78, abs=0.03)
    loudest = data.train.inputs[:, 0].mean(dim=2).argmax(dim=1).numpy()
    high = data.classes.index("high")
    assert loudest[data.train_labels == high].max() < loudest[data.train_labels != high].min()  # high tones are above


@pytest.mark.parametrize("name", ["patient_id", "patientID", "Case Id", "case-id"])
def test_a_column_of_ids_names_the_rows_and_is_not_learnt_from(tmp_path: Path, name: str) -> None:
    """Numbers that rise with the rows would be learnt from, and blanks are no reason to refuse."""
    for made in (lambda n: str(9000 + n), lambda n: f"case {n}"):
        rows = "".join(f"{made(n)},{n % 7},{'ab'[n % 2]}\n" for n in range(20))
        data = sources.load(write(tmp_path / "x.csv", f"{name},age,label\n{rows}"))
        assert [column.name for column in data.train.columns] == ["age"]
        assert data.train_names is not None
        assert data.train_names[0] in {made(n) for n in range(20)}


@pytest.mark.parametrize("name", ["patient_id", "id"])
def test_ids_that_occur_twice_name_nothing_and_are_not_learnt_from(tmp_path: Path, name: str) -> None:
    """The number of a patient with two visits says nothing about the class; who wants the column names it."""
    rows = "".join(f"{n % 5},{n % 7},{'ab'[n % 2]}\n" for n in range(20))
    path = write(tmp_path / "x.csv", f"{name},age,label\n{rows}")
    data = sources.load(path)
    assert [column.name for column in data.train.columns] == ["age"]
    assert data.train_names is not None
    assert data.train_names[0].startswith("x.csv:")
    assert any(f"column '{name}' is not learnt from" in problem for problem in data.problems)
    wanted = sources.load(path, options=DataOptions(columns=(name, "age")))
    assert [column.name for column in wanted.train.columns] == [name, "age"]


def test_a_table_of_ids_alone_is_learnt_from(tmp_path: Path) -> None:
    rows = "".join(f"{n % 5},{'ab'[n % 2]}\n" for n in range(20))
    data = sources.load(write(tmp_path / "x.csv", f"ward_id,label\n{rows}"))
    assert [column.name for column in data.train.columns] == ["ward_id"]


def test_a_column_that_could_name_the_rows_is_offered_as_that(tmp_path: Path) -> None:
    rows = "".join(f"bed {n},{n % 7},{'ab'[n % 2]}\n" for n in range(60))
    with pytest.raises(DataError, match="or id_column=where if it names the rows"):
        sources.load(write(tmp_path / "x.csv", f"where,age,label\n{rows}"))


def test_a_column_of_one_value_is_named(tmp_path: Path) -> None:
    rows = "".join(f"7,x,{n % 7},{'ab'[n % 2]}\n" for n in range(20))
    data = sources.load(write(tmp_path / "x.csv", f"ward,sex,age,label\n{rows}"))
    said = [problem for problem in data.problems if "the same value in every row" in problem]
    assert [problem.split("'")[1] for problem in said] == ["ward", "sex"]


def test_ids_that_name_no_text_are_said_with_both_lines(tmp_path: Path) -> None:
    rows = [f"{n % 19},text number {n},{'ab'[n % 2]}" for n in range(20)]
    file = write(tmp_path / "x.csv", "id,text,label\n" + "\n".join(rows) + "\n")
    data = sources.load(file)
    assert data.train_names is not None
    assert data.train_names[0].startswith("x.csv:")
    said = "the samples are named by their place in the file, not by column 'id': '0' is in x.csv, line 2 and line 21"
    assert said in data.problems
    assert not any("'id'" in problem for problem in sources.load(file, "", DataOptions(id_column="none")).problems)
    rows[3] = ",text without an id,a"
    rows[19] = "19,text,b"
    data = sources.load(write(tmp_path / "y.csv", "id,text,label\n" + "\n".join(rows) + "\n"))
    assert any("by column 'id': it is empty in y.csv, line 5" in problem for problem in data.problems)


def test_ids_are_not_used_where_the_user_says_none(tmp_path: Path) -> None:
    rows = [f"p{n},text number {n},{'ab'[n % 2]}" for n in range(20)]
    file = write(tmp_path / "x.csv", "id,text,label\n" + "\n".join(rows) + "\n")
    named, placed = (sources.load(file, "", DataOptions(id_column=column)).train_names for column in ("", "none"))
    assert named is not None
    assert placed is not None
    assert (named[0], placed[0]) == ("p1", "x.csv:3"), "the first is tested on"
