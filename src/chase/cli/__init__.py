"""The command line. Errors that are the user's to mend become one sentence and exit code 2."""

from chase.cli.main import main

__all__ = ["main"]
