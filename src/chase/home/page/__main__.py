"""The page's own process: ``python -m chase.home.page HOME FD PARENT ADDRESS``. It never loads torch."""

from __future__ import annotations

import json
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from chase.home.page.serving import Address, serve_socket


def main(arguments: list[str]) -> None:
    """Serve a home on a socket that another process has bound; ends with the parent where one is named."""
    home, descriptor, parent, address = arguments
    if int(parent):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then ends this
    with socket.socket(fileno=int(descriptor)) as listening, suppress(KeyboardInterrupt):
        serve_socket(Path(home), Address.from_json(json.loads(address)), listening, int(parent))


main(sys.argv[1:])
