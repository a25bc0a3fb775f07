"""What ``chase data inspect`` finds odd about a data set as a whole."""

from __future__ import annotations

from pathlib import Path

from chase.data import sources
from chase.data.findings import findings


def load(path: Path, rows: list[str]) -> list[str]:
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return findings(sources.load(str(path)))


def test_one_class_classes_that_mean_nothing_and_uneven_classes(tmp_path: Path) -> None:
    assert any("one class only ('a')" in f for f in load(tmp_path / "a.csv", [f"t{n},a" for n in range(20)]))
    rows = [f"t{n},{'NA' if n % 2 else 'b'}" for n in range(20)]
    assert any("a class is called NA" in f for f in load(tmp_path / "b.csv", rows))
    rows = [f"t{n},{'rare' if n < 3 else 'usual'}" for n in range(200)]
    assert any("very uneven" in f and "of 'rare'" in f for f in load(tmp_path / "c.csv", rows))


def test_equal_samples_and_contradictory_labels_are_named_by_their_lines(tmp_path: Path) -> None:
    rows = [f"text {n},{'ab'[n % 2]}" for n in range(40)] + [f"the same,{'ab'[n % 2]}" for n in range(8)]
    found = load(tmp_path / "d.csv", rows)
    assert any("training samples equal an earlier one (first: d.csv:4" in f for f in found)
    assert any("equal training samples have different labels" in f for f in found)
    assert load(tmp_path / "e.csv", [f"text {n},{'ab'[n % 2]}" for n in range(40)]) == []
