"""A reverse proxy that lets the sites through and nobody else: ``/v1/fleet/`` is passed on, all the rest is 403.

The SuperLink's one port also serves a control API without authentication, which starts code at every site. So
the SuperLink stays on loopback, and this (or nginx, see docs/deploy.md) is what other machines reach.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chase.web.patience import allow_files
from chase.web.tls import door

PREFIX = "/v1/fleet/"
MOST_BYTES = 32 << 20
"""A request with a longer body is refused: nodes send arrays in pieces of 5 MB."""
HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"})
"""Headers that belong to one leg of the way."""
SILENCE = 60.0
"""Seconds that the body of a request may pause."""
LEAST_RATE = 4096
"""Bytes per second that a body must come with on average, after the first ``SILENCE``: a slow line has time."""
MOST_HELD = 512 << 20
"""Bytes of requests in memory at once: beyond it a request is answered with 503, and its site tries again."""
MOST_CONNECTIONS = 4000
"""Connections at once: a site holds two or three."""
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]


def allowed(raw_path: bytes) -> bool:
    """Whether a path, as it came over the wire, is the sites' own and means nothing else to another reader."""
    try:
        path = raw_path.partition(b"?")[0].decode("ascii")
    except UnicodeDecodeError:
        return False
    odd = any(mark in path for mark in ("..", "//", "%", "\\", ";"))
    return path.startswith(PREFIX) and not odd


class TooLong(Exception):
    """A body is longer than any that a site sends."""


class Ends(Exception):
    """The proxy is being stopped."""


class Full(Exception):
    """Other requests hold as much memory as there is for all."""


class Bodies:
    """The bodies that are in memory, all together."""

    def __init__(self) -> None:
        self.total = 0

    @contextmanager
    def __call__(self) -> Iterator[Body]:
        """Room for one body, given back at the end."""
        body = Body(self)
        try:
            yield body
        finally:
            self.total -= body.size


class Body:
    """One of them."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.size = bodies, 0

    async def body(self, request: Request) -> bytes:
        """The whole body; one that pauses or crawls, is too long or finds no room is given up."""
        clock, chunks = asyncio.get_running_loop().time, request.stream()
        began, parts = clock(), bytearray()
        while True:
            try:
                chunk = await asyncio.wait_for(anext(chunks), SILENCE)
            except StopAsyncIteration:
                return bytes(parts)
            self.size += len(chunk)
            self._bodies.total += len(chunk)
            parts += chunk
            if self.size > MOST_BYTES:
                raise TooLong
            if self._bodies.total > MOST_HELD:
                raise Full
            if clock() - began > SILENCE + self.size / LEAST_RATE:
                raise TimeoutError


class FleetProxy:
    """Passes the sites' requests on to the SuperLink."""

    def __init__(self, upstream: str, trust: Path) -> None:
        self.held, self._ends = Bodies(), False
        self._open = set[asyncio.Task[httpx.Response]]()
        verify = ssl.create_default_context(cafile=str(trust))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(
            base_url=upstream, verify=verify, timeout=120.0, limits=limits, trust_env=False
        )

    def app(self) -> Starlette:
        """The web application."""
        return Starlette(routes=[Route("/{path:path}", self.handle, methods=METHODS)], lifespan=self.life)

    @asynccontextmanager
    async def life(self, _app: Starlette) -> AsyncIterator[None]:
        """Connections to the SuperLink are closed when the web server ends."""
        async with self._client:
            yield

    def end(self) -> None:
        """Keep no site waiting: a node's request for messages is held by the SuperLink for up to 25 s."""
        self._ends = True
        for task in self._open:
            task.cancel()

    async def handle(self, request: Request) -> Response:
        """One request."""
        if request.method != "POST" or not allowed(request.scope.get("raw_path", b"")):
            return PlainTextResponse("only the sites of this federation are served\n", status_code=403)
        told = request.headers.get("content-length", "0")
        if not told.isdecimal() or int(told) > MOST_BYTES:
            return PlainTextResponse("the request is too long\n", status_code=413)
        try:
            with self.held() as held:
                answer = await self._until_the_end(request, await held.body(request))
        except TimeoutError:
            return PlainTextResponse("the request did not come in time\n", status_code=408)
        except TooLong:
            return PlainTextResponse("the request is too long\n", status_code=413)
        except Ends:
            return PlainTextResponse("the server ends\n", status_code=503)
        except Full:
            return PlainTextResponse("the server is busy\n", status_code=503)
        except httpx.TransportError:
            return PlainTextResponse("the server does not answer\n", status_code=503)  # nodes try again on 503
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in (HOP | {"content-encoding"})}
        return Response(answer.content, answer.status_code, headers)

    async def _until_the_end(self, request: Request, body: bytes) -> httpx.Response:
        if self._ends:
            raise Ends
        task = asyncio.ensure_future(self.pass_on(request, body))
        self._open.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._ends and task.cancelled():
                raise Ends from None
            task.cancel()
            raise
        finally:
            self._open.discard(task)

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        """The request at the SuperLink."""
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in HOP]
        return await self._client.request(request.method, request.url.path, headers=headers, content=body)


class ProxyServer(uvicorn.Server):
    """A web server that ends without waiting for the sites' requests."""

    def __init__(self, config: uvicorn.Config, proxy: FleetProxy) -> None:
        super().__init__(config)
        self._proxy = proxy

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._proxy.end()
        await super().shutdown(sockets)


def server(proxy: FleetProxy, host: str, port: int, certificate: Path, key: Path) -> uvicorn.Server:
    """The proxy's web server: who connects and says nothing, in TLS or afterwards, is closed after seconds."""
    allow_files()
    config = uvicorn.Config(
        proxy.app(),
        host=host,
        port=port,
        http=door(certificate, key, MOST_CONNECTIONS),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        loop="asyncio",  # others begin TLS on an open connection differently
        timeout_graceful_shutdown=5,
    )
    return ProxyServer(config, proxy)
