"""Workers that are forked from the process of the tests, which has imported torch already: they start at once.

For tests of what workers compute. That a new interpreter can be one is tested in ``simulation/test_engines``,
``library`` and ``e2e``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from chase.simulation import worker


class Forked:
    """What the engine uses of ``subprocess.Popen``."""

    def __init__(self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], stdin: int) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "chase.simulation.worker"]
        assert stdin == subprocess.DEVNULL
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: of threads that do not matter
            self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become(list(command[2:]), sorted(pass_fds), env)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)

    def _become(self, arguments: list[str], kept: list[int], env: Mapping[str, str]) -> None:
        for first, last in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(first + 1, last)
        os.environ.update(env)
        sys.argv = arguments
        worker.main()

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


SUBPROCESS: Any = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)
"""The names of the module ``subprocess`` that the engine uses."""
