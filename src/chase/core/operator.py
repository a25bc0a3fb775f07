"""Who runs this program, for the audit log."""

from __future__ import annotations

import getpass
import os


def operator() -> str:
    """The user of the operating system, marked as one who types commands: people on the page have other names."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number that has no name
        name = f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown user"
    return f"{name} (command line)"
