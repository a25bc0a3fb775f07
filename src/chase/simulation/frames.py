"""Frames between an engine and its worker processes: a JSON header and a safetensors blob, never pickle."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from chase.core.weights import Array, Arrays, from_bytes, to_bytes

_SIZES = struct.Struct("<II")

Frame = tuple[dict[str, Any], dict[str, Array]]


class Gone(Exception):
    """The other side has closed its end."""


def send(line: socket.socket, header: dict[str, Any], arrays: Arrays | None = None) -> None:
    """Send one frame; a side that has gone is reported as ``Gone``."""
    head = json.dumps(header).encode()
    blob = to_bytes(arrays) if arrays else b""
    try:
        line.sendall(_SIZES.pack(len(head), len(blob)) + head)
        if blob:
            line.sendall(blob)
    except (BrokenPipeError, ConnectionResetError):
        raise Gone from None


def receive(line: socket.socket) -> Frame:
    """The next frame, waited for."""
    head_size, blob_size = _SIZES.unpack(_exactly(line, _SIZES.size))
    header = json.loads(bytes(_exactly(line, head_size)))
    arrays = from_bytes(_exactly(line, blob_size)) if blob_size else {}
    return header, arrays


def _exactly(line: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view, at = memoryview(buffer), 0
    while at < size:
        try:
            got = line.recv_into(view[at:])
        except ConnectionResetError:
            raise Gone from None
        if got == 0:
            raise Gone
        at += got
    return buffer
