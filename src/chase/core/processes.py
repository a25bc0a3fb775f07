"""Processes that do not outlive the one that started them, and telling one process from another.

Two ways to end with a parent, however it ended: our own programs hold the reading end of a pipe whose writing end only
the parent has; foreign programs are told by the system, on Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

SAME_START = 60.0
"""Seconds by which the start of one process may seem to differ after the clock was set."""


def end_with_parent(pipe: int, end: Callable[[], None]) -> None:
    """Call ``end`` as soon as the parent's end of a pipe closes, whatever this process is doing."""

    def watch() -> None:
        while os.read(pipe, 1024):  # what may come through it does not matter
            pass
        end()

    threading.Thread(target=watch, daemon=True).start()


def ask_to_be_told() -> None:
    """In a child that becomes a foreign program: be told by SIGTERM when the parent dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started here never get Ctrl-C, which is for the parent: it ends them. Also while they import.

    A blocked signal stays blocked in a program that is started; a function between fork and start would not be safe
    in a caller with threads.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def started(pid: int) -> float:
    """When a process was started, in seconds since 1970; 0 if there is none. Tells it from a successor of its id."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0.0
    except psutil.AccessDenied:  # of another user, which we never start
        return 0.0


def is_same(pid: int, since: float) -> bool:
    """Whether the process that was started then still runs under this id."""
    now = started(pid)
    return bool(since and now) and abs(now - since) < SAME_START


def group_lives(group: int) -> bool:
    """Whether any process of a group is left, those that only wait to be reaped apart."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                return True
        except (ProcessLookupError, PermissionError):
            continue
    return False


def memory_of(pid: int) -> int:
    """Bytes that a process holds; 0 where it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
