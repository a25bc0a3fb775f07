"""What a user may get wrong: one sentence on stderr, exit code 2, never a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import final_weights, timeless

from chase import settings
from chase.cli import main
from chase.core.files import writing
from chase.run.record import Record
from chase.run.segments import SavedState, SegmentWriter

QUICK = ("clients=3", "local_epochs=2", "rounds=2", "engine=inprocess")


class Chase:
    """The command, called as the console script calls it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["chase", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = self._capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    def refused(self, *arguments: object) -> str:
        """The one sentence of a refusal."""
        code, _, said = self(*arguments)
        assert code == 2, said
        assert said.startswith("chase: ")
        assert said.count("\n") == 1, said
        assert "Traceback" not in said
        return said.strip()


@pytest.fixture
def chase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Chase:
    monkeypatch.chdir(tmp_path)
    return Chase(monkeypatch, capsys)


def quick(*more: str) -> list[str]:
    return [part for pair in (*QUICK, *more) for part in ("--set", pair)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["chase", "run", "digits", "--out", str(out), *quick()])
        with pytest.raises(SystemExit):
            main()
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to harm."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digit"], "unknown preset 'digit'; did you mean 'digits'? known: "),
        (["nowhere.toml"], "cannot read settings file nowhere.toml: No such file or directory"),
        (["digits", "--strategy", "chse"], "unknown strategy 'chse'; did you mean 'chase'? known: "),
        (["digits", "--strategy", "nowhere:Thing"], "strategy 'nowhere:Thing': cannot import 'nowhere'"),
        (["digits", "--set", "round=3"], "unknown setting 'round'; did you mean 'rounds'? `chase list settings`"),
        (["digits", "--out", ""], "'--out' / '-o': the path is empty; give a name, or . for the current directory"),
        (["digits", "--set", "rounds"], "--set takes key=value, not 'rounds'"),
        (["digits", "--set", "rounds=0"], "rounds = 0 is invalid: input should be greater than or equal to 1"),
        (["digits", "--set", "beta=2"], "beta = 2 is invalid: input should be less than or equal to 1"),
        (["digits", "--set", "rounds=soon"], "rounds = 'soon' is invalid: input should be a valid integer"),
        (["digits", "--set", "lr=nan"], "lr = nan is invalid"),
        (["digits", "--set", "local_epochs=1"], "local_epochs = 1, but epistemic variation compares epochs and needs"),
        (["digits", "--set", "data=digit"], "did you mean 'digits'?"),
        (["digits", "--set", "net=tiny"], "unknown net 'tiny'; did you mean 'tiny-cnn'?"),
        (["digits", "--set", "classes_per_client=11"], "classes_per_client = 11, but the data has 10 classes"),
        (["digits", "--set", "clients=9000"], "clients would get no sample"),
    ],
)
def test_a_run_that_cannot_be_is_refused_and_leaves_nothing(chase: Chase, arguments: list[str], sentence: str) -> None:
    assert sentence in chase.refused("run", *arguments)
    assert list(Path.cwd().iterdir()) == []


def test_an_option_that_was_renamed_is_told_by_its_new_name(chase: Chase) -> None:
    assert "--agreement is now called --contract" in chase.refused(
        "site", "init", "home", "--data", "x", "--id", "a", "--agreement", "contract.json"
    )


def test_a_settings_file_that_is_no_toml_is_named(chase: Chase) -> None:
    Path("mine.toml").write_text("rounds = = 3")
    assert "mine.toml is not valid TOML" in chase.refused("run", "mine.toml")


