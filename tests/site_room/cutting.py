"""Kills ``forget``, ``add`` and the making of a site at every step in turn, each on a copy of the same directory.

    python -m site_room.cutting HOME forget|add|make

A step is a commit to the inbox, a file that is replaced and a file that is removed; a child dies before the first,
before the second, and so on, until one lives to the end. Leaves the copies as HOME-0, HOME-1, ...; prints how many
there are.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from site_room.sites import put, some, tiny_site

from chase.home.schema import Database
from chase.site import change
from chase.site.place import Site

CANARY, SHADE = "canary.txt", 201
HELD_OUT = "held-out-3"


def work(path: Path, what: str) -> None:
    if what == "make":
        tiny_site(path)
        return
    site = Site(path)
    if what == "add":
        put(site, some(2, SHADE), [CANARY, "other.txt"])
    else:
        change.forget(site, change.find(site, [CANARY, HELD_OUT]))


def die_before(step: int) -> None:
    """Let ``step`` steps pass and die before the next."""
    left = [step]

    def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return plain(*arguments, **options)

        return call

    Path.replace, Path.unlink = counted(Path.replace), counted(Path.unlink)  # type: ignore[method-assign]
    Database.commit = counted(Database.commit)  # type: ignore[method-assign]


def main(home: Path, what: str) -> None:
    for step in count():
        copy = home.with_name(f"{home.name}-{step}")
        shutil.copytree(home, copy)
        child = os.fork()
        if child == 0:
            die_before(step)
            work(copy, what)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            print(step + 1)
            return
        if ended != -signal.SIGKILL:
            raise SystemExit(f"step {step} failed by itself")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
