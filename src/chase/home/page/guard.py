"""Refusals before anything is looked up: wrong host, cross-site, oversized and malformed requests.

Nothing on the page comes from elsewhere and nothing goes elsewhere; the headers tell the browser to
hold it to that. The checks do not depend on the cookie alone: a request that changes anything must come from the
page's own origin, as JSON, within a size limit.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
NUMBER = re.compile("[0-9]{1,16}")
"""A number in an address: short enough for the database."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


HSTS = "max-age=31536000"
BODY_SECONDS = 10.0
"""A request whose body has not arrived after so long is refused."""


class RequestRefused(Exception):
    """A request that is turned away, with the status and the sentence that say why."""

    def __init__(self, status: int, message: str, kind: str = "") -> None:
        self.status, self.kind = status, kind
        super().__init__(message)


def refusal(status: int, message: str, kind: str = "") -> JSONResponse:
    """The answer to a refused request."""
    return JSONResponse({"error": message, "kind": kind}, status)


class Guard:
    """Stands before the app."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], scheme: str) -> None:
        self._app, self._hosts, self._scheme = app, frozenset(hosts), scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the security headers added to the response."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._scheme == "https":
                    headers.setdefault("strict-transport-security", HSTS)
            await send(message)

        try:
            self._check(scope["method"], Headers(scope=scope))
        except RequestRefused as refused:
            await refusal(refused.status, str(refused))(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _check(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if host not in self._hosts:
            raise RequestRefused(421, "this page is not served under that host name")
        if method in ("GET", "HEAD"):
            return
        if method != "POST":
            raise RequestRefused(405, "only GET and POST are allowed")
        if headers.get("origin") != f"{self._scheme}://{host}":
            raise RequestRefused(403, "a request from another site is refused")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RequestRefused(415, "send JSON")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_BODY:
            raise RequestRefused(413, f"a request may have at most {MAX_BODY} bytes")


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object, read no further than the size limit."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise RequestRefused(413, f"a request may have at most {MAX_BODY} bytes")
    except TimeoutError:
        raise RequestRefused(408, f"the request did not arrive within {BODY_SECONDS:g} seconds") from None
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the request is not valid JSON") from None
    if not isinstance(value, dict):
        raise RequestRefused(400, "the request must be a JSON object")
    return value


def whole(body: dict[str, Any], key: str, default: int | None, low: int = 0, high: int = 2**53) -> int:
    """A whole number within limits; without a default it must be there."""
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestRefused(400, f"'{key}' must be a whole number from {low} to {high}")
    return value


def text(body: dict[str, Any], key: str, default: str | None = None, longest: int = 200) -> str:
    """A text within limits; without a default it must be there."""
    value = body.get(key, default)
    if not isinstance(value, str) or len(value) > longest or not _storable(value):
        raise RequestRefused(400, f"'{key}' must be a text of at most {longest} characters")
    return value


def _storable(value: str) -> bool:
    """JSON can hold half of a character, which no file can."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def seconds(body: dict[str, Any], key: str) -> float | None:
    """A duration of at most a day, None where nothing sensible was sent."""
    value = body.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value := max(min(value, 86400), 0)):
        return None
    return float(value)
