"""HOST:PORT, as people write it."""

from __future__ import annotations

import ipaddress
import re

HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def host_port(text: str) -> tuple[str, int] | None:
    """Host (an IPv6 address without its brackets) and port of HOST:PORT; None where the text is something else."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        return None
    if HOST.fullmatch(host):
        return host, int(port)
    if host[:1] + host[-1:] != "[]":
        return None
    try:
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    except ValueError:
        return None
