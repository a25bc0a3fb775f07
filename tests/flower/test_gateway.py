"""A request for messages that is held for a node which has ended takes no message of the next one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chase.flower.gateway import Gateway

MESSAGE = b"a message"


class Flower:
    """An application that gives its one message to whoever asks first."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        pull = scope["path"].endswith("/pull-messages")
        body = self.messages.pop() if pull and self.messages else b""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def ask(gateway: Gateway, path: str, who: bytes) -> bytes:
    found = bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Any) -> None:
        found.extend(event.get("body", b""))

    headers = [(b"flwr-public-key", who), (b"chase-wait", b"5")]
    await gateway({"type": "http", "path": path, "headers": headers}, receive, send)
    return bytes(found)


async def story(restarts: bool) -> list[bytes]:
    """What two requests of one node get, or of a node and the one after it; then a message comes."""
    flower = Flower()
    gateway = Gateway(flower, "secret", 1000)
    pull = "/v1/fleet/pull-messages"
    old = asyncio.create_task(ask(gateway, pull, b"a"))
    other = asyncio.create_task(ask(gateway, pull, b"b"))
    await asyncio.sleep(0.05)
    if restarts:
        await ask(gateway, "/v1/fleet/activate-node", b"a")
    flower.messages.append(MESSAGE)  # before the new node has asked
    other.cancel()
    await ask(gateway, "/v1/runtime/push-messages", b"")
    new = asyncio.create_task(ask(gateway, pull, b"a"))
    return [await asyncio.wait_for(task, 10) for task in (old, new)]


def told(restarts: bool) -> list[bytes]:
    """The story in a thread of its own: browser tests leave a running event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(story(restarts))).result()


def test_a_node_that_was_restarted_gets_its_message() -> None:
    assert told(restarts=True) == [b"", MESSAGE]


def test_a_node_that_waits_gets_its_message() -> None:
    assert told(restarts=False) == [MESSAGE, b""]
