from __future__ import annotations

import os
import subprocess
import sys
from threading import Event

from chase.core.processes import end_with_parent, group_lives, is_same, memory_of, started


def test_a_process_is_told_from_another_with_its_id() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    since = started(child.pid)
    assert since > 0
    assert is_same(child.pid, since)
    assert not is_same(child.pid, since - 3600)
    assert not is_same(child.pid, 0)
    assert group_lives(child.pid)
    assert memory_of(child.pid) > 0
    child.kill()
    child.wait()
    if child.stdin is not None:
        child.stdin.close()
    assert started(child.pid) == 0.0
    assert not is_same(child.pid, since)
    assert not group_lives(child.pid)
    assert memory_of(child.pid) == 0


def test_the_end_of_a_pipe_is_noticed_in_the_middle_of_anything() -> None:
    ended, (read, write) = Event(), os.pipe()
    end_with_parent(read, ended.set)
    os.write(write, b"still here")
    assert not ended.wait(0.05)
    os.close(write)
    assert ended.wait(5)
    os.close(read)
