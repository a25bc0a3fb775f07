"""HOST:PORT is understood in one place."""

from __future__ import annotations

import pytest

from chase.core.address import host_port


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("fed.example.org:8443", ("fed.example.org", 8443)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("my_host:65535", ("my_host", 65535)),
        ("[::1]:8443", ("::1", 8443)),
        ("[::]:8443", ("::", 8443)),
    ],
)
def test_host_and_port_are_told_apart_and_brackets_are_removed(text: str, place: tuple[str, int]) -> None:
    assert host_port(text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x",
        "x:",
        ":1",
        "x:0",
        "x:65536",
        "x:" + "9" * 5000,
        "x:²",
        "::1:8443",
        "[x]:1",
        "[]:1",
        "ray://x:1",
        "a b:1",
    ],
)
def test_anything_else_is_not_an_address(text: str) -> None:
    assert host_port(text) is None
