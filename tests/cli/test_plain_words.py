"""What people named is shown as they named it, in any terminal, and commands may be copied as they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from chase.cli import compare, progress
from chase.cli.coverage import coverage_table
from chase.cli.terminal import print_table
from chase.core.errors import RunDirectoryError, SettingsError
from chase.core.text import counted, quoted
from chase.data.coverage import coverage
from chase.export.trained import read_trained
from chase.report.tables import ReportTable
from chase.run.comparison import plan_arms
from chase.settings import load

CHASE = [sys.executable, "-m", "chase"]
TRAP = "7 [acute] [/x] :smile:"


def test_brackets_and_colons_stand_in_every_part_of_a_table() -> None:
    paper = StringIO()
    table = ReportTable((f"column {TRAP}", "figure"), [[f"cell {TRAP}", 1]], f"title {TRAP}", text_columns=1)
    print_table(table, Console(file=paper, width=200))
    for part in ("title", "column", "cell"):
        assert f"{part} {TRAP}" in paper.getvalue()


def test_brackets_stand_in_the_name_of_a_client() -> None:
    paper, rows = StringIO(), [np.zeros(1, np.int64)]
    table = coverage_table(coverage(np.zeros(1, np.int64), ("[a]",), rows, rows, names=("ward [/north]",)))
    Console(file=paper, width=200).print(table)
    assert "ward [/north]" in paper.getvalue()
    assert "\\" not in paper.getvalue()


def test_a_line_about_a_run_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    progress.RunProgress(load("digits")).say(TRAP)
    assert capsys.readouterr().out.strip() == TRAP


def rows(file: Path, *labels: str) -> Path:
    lines = [f"{60 + number},{label}" for number, label in enumerate(labels * 8)]
    file.write_text("\n".join(["pulse [/min],verdict", *lines]) + "\n")
    return file


def test_own_data_with_brackets_is_inspected(chase, tmp_path: Path) -> None:
    file = rows(tmp_path / "units.csv", "sick [acute]", "well [/x]")
    shown = chase("data", "inspect", file, "--set", "label_column=verdict")
    assert shown.code == 0
    assert all(text in shown.out for text in ("1 column (pulse [/min]), 2 classes", "sick [acute] ", "well [/x] "))
    assert "\\" not in shown.out


def test_one_class_is_singular(chase, tmp_path: Path) -> None:
    shown = chase("data", "inspect", rows(tmp_path / "one.csv", "sick"), "--set", "label_column=verdict")
    assert "1 class\n" in shown.out
    assert (counted(1, "class", "classes"), counted(0, "class", "classes")) == ("1 class", "0 classes")
    assert (counted(1, "sample"), counted(2, "sample")) == ("1 sample", "2 samples")


def test_a_picture_in_a_directory_with_brackets_is_one_row(chase, run_dir: Path, tmp_path: Path) -> None:
    picture = tmp_path / "p[/x]" / "7.png"
    picture.parent.mkdir(parents=True)
    Image.new("L", (8, 8)).save(picture)
    shown = chase("predict", run_dir, picture)
    assert shown.code == 0
    assert "p[/x]" in "".join(shown.out.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", ["watch", "show"])
def test_a_terminal_without_utf_8_shows_what_it_can(run_dir: Path, command: str, encoding: str) -> None:
    around = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([*CHASE, command, str(run_dir)], capture_output=True, env=around, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if command == "watch":
        bars = done.stdout.decode(encoding).splitlines()[0].split()[-1]
        assert set(bars) <= set("_.-:=+*#")


def test_a_name_outside_the_encoding_is_no_traceback(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "läuft▁").symlink_to(trained)
    around = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*CHASE, "watch", str(tmp_path)], capture_output=True, env=around, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"l?uft?" in done.stdout


def test_paths_in_commands_are_quoted() -> None:
    assert quoted(Path("c d")) == "'c d'"
    assert quoted("it's") == "'it'\"'\"'s'"
    assert quoted(Path("plain/one")) == "plain/one"
    assert quoted(Path("-x")) == "./-x"


def test_a_comparison_that_was_stopped_says_a_command_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopped:
        notes = ()

        def run(self, _after: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(compare, "open_arm", lambda _out, _arm: Stopped())
    arm = plan_arms(load("digits").model_dump(), ["random"], [0])[0]
    with pytest.raises(BaseException, match="130"):
        compare.run_arm(arm, tmp_path / "c d", "title", as_json=False)
    assert f"chase resume '{tmp_path}/c d'" in capsys.readouterr().out


def test_show_and_export_say_commands_to_copy(chase, run_dir: Path, tmp_path: Path) -> None:
    here = run_dir.rename(tmp_path / "c d")
    assert f"chase report '{here}'" in chase("show", here).out
    above = tmp_path / "several runs"
    above.mkdir()
    here.rename(above / "one")
    refused = chase("show", above)
    assert refused.code == 2
    assert f"`chase report '{above}'`" in refused.err


def test_an_untrained_run_says_a_command_to_copy(run_dir: Path, tmp_path: Path) -> None:
    path = run_dir.rename(tmp_path / "c d")
    shutil.rmtree(path / "checkpoint")
    with pytest.raises(RunDirectoryError) as refused:
        read_trained(path)
    assert f"`chase resume '{path}'`" in str(refused.value)


def test_a_method_that_is_named_twice_with_a_space_is_refused(chase, tmp_path: Path) -> None:
    refused = chase("run", "digits", "--strategy", "chase, chase", "--out", tmp_path / "both")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "method 'chase' is named twice" in refused.err
    assert not (tmp_path / "both").exists()
    with pytest.raises(SettingsError, match="named twice"):
        plan_arms({}, ["ev", " ev "], [0])


def test_a_list_is_found_in_any_case(chase) -> None:
    assert chase("list", "Strategies").out == chase("list", "strategies").out != ""
    assert chase("list", "LR").out == chase("list", "lr").out != ""
    assert chase("list", "Models").out == chase("list", "networks").out != ""


def test_a_reader_that_stops_early_ends_the_command_with_141(tmp_path: Path) -> None:
    changes = [f"--set={one}" for one in ("rounds=30", "clients=3", "engine=inprocess")]
    command = [*CHASE, "run", "digits", *changes, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == b""