def test_the_console_script_itself_ends_with_two(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from chase.cli import main; main()", "run", "digit"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert done.stderr.startswith("chase: unknown preset 'digit'; did you mean 'digits'?")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_directory_that_holds_a_run_is_not_written_over(chase: Chase, run: Path) -> None:
    before = (run / "settings.toml").read_bytes()
    assert f"{run} holds a run already: resume with `chase resume {run}`" in chase.refused(
        "run", "digits", "--out", run
    )
    assert (run / "settings.toml").read_bytes() == before


@pytest.mark.parametrize("name", ["nowhere", ".", "notes.txt", "x" * 300])
def test_a_directory_that_is_no_run_cannot_be_gone_on_with(chase: Chase, name: str) -> None:
    Path("notes.txt").write_text("not a run")
    assert f"{name} is not a run directory" in chase.refused("resume", name)


@pytest.mark.parametrize("command", [["resume"], ["report"], ["study", "export"], ["study", "publish"], ["watch"]])
def test_an_empty_path_is_not_the_current_directory(chase: Chase, command: list[str]) -> None:
    assert "the path is empty" in chase.refused(*command, "", *(["--out", "x"] if "export" in command else []))


@pytest.mark.parametrize("command", ["show", "report", "export", "watch"])
def test_a_name_that_is_too_long_is_no_traceback(chase: Chase, command: str) -> None:
    assert "x" * 300 in chase.refused(command, "x" * 300)


def test_a_run_does_not_go_on_with_other_settings(chase: Chase, run: Path) -> None:
    said = chase.refused("resume", run, "--set", "lr=0.5")
    assert "was begun with lr = 0.02, not 0.5: start a new run for that" in said
    assert "unknown setting 'round'" in chase.refused("resume", run, "--set", "round=3")
    settings = run / "settings.toml"
    settings.write_text(settings.read_text().replace('strategy = "chase"', 'strategy = "ev"'))
    assert "was begun with strategy = 'chase', not 'ev'" in chase.refused("resume", run)


def test_a_run_may_be_made_longer(chase: Chase, run: Path) -> None:
    code, said, complained = chase("resume", run, "--set", "rounds=3")
    assert (code, complained) == (0, "")
    assert "all 3 rounds done" in said
    assert len(Record.open(run).metrics) == 3


def test_a_damaged_checkpoint_falls_back_with_a_note(chase: Chase, run: Path, finished: Path) -> None:
    next((run / "checkpoint").glob("000002-*.states")).write_bytes(b"rust")
    code, said, complained = chase("resume", run)
    assert (code, complained) == (0, "")
    joined = " ".join(said.split())
    assert "note: " in joined
    assert ".states is damaged (it ends early); continuing from the previous checkpoint" in joined
    assert timeless(Record.open(run).metrics) == timeless(Record.open(finished).metrics)
    assert final_weights(run) == final_weights(finished)


def test_two_damaged_checkpoints_name_the_files(chase: Chase, run: Path) -> None:
    for round in (1, 2):
        (run / "checkpoint" / f"server-{round:06d}.safetensors").write_bytes(b"rust")
    said = chase.refused("resume", run)
    assert "no complete checkpoint is left" in said
    assert "server-000001.safetensors is damaged" in said
    assert "server-000002.safetensors is damaged" in said


def test_finished_rounds_are_not_lost_to_a_checkpoint_that_is_gone(chase: Chase, run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    assert "checkpoint is missing, but 2 rounds were done: restore it" in chase.refused("resume", run)
    assert len(Record.open(run).metrics) == 2


def test_a_run_cannot_be_made_shorter_than_it_is(chase: Chase, run: Path) -> None:
    said = chase.refused("resume", run, "--set", "rounds=1")
    assert f"rounds = 1, but {run} has 2 rounds done: set that many or more" in said
    assert Record.open(run).settings.rounds == 2


def test_metrics_that_are_gone_are_noticed(chase: Chase, run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert "metrics.jsonl is damaged: the checkpoint is of round 2, but only 0 lines" in chase.refused("resume", run)


def test_a_place_where_nothing_can_be_written(chase: Chase) -> None:
    Path("file").write_text("in the way")
    said = chase.refused("run", "digits", "--out", "file/run", *quick())
    assert "cannot write file/run: Not a directory" in said
    assert "cannot write file: File exists" in chase.refused("run", "digits", "--out", "file", *quick())
    assert "File name too long" in chase.refused("run", "digits", "--out", "x" * 300, *quick())


@contextmanager
def nobody() -> Iterator[None]:
    """As a user whom permission bits bind, which they do not for root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.usefixtures("finished")  # what is imported late is imported then, while files can still be read
def test_no_permission_to_write(chase: Chase, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    with nobody():
        if not os.access(settings.__file__, os.R_OK, effective_ids=True):
            pytest.skip("this copy of chase is in a directory that other users cannot read")
        said = chase.refused("run", "digits", "--out", closed / "run", *quick())
    assert f"cannot write {closed / 'run'}: no permission to write there: choose another directory with --out" in said


def test_no_space_on_the_disk_in_the_middle_of_a_run(
    chase: Chase, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SegmentWriter.add
    states: list[int] = []

    def full(self: SegmentWriter, blob: bytes, round: int) -> SavedState:
        states.append(round)
        if states.count(2) == 2:  # the second client's state in round 2
            with writing(self.path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(self, blob, round)

    out = tmp_path / "full"
    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "add", full)
        said = chase.refused("run", "digits", "--out", out, *quick())
    assert said.startswith("chase: client 1, round 2, saving: cannot write ")
    assert said.endswith(".states: no space is left on the disk: free some and resume")
    assert chase("resume", out)[0] == 0
    assert timeless(Record.open(out).metrics) == timeless(Record.open(finished).metrics)
    assert final_weights(out) == final_weights(finished)


def test_no_space_for_the_first_file_leaves_no_directory(
    chase: Chase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    assert "no space is left on the disk" in chase.refused("run", "digits", "--out", tmp_path / "run", *quick())
    assert not (tmp_path / "run").exists()
