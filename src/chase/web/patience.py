"""How long a web server waits for visitors, how many it lets in at once, and how much they can write into its log."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""A connection that has not sent a whole request header after so long is closed."""
MOST_CONNECTIONS = 200
LINES_PER_MINUTE = 10
LOGGERS = ("uvicorn.error", "asyncio")


def most_connections(most: int = MOST_CONNECTIONS) -> int:
    """As many as the process may open, with room left for files: a quarter of its descriptors, ``most`` at most."""
    try:
        import resource  # not on Windows
    except ImportError:
        return most
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if limit == resource.RLIM_INFINITY else max(16, min(most, limit // 4))


def allow_files() -> None:
    """Let this process open as many files and connections as the system allows it."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Patient(H11Protocol):
    """HTTP with a timeout for headers and a limit of connections; one too many is closed before it is read."""

    _timer: asyncio.TimerHandle | None = None
    _refused = _ended = False
    most = MOST_CONNECTIONS
    _early = b""
    """What came with the last message of a TLS handshake, before this protocol was told of the connection."""

    def connection_made(self, transport: Any) -> None:
        """Let a visitor in, or close at once."""
        if len(self.connections) >= most_connections(self.most):
            self._refused = True
            transport.abort()
            return
        if self._ended:
            return
        super().connection_made(transport)
        self._wait()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        """The visitor is gone."""
        self._stop()
        self._ended = True
        if self.transport is not None and not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the time for a header runs from its first byte."""
        if self._refused:
            return
        if self.transport is None:
            self._early += data
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop()

    def eof_received(self) -> None:
        """Nothing more comes."""

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self.transport.abort()


class FewLines(logging.Filter):
    """Lets some lines per minute through: what visitors cause must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._count = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written; the last one of a minute says that others are left out."""
        now = time.monotonic()
        if now - self._since > 60:
            self._since, self._count = now, 0
        self._count += 1
        if self._count == LINES_PER_MINUTE:
            record.msg, record.args, record.exc_info = "more lines of this minute are left out", (), None
        return self._count <= LINES_PER_MINUTE


def limit_logs() -> None:
    """Put the filter where the web server writes."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, FewLines) for one in logger.filters):
            logger.addFilter(FewLines())
