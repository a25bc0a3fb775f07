"""How a site's node and its worker talk: lists of byte strings over a socket pair, each with its length before it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

MOST = 4 << 30
"""Bytes that one list may hold: more is a defect, not a message."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")


def send(line: socket.socket, parts: Sequence[bytes]) -> None:
    """Send a list of byte strings."""
    line.sendall(_COUNT.pack(len(parts)))
    for part in parts:
        line.sendall(_LENGTH.pack(len(part)))
        line.sendall(part)


def receive(line: socket.socket) -> list[bytes] | None:
    """The next list; None when the other side has closed the line."""
    head = _exactly(line, _COUNT.size)
    if head is None:
        return None
    parts, total = [], 0
    for _ in range(_COUNT.unpack(head)[0]):
        size = _exactly(line, _LENGTH.size)
        total += 0 if size is None else _LENGTH.unpack(size)[0]
        if size is None or total > MOST:
            return None
        part = _exactly(line, _LENGTH.unpack(size)[0])
        if part is None:
            return None
        parts.append(part)
    return parts


def _exactly(line: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = line.recv(min(1 << 20, size - len(found)))
        if not piece:
            return None
        found += piece
    return bytes(found)
