"""The ``chase`` command, also as ``python -m chase``."""

from __future__ import annotations

import os
import sys

from chase.brief import answer


def main() -> None:
    """Entry point. Whoever reads the output may stop reading: that is no error to tell of."""
    try:
        _answer()
    finally:
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
    """Importing takes a second or two, and Ctrl-C in that time is no error."""
    at_once = answer(sys.argv[1:])
    if at_once is not None:
        try:
            print(at_once)
        except BrokenPipeError:
            _end_unread()
        return
    try:
        from chase.cli import main as start
    except KeyboardInterrupt:
        sys.exit(130)
    start()


if __name__ == "__main__":
    main()
