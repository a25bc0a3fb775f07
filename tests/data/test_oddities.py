"""What ``chase data inspect`` finds odd about a data set as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from chase.data import sources
from chase.data.oddities import oddities


def load(path: Path, rows: list[str]) -> list[str]:
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return oddities(sources.load(str(path)))


def test_one_class_classes_that_mean_nothing_and_uneven_classes(tmp_path: Path) -> None:
    assert any("one class only ('a')" in f for f in load(tmp_path / "a.csv", [f"t{n},a" for n in range(20)]))
    rows = [f"t{n},{'NA' if n % 2 else 'b'}" for n in range(20)]
    assert any("a class is called NA" in f for f in load(tmp_path / "b.csv", rows))
    rows = [f"t{n},{'rare' if n < 3 else 'usual'}" for n in range(200)]
    uneven = next(f for f in load(tmp_path / "c.csv", rows) if "very uneven" in f)
    assert "of 'rare'" in uneven
    assert "set main_metric=balanced-accuracy" in uneven
    assert "with learner=network, class_weights=balanced" in uneven


def test_equal_samples_and_contradictory_labels_are_named_by_their_lines(tmp_path: Path) -> None:
    rows = [f"text {n},{'ab'[n % 2]}" for n in range(40)] + [f"the same,{'ab'[n % 2]}" for n in range(8)]
    found = load(tmp_path / "d.csv", rows)
    assert any("training samples equal an earlier one (first: d.csv:4" in f for f in found)
    assert any("1 sample occurs more than once with different labels" in f and "d.csv:4" in f for f in found)
    assert load(tmp_path / "e.csv", [f"text {n},{'ab'[n % 2]}" for n in range(40)]) == []


def test_different_texts_with_equal_words_numbers_are_not_called_equal(tmp_path: Path) -> None:
    """Words are hashed into 8,191 numbers: among a few hundred different words some share one."""
    rows = [f"word{n},{'ab'[n % 2]}" for n in range(600)]
    path = tmp_path / "f.csv"
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    data = sources.load(str(path))
    tokens = data.train.inputs.numpy()
    assert len({row.tobytes() for row in tokens}) < len(tokens)  # else this test tests nothing
    assert oddities(data) == []
    assert not any("also in the training part" in problem for problem in data.problems)


def test_samples_without_a_label_are_counted(tmp_path: Path) -> None:
    rows = [f"t{n},{'ab'[n % 2] if n < 21 else ''}" for n in range(100)]
    assert any("have no label" in f and "--annotator page" in f for f in load(tmp_path / "g.csv", rows))


def test_test_samples_that_are_also_trained_on_are_named(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    train = "".join(f"r{n},t{n},{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "set" / "train.csv").write_text(f"id,text,label\n{train}")
    twice = "".join(f"x{n},t{n},{'ab'[n % 2]}\n" for n in (7, 3, 5, 2))
    (tmp_path / "set" / "test.csv").write_text(f"id,text,label\nx0,new,b\n{twice}")
    named = "test sample x7 and r7; test sample x3 and r3; test sample x5 and r5"
    problems = sources.load(str(tmp_path / "set")).problems
    assert problems == (f"4 of 5 test samples are also in the training part (first: {named})",)


def test_contradictions_across_parts_and_past_an_unlabelled_twin(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.csv").write_text(
        "id,text,label\n" + "".join(f"r{n},t{n},{'ab'[n % 2]}\n" for n in range(20))
    )
    (tmp_path / "set" / "test.csv").write_text("id,text,label\nx1,t3,a\nx2,t4,a\nx3,new,b\n")
    found = oddities(sources.load(str(tmp_path / "set")))
    assert found == ["1 sample occurs more than once with different labels (first: test sample x1 ('a') and r3 ('b'))"]
    rows = ["same,a", "same,", "same,b"] + [f"t{n},{'ab'[n % 2]}" for n in range(30)]
    assert any("with different labels" in f for f in load(tmp_path / "h.csv", rows))


def pictures(root: Path, levels: tuple[int, ...]) -> list[str]:
    draw = np.random.default_rng(0)
    for level, name in zip(levels, "abc", strict=False):
        (root / name).mkdir(parents=True)
        for n in range(40):
            grey = np.clip(draw.normal(level + draw.normal(0, 10), 20, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(grey).save(root / name / f"{n}.png")
    return oddities(sources.load(str(root)))


def test_classes_that_differ_in_brightness_alone_are_said_with_what_to_set(tmp_path: Path) -> None:
    found = pictures(tmp_path / "apart", (60, 120, 180))
    assert len(found) == 1
    assert found[0].startswith("the mean brightness of a picture alone tells the class of 9")
    assert "levels=0.2" in found[0]
    assert pictures(tmp_path / "alike", (118, 120, 122)) == []
