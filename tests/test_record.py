from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from support import small_settings

from chase.core.errors import RunDirectoryError, SettingsError
from chase.core.files import read_jsonl, write_atomically, writing
from chase.run.record import Record, RunHeld


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.create(tmp_path / "run", small_settings())


def line(round: int) -> dict:
    return {"round": round, "labels": 3 * round}


def test_a_run_opens_as_it_was_created(record: Record) -> None:
    again = Record.open(record.path)
    assert (again.settings, again.run) == (record.settings, record.run)
    around = json.loads((record.path / "environment.json").read_text())
    assert around["packages"]["torch"].startswith("2.")
    assert around["settings"]["seed"] == 0


def test_a_directory_that_holds_a_run_is_refused(record: Record) -> None:
    record.append(line(1), [])
    with pytest.raises(RunDirectoryError, match="holds a run already: resume with `chase resume"):
        Record.create(record.path, small_settings())


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    assert Record.create(tmp_path, small_settings()).path == tmp_path


@pytest.mark.parametrize("name", ["nowhere", "empty", "x" * 300])
def test_a_directory_that_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        Record.open(tmp_path / name)


def test_rounds_without_their_settings_are_never_continued_as_another_run(record: Record) -> None:
    record.append(line(1), [])
    (record.path / "settings.toml").unlink()
    said = "holds the rounds of a run, but its settings.toml is missing: put that file back"
    with pytest.raises(RunDirectoryError, match=said + ", or choose another directory"):
        Record.create(record.path, small_settings(strategy="random"))
    with pytest.raises(RunDirectoryError, match=said):
        Record.open(record.path)
    assert [found["round"] for found in read_jsonl(record.path / "metrics.jsonl")] == [1]


def full_disk(path: Path, *args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_refused_run_leaves_no_directory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(RunDirectoryError, match="no space is left on the disk: free some and resume"):
        Record.create(tmp_path / "run", small_settings())
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(RunDirectoryError, match="no space"):
        Record.create(tmp_path / "mine", small_settings())
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a" / "b", b"old")
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(RunDirectoryError):
        write_atomically(tmp_path / "a" / "b", b"new")
    assert (tmp_path / "a" / "b").read_bytes() == b"old"
    assert len(list((tmp_path / "a").iterdir())) == 1, "no half-written file is left"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "no space is left on the disk"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EACCES, "no permission to write there: choose another directory with --out"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_what_the_system_refuses_becomes_one_sentence(number: int, sentence: str) -> None:
    with pytest.raises(RunDirectoryError, match=f"cannot write there: .*{sentence}"), writing(Path("there")):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_locked_is_to_be_copied(number: int, tmp_path: Path) -> None:
    """``chase resume`` has no --out."""
    with pytest.raises(RunDirectoryError, match=r"copy the directory to another place$"), writing(tmp_path / ".lock"):
        raise OSError(number, os.strerror(number))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device(tmp_path: Path, record: Record) -> None:
    (record.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunDirectoryError, match=r"cannot write .*metrics\.jsonl: no space is left on the disk"):
        record.append(line(1), [])


def test_lines_after_the_checkpoint_are_cut(record: Record) -> None:
    for round in (1, 2, 3):
        record.append(line(round), [{"round": round, "sample": s} for s in range(2)])
    record.cut_after(2)
    assert [m["round"] for m in record.metrics] == [1, 2]
    assert [s["round"] for s in record.selections] == [1, 1, 2, 2]
    record.cut_after(0)
    assert record.metrics == record.selections == []


def test_a_torn_line_is_left_out(record: Record) -> None:
    record.append(line(1), [])
    with (record.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "lab')
    assert record.metrics == [line(1)]
    record.cut_after(1)
    record.append(line(2), [])
    assert record.metrics == [line(1), line(2)]
    assert read_jsonl(record.path / "nothing.jsonl") == []


def test_metrics_that_do_not_reach_the_checkpoint_are_refused(record: Record) -> None:
    record.append(line(1), [])
    record.append(line(3), [])
    before = (record.path / "metrics.jsonl").read_bytes()
    for round in (2, 3):
        with pytest.raises(RunDirectoryError, match=f"metrics.jsonl is damaged: the checkpoint is of round {round}"):
            record.cut_after(round)
    assert (record.path / "metrics.jsonl").read_bytes() == before


def test_rounds_may_change_and_what_decides_results_may_not(record: Record) -> None:
    record.keep(record.changed({"rounds": 9}))
    assert Record.open(record.path).settings.rounds == 9
    with pytest.raises(RunDirectoryError, match=r"was begun with lr = 0\.02, not 0\.5: start a new run"):
        record.changed({"lr": 0.5})
    with pytest.raises(SettingsError, match="did you mean 'rounds'"):
        record.changed({"round": 9})
    assert Record.open(record.path).settings.lr == 0.02


def test_an_edited_settings_file_is_noticed(record: Record) -> None:
    path = record.path / "settings.toml"
    path.write_text(path.read_text().replace("\nseed = 0", "\nseed = 1"))
    with pytest.raises(RunDirectoryError, match="was begun with seed = 0, not 1"):
        Record.open(record.path)


@pytest.mark.parametrize("content", ["", "[]", '{"run": "x"}', "\xff"])
def test_a_damaged_environment_file_is_named(record: Record, content: str) -> None:
    (record.path / "environment.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunDirectoryError, match=r"environment\.json cannot be read"):
        Record.open(record.path)


def test_a_record_knows_its_kind_and_says_how_to_resume_it(tmp_path: Path) -> None:
    simulation = Record.open(Record.create(tmp_path / "one", small_settings()).path)
    federation = Record.open(Record.create(tmp_path / "fed" / "run", small_settings(), kind="federation").path)
    simulation.expect("simulation")
    federation.expect("federation")
    with pytest.raises(RunDirectoryError, match=f"run of a simulation, .*`chase resume {tmp_path / 'one'}`"):
        simulation.expect("federation")
    with pytest.raises(RunDirectoryError, match=f"run of a federation, .*`chase federation run {tmp_path / 'fed'}`"):
        federation.expect("simulation")
    (tmp_path / "fed" / "loopback.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="`chase federation up"):
        federation.expect("simulation")


def test_the_kind_of_a_directory_of_an_earlier_version_shows_by_what_is_in_it(record: Record) -> None:
    environment = record.path / "environment.json"
    environment.write_text(json.dumps({k: v for k, v in json.loads(environment.read_text()).items() if k != "kind"}))
    assert Record.open(record.path).kind == "simulation"
    (record.path / "events.jsonl").write_text("")
    assert Record.open(record.path).kind == "federation"


def test_settings_are_not_changed_while_another_process_runs_the_rounds(record: Record) -> None:
    before = (record.path / "settings.toml").read_bytes()
    other = Record.open(record.path)
    with record.held(), pytest.raises(RunHeld, match=f"another process \\(process {os.getpid()}\\)"):
        other.keep(other.changed({"rounds": 9}))
    assert (record.path / "settings.toml").read_bytes() == before
    assert other.settings.rounds != 9


def test_a_closed_form_run_begun_with_class_weights_still_opens(tmp_path: Path) -> None:
    """Earlier versions accepted the setting there, without effect."""
    run = Record.create(tmp_path / "run", small_settings(learner="closed-form", strategy="margin")).path
    for file in ("settings.toml", "environment.json"):
        old = (run / file).read_text()
        new = old.replace('class_weights = "none"', 'class_weights = "balanced"')
        new = new.replace('"class_weights": "none"', '"class_weights": "balanced"')
        (run / file).write_text(new)
        assert new != old
    assert Record.open(run).settings.class_weights == "none"
