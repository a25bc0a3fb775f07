"""The ``chase`` command, also as ``python -m chase``."""

from __future__ import annotations

import sys

from chase.brief import answer


def main() -> None:
    """Entry point. Importing takes a second or two, and Ctrl-C in that time is no error."""
    at_once = answer(sys.argv[1:])
    if at_once is not None:
        print(at_once)
        return
    try:
        from chase.cli import main as start
    except KeyboardInterrupt:
        sys.exit(130)
    start()


if __name__ == "__main__":
    main()
