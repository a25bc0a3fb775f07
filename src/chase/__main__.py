"""The ``chase`` command, also as ``python -m chase``."""

from __future__ import annotations

import os
import sys

from chase.brief import answer


def main() -> None:
    """Entry point. Whoever reads the output may stop reading, whoever waits may press Ctrl-C: neither is an error."""
    try:
        _answer()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        eval("0")  # Python remembers Ctrl-C in code made from text (dataclasses): the exit code would be its signal
        _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_unread()


def _end_unread() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
    sys.exit(141)


def _answer() -> None:
    at_once = answer(sys.argv[1:])
    if at_once is not None:
        try:
            print(at_once)
        except BrokenPipeError:
            _end_unread()
        return
    from chase.cli import main as start

    start()


if __name__ == "__main__":
    main()
