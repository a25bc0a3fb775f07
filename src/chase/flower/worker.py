"""The process at a site that computes: it answers one message after another with the chase that is installed here.

Its node starts it (``chase.flower.node``), hands it the objects of a message and gets those of the answer. It has no
network of its own, and nothing that came over the network is ever run.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from chase.flower import node_messages
from chase.flower.client_app import answer
from chase.flower.packing import pack_message, read_message


def work(line: socket.socket, home: Path) -> None:
    """Reply messages until the node closes the line."""
    while (parts := node_messages.receive(line)) is not None:
        contents = {parts[i].decode(): parts[i + 1] for i in range(1, len(parts), 2)}
        message = read_message(parts[0].decode(), contents)
        del parts, contents
        node_messages.send(line, pack_message(answer(message, home)))


if __name__ == "__main__":
    try:
        with socket.socket(fileno=int(sys.argv[2])) as inherited:
            work(inherited, Path(sys.argv[1]))
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        os._exit(0)  # the node has gone
