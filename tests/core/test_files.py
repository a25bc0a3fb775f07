"""Files are whole or as they were; a lock has one holder, names it, and is freed by a kill."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chase.core.errors import LabelError, RunDirectoryError
from chase.core.files import (
    Held,
    append_jsonl,
    held_by,
    locked,
    read_jsonl,
    replacing,
    write_atomically,
    write_private,
)

HOLD = "import sys; from pathlib import Path; from chase.core.files import locked\n"
HOLD += "with locked(Path(sys.argv[1]), 'somebody'):\n    print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path, durable: bool) -> None:
    write_atomically(tmp_path / "new" / "file", b"old", durable=durable)
    write_atomically(tmp_path / "new" / "file", b"new", durable=durable)
    assert [(p.name, p.read_bytes()) for p in (tmp_path / "new").iterdir()] == [("file", b"new")]


@pytest.mark.parametrize("make", [lambda p: p.write_bytes(b"half"), lambda p: p.mkdir()])
def test_what_fails_half_way_changes_nothing(tmp_path: Path, make) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def cut_short() -> None:
        with replacing(tmp_path / "file") as temporary:
            make(temporary)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_a_refusal_is_of_the_kind_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="cannot write"):
        write_atomically(tmp_path / "file" / "below", b"")
    with pytest.raises(LabelError, match="cannot write"):
        write_atomically(tmp_path / "file" / "below", b"", refusal=LabelError)


@pytest.mark.parametrize("links", [True, False])
def test_a_private_file_is_its_owners_alone_and_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *names: (_ for _ in ()).throw(PermissionError(1, "not permitted")))
    write_private(tmp_path / "key", b"secret")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(LabelError, match="exists already: a key is not overwritten"):
        write_private(tmp_path / "key", b"other", refusal=LabelError)
    with pytest.raises(RunDirectoryError, match=r"cannot write .*No such file"):
        write_private(tmp_path / "nowhere" / "key", b"other")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("key", b"secret")]


def test_a_private_file_appears_with_all_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append((tmp_path / "key").exists()))
    write_private(tmp_path / "key", b"secret")
    assert seen == [False]  # written, and not yet under its name


def test_lines_are_appended_and_a_torn_last_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_jsonl(path, [{"a": 1}])
    append_jsonl(path, [{"a": 2}, {"a": 3}])
    with path.open("a") as file:
        file.write('{"a": ')
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_compressed_file_is_whole_or_refused_by_name(tmp_path: Path) -> None:
    path, packed = tmp_path / "lines.jsonl", tmp_path / "lines.jsonl.gz"
    whole = gzip.compress(b'{"a": 1}\n' * 500)
    packed.write_bytes(whole)
    assert read_jsonl(path) == [{"a": 1}] * 500
    packed.write_bytes(gzip.compress(b""))
    assert read_jsonl(path) == []
    spoilt = whole[:20] + bytes(8) + whole[28:]
    for content in (
        b"",
        b"plain text",
        whole[:-9],
        whole[:15],
        spoilt,
        gzip.compress(b'{"a": '),
        gzip.compress(b"\xff"),
    ):
        packed.write_bytes(content)
        with pytest.raises(RunDirectoryError, match=r"lines\.jsonl\.gz is damaged or was not copied whole"):
            read_jsonl(path)


def test_a_lock_has_one_holder_who_is_named_and_a_kill_frees_it(tmp_path: Path) -> None:
    lock = tmp_path / "place" / ".lock"
    assert held_by(lock) is None
    lock.parent.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = held_by(lock)
        assert found is not None
        assert (found.pid, found.name) == (holder.pid, "somebody")
        with pytest.raises(Held, match=f"held by process {holder.pid}"), locked(lock):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert held_by(lock) is None
    with locked(lock):
        found = held_by(lock)
        assert found is not None
        assert found.pid == os.getpid()
    assert held_by(lock) is None


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_where_nothing_can_be_locked_the_last_holder_is_told_if_it_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lock = tmp_path / ".lock"
    with locked(lock):
        pass

    def refused(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("chase.core.files.FileLock.acquire", refused)
    (tmp_path / ".lock.holder").write_text(json.dumps({"pid": os.getpid(), "name": "me"}))
    found = held_by(lock)
    assert found is not None
    assert found.name == "me"
    (tmp_path / ".lock.holder").unlink()
    assert held_by(lock) is None


def test_no_module_imports_what_only_some_systems_have() -> None:
    source = Path(sys.modules["chase"].__file__ or "").parent
    posix = re.compile(r"^(import|from) (fcntl|resource|pwd|grp|termios)\b", re.MULTILINE)
    assert [str(p) for p in source.rglob("*.py") if posix.search(p.read_text(encoding="utf-8"))] == []
    assert [str(p) for p in source.rglob("*.py") if '"/proc/{' in p.read_text(encoding="utf-8")] == []
