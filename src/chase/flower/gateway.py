"""The gateway of the SuperLink, in front of Flower's own web application (plain ASGI).

    /v1/control/   starts code and registers keys, without any authentication of its own: only with the federation's
                   secret, which its directory (mode 0700) holds
    /v1/runtime/   the server's side of a run: Flower asks for a task's token, and for the executor's secret to get one
    /v1/fleet/     the sites: Flower asks for a signature; here a request must come in time and an answer must not be
                   larger than one can be, before anything of it is stored
    all the rest   403

A site's request for messages is held until the server has sent something, so that sites need not poll.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECRET = "chase-control"
WAIT = "chase-wait"
LONGEST_WAIT = 25.0
MOST_BODY = 32 << 20
"""Bytes of one request: sites send arrays in pieces of a few MB."""
IN_TIME = 60.0
"""Seconds that a site has to send the body of one request."""
EMPTY = 4
"""Bytes: a shorter answer to a request for messages holds none."""


class Refuse(Exception):
    """A request ends here, with a status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Gateway:
    """Wraps Flower's application."""

    def __init__(self, app: App, secret: str, most_answer: int) -> None:
        self._app, self._secret, self._most = app, secret.encode(), most_answer
        self._pushed: dict[bytes, int] = {}
        # bytes of each site since its last answer began
        self._latest: dict[bytes, object] = {}
        # of each site the request for messages that is held; what a node that has ended asked must take none
        self._news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._http(scope, receive, send)
        except Refuse as refusal:
            await _answer(send, refusal.status, refusal.why)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = scope["path"], {k.decode("latin-1").lower(): v for k, v in scope["headers"]}
        if path.startswith("/v1/control/"):
            if not hmac.compare_digest(headers.get(SECRET, b""), self._secret):
                raise Refuse(403, "the control API is open to the federation's own server only")
            await self._app(scope, receive, send)
        elif path.startswith("/v1/fleet/"):
            await self._fleet(path, headers, scope, receive, send)
        elif path.startswith("/v1/runtime/"):
            await self._app(scope, receive, send)
            if path.endswith(("/push-messages", "/push-object")):
                news, self._news = self._news, asyncio.Event()
                news.set()
        else:
            raise Refuse(403, "nothing is served here")

    async def _fleet(self, path: str, headers: dict[str, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        body, who = await _body(headers, receive), headers.get("flwr-public-key", b"")[:2000]
        if path.endswith("/pull-messages") and WAIT in headers:
            await self._held(who, _seconds(headers[WAIT]), body, scope, send)
        elif path.endswith("/activate-node"):
            await self._activate(who, body, scope, send)
        elif path.endswith(("/push-messages", "/push-object")):
            await self._push(path.endswith("/push-messages"), headers, body, scope, send)
        else:
            await self._app(scope, _replay(body), send)

    async def _push(self, first: bool, headers: dict[str, bytes], body: bytes, scope: Scope, send: Send) -> None:
        """A piece of an answer. What Flower refuses, for a wrong signature say, does not count."""
        who = headers.get("flwr-public-key", b"")[:2000]
        size = len(body) + (0 if first else self._pushed.get(who, 0))
        if size > self._most:
            raise Refuse(413, f"an answer is larger than the {self._most} bytes that this federation accepts")

        async def count(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] == 200:
                self._pushed[who] = size
            await send(event)

        await self._app(scope, _replay(body), count)

    async def _activate(self, who: bytes, body: bytes, scope: Scope, send: Send) -> None:
        """A node begins: a request that is still held for one before it would take this one's messages."""

        async def begin(event: Event) -> None:
            if event["type"] == "http.response.start" and event["status"] == 200:
                self._latest[who] = object()
            await send(event)

        await self._app(scope, _replay(body), begin)

    async def _held(self, who: bytes, wait: float, body: bytes, scope: Scope, send: Send) -> None:
        """Ask Flower until there is a message, the time is up or the node asks anew."""
        until, mine = time.monotonic() + wait, None
        while True:
            news, events = self._news, list[Event]()

            async def keep(event: Event, events: list[Event] = events) -> None:
                events.append(event)

            await self._app({**scope, "state": dict(scope.get("state", {}))}, _replay(body), keep)
            status = next((e["status"] for e in events if e["type"] == "http.response.start"), 500)
            size = sum(len(e.get("body", b"")) for e in events)
            left = until - time.monotonic()
            if status != 200 or size > EMPTY or left <= 0:
                break
            if mine is None:  # Flower knows the node
                mine = self._latest[who] = object()
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)
            if self._latest.get(who) is not mine:
                break
        for event in events:
            await send(event)


def _seconds(value: bytes) -> float:
    try:
        return min(LONGEST_WAIT, max(0.0, float(value)))
    except ValueError:
        return 0.0


async def _body(headers: dict[str, bytes], receive: Receive) -> bytes:
    told = headers.get("content-length", b"0")
    if not told.isdigit() or int(told) > MOST_BODY:
        raise Refuse(413, "the request is too long")
    body, more, until = bytearray(), True, time.monotonic() + IN_TIME
    while more:
        try:
            event = await asyncio.wait_for(receive(), max(0.1, until - time.monotonic()))
        except TimeoutError:
            raise Refuse(408, "the request did not come in time") from None
        if event["type"] == "http.disconnect":
            raise Refuse(400, "the request was interrupted")
        body += event.get("body", b"")
        more = bool(event.get("more_body", False))
        if len(body) > MOST_BODY:
            raise Refuse(413, "the request is too long")
    return bytes(body)


def _replay(body: bytes) -> Receive:
    """The body again, for an application behind us."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Event:
        if left:
            return left.pop()
        await asyncio.Event().wait()  # never: a disconnect is not told on
        return {"type": "http.disconnect"}

    return receive


async def _answer(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
