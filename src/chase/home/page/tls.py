"""TLS of the page: a connection is counted from its first moment, and ends its handshake within seconds or is closed.

The web server's own TLS tells a protocol of a connection after its handshake only, so that silent visitors would hold
connections that nobody counts.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, ClassVar

from chase.home.page import patience

HANDSHAKE_SECONDS = 10.0


class Door(asyncio.Protocol):
    """A connection before its handshake; ``Patient`` speaks to the visitor afterwards."""

    context: ClassVar[ssl.SSLContext]
    waiting: ClassVar[set[Door]]

    def __init__(self, **about: Any) -> None:
        self._inner = patience.Patient(**about)
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or close at once."""
        assert isinstance(transport, asyncio.Transport)
        if len(self.waiting) + len(self._inner.connections) >= patience.most_connections():
            transport.abort()
            return
        transport.pause_reading()  # the first bytes are the handshake's
        self.waiting.add(self)
        self._task = self._inner.loop.create_task(self._greet(transport))

    async def _greet(self, transport: asyncio.Transport) -> None:
        try:
            secured = await self._inner.loop.start_tls(
                transport,
                self._inner,
                self.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except (OSError, ssl.SSLError):  # not TLS, another certificate expected, silent for too long, or gone
            transport.abort()
            return
        finally:
            self.waiting.discard(self)
        if secured is None or secured.is_closing():
            transport.abort()
            return
        self._inner.connection_made(secured)


def door(cert: Path, key: Path | None) -> type[Door]:
    """The protocol of a page with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return type("PageDoor", (Door,), {"context": context, "waiting": set()})
