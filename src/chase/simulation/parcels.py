"""What travels between an engine and its Ray actors, cut so that Ray sends it with the call itself.

Ray puts every argument and every result above 100 KB into the object store of a node, and another node fetches it from
there: about ten processor milliseconds for one result, whatever its size up to a megabyte. What is smaller travels with
the call: one millisecond. So a message of up to ``MOST`` pieces goes as several arguments or results, each small.
Larger ones are left to the object store, which is made for them.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

PIECE = 90_000
"""Bytes of a piece: below Ray's limit of 100 KB with its own header."""
MOST = 24
"""Pieces of a message that is cut; beyond, the object store is no dearer."""

ALIGN = 16
"""Arrays begin at a multiple of it, so that they can be used where they are."""


def pieces_for(size: int) -> int:
    """In how many pieces an answer of about this size should come; 0 means: not cut."""
    count = -(-size // PIECE) or 1
    return count if count <= MOST else 0


def pack(value: Any) -> bytes:
    """A value as bytes, its arrays copied once."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts: list[bytes | memoryview] = [head, *(buffer.raw() for buffer in buffers)]
    sizes = [len(part) for part in parts]
    start = struct.pack(f"<Q{len(sizes)}Q", len(sizes), *sizes)
    return b"".join(piece for part in (start, *parts) for piece in (part, bytes(-len(part) % ALIGN)))


def unpack(blob: bytes) -> Any:
    """What ``pack`` packed; arrays are views of the bytes and cannot be written to."""
    (count,) = struct.unpack_from("<Q", blob)
    at, view, parts = _aligned(8 + 8 * count), memoryview(blob), []
    for size in struct.unpack_from(f"<{count}Q", blob, 8):
        parts.append(view[at : at + size])
        at += _aligned(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def cut(blob: bytes, count: int) -> tuple[bytes, ...]:
    """Bytes in exactly so many pieces of about one size."""
    size = max(1, -(-len(blob) // count))
    return tuple(blob[at * size : (at + 1) * size] for at in range(count))


def joined(pieces: Sequence[bytes]) -> bytes:
    """The bytes that were cut."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def answer(value: Any, count: int) -> Any:
    """A result as the caller asked for it: in so many pieces, or whole (0)."""
    if count == 0:
        return value
    pieces = cut(pack(value), count)
    return pieces[0] if count == 1 else pieces


def answered(found: Any) -> Any:
    """The value of a result, whichever way it came."""
    if isinstance(found, bytes):
        return unpack(found)
    return unpack(joined(found)) if isinstance(found, list) else found
