"""TLS of a web server: a connection counts from its first moment, and ends its handshake within seconds or is closed.

The web server's own TLS tells a protocol of a connection after its handshake only, so that silent visitors would hold
connections that nobody counts.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, ClassVar

from chase.web import patience

HANDSHAKE_SECONDS = 10.0


class Door(asyncio.Protocol):
    """A connection before its handshake, one of the server's; ``Patient`` speaks to the visitor afterwards."""

    context: ClassVar[ssl.SSLContext]
    most: ClassVar[int] = patience.MOST_CONNECTIONS

    def __init__(self, **about: Any) -> None:
        self._inner = patience.Patient(**about)
        self._inner.most = self.most
        self._connections: set[Any] = self._inner.connections
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or close at once."""
        assert isinstance(transport, asyncio.Transport)
        if len(self._connections) >= patience.most_connections(self.most):
            transport.abort()
            return
        transport.pause_reading()  # the first bytes are the handshake's
        self._transport = transport
        self._connections.add(self)
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
            self._connections.discard(self)
        if secured is None or secured.is_closing():
            transport.abort()
            return
        self._inner.connection_made(secured)

    def shutdown(self) -> None:
        """The server ends: nobody waits for a handshake."""
        if self._transport is not None:
            self._transport.abort()


def door(cert: Path, key: Path | None, most: int = patience.MOST_CONNECTIONS) -> type[Door]:
    """The protocol of a web server with this certificate and so many connections at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return type("TlsDoor", (Door,), {"context": context, "most": most})
