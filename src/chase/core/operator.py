"""Who runs this program, for the audit log."""

from __future__ import annotations

import os


def operator() -> str:
    """The user of the operating system, marked as one who types commands: people on the page have other names."""
    return f"{_user()} (command line)"


def _user() -> str:
    """As the system knows them: a variable of the environment (LOGNAME, USER) could hold any name."""
    try:
        import pwd
    except ImportError:  # Windows
        return os.getlogin()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        return f"user {os.getuid()}"
