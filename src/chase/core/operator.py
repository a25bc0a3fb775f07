"""Who runs this program: for the audit log, and so that nobody leaves files that their owner cannot change."""

from __future__ import annotations

import os
from pathlib import Path

from chase.core.errors import ChaseError


def operator() -> str:
    """The user of the operating system, marked as one who types commands: people on the page have other names."""
    return f"{_user()} (command line)"


def check_owner(path: Path, refusal: type[ChaseError]) -> None:
    """Refuse to work in another user's directory, root too: what it writes there, the owner could not change."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return  # it is missing or closed to this user, which is told elsewhere
    if hasattr(os, "getuid") and owner != os.getuid():
        raise refusal(
            f"{path} belongs to {_name(owner)}, and this command was started by {_name(os.getuid())}: "
            f"run it as {_name(owner)} (`sudo -u {_as_sudo(owner)} -H ...`)"
        )


def _as_sudo(number: int) -> str:
    """A user as ``sudo`` takes one."""
    name = _name(number)
    return f"'#{number}'" if name == f"user {number}" else name


def _user() -> str:
    """As the system knows them: a variable of the environment (LOGNAME, USER) could hold any name."""
    return _name(os.getuid()) if hasattr(os, "getuid") else os.getlogin()  # the latter on Windows


def _name(number: int) -> str:
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run under a number that has no name
        return f"user {number}"
