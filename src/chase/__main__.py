"""The ``chase`` command, also as ``python -m chase``."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Importing takes a second or two, and Ctrl-C in that time is no error."""
    try:
        from chase.cli import main as start
    except KeyboardInterrupt:
        sys.exit(130)
    start()


if __name__ == "__main__":
    main()
