"""Runs the page: in this process until it is stopped, or in a process of its own beside a run."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvicorn

from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.core.processes import end_with_parent, without_interrupts
from chase.home.home import Home
from chase.home.page.app import Page
from chase.home.views import HomeView
from chase.web.patience import Patient, limit_logs
from chase.web.tls import door

PORT = 8765


@dataclass(frozen=True)
class Address:
    """Where the page is served."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0 takes any free port."""
    name: str = ""
    """The name in the links; the host unless given."""
    cert: Path | None = None
    key: Path | None = None

    @property
    def secure(self) -> bool:
        """Whether the page is served over TLS."""
        return self.cert is not None

    def to_json(self) -> dict[str, Any]:
        """For the page's own process."""
        return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Address:
        """The address that ``to_json`` wrote."""
        paths = {key: None if body[key] is None else Path(body[key]) for key in ("cert", "key")}
        return cls(**(dict(body) | paths))

    def check(self) -> None:
        """Refuse another interface than loopback without TLS."""
        if (self.cert is None) != (self.key is None):
            raise LabelError("TLS needs both --tls-cert and --tls-key")
        for file in (self.cert, self.key):
            if file is not None and not file.is_file():
                raise LabelError(f"there is no file {file}: give the certificate and its key as PEM files")
        if not is_loopback(self.host) and not self.secure:
            raise LabelError(
                f"{self.host} can be reached from other machines, so samples and labels need encryption: "
                "give --tls-cert and --tls-key, or leave --host out to serve this machine only"
            )
        if is_wildcard(self.host) and not self.name:
            raise LabelError(
                f"{self.host} means every interface and is not an address that a browser can open: "
                "give the name with --name"
            )

    def check_certificate(self) -> None:
        """Refuse files that are no certificate and key before links are given out."""
        if self.cert is None:
            return
        try:
            # Without a password given, OpenSSL would ask for one at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise LabelError(
                f"{self.cert} and {self.key} are not a PEM certificate and its key without a password: {error}"
            ) from None


def is_wildcard(host: str) -> bool:
    """Whether the address stands for every interface."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(address: Address) -> socket.socket:
    """A listening socket; a port in use is named."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol must be named, or the server would not turn Nagle off and every reply took 40 ms longer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        raise LabelError(f"cannot serve on {address.host} port {address.port}: {error}; choose another port") from None
    return listening


def origin(address: Address, port: int) -> str:
    """The page's address as a browser writes it."""
    name = (address.name or ("127.0.0.1" if address.host == "localhost" else address.host)).lower()
    if ":" in name:
        name = f"[{name}]"
    return f"{'https' if address.secure else 'http'}://{name}:{port}"


def hosts(address: Address, port: int) -> set[str]:
    """The Host headers that the page answers to: a name that an outsider points here is not among them."""
    names = {address.name.lower(), address.host.lower()} - {""}  # as browsers write them
    if is_loopback(address.host):
        names |= {"127.0.0.1", "localhost", "::1"}
    spelled = {f"[{n}]" if ":" in n else n for n in names}
    default = 443 if address.secure else 80
    return {f"{n}:{port}" for n in spelled} | (spelled if port == default else set())


def links(home: Home, where: str, annotators: Sequence[str], by: str = "") -> dict[str, str]:
    """A new link for each annotator, made by whoever runs this program unless somebody is named.

    The token stands behind the #, which browsers keep to themselves.
    """
    return {name: f"{where}/#token={home.invite(name, by or operator())}" for name in annotators}


def server(home: Home, address: Address, port: int) -> uvicorn.Server:
    """The web server of a home."""
    limit_logs()
    config = uvicorn.Config(
        Page(home, HomeView(home), address.secure).app(hosts(address, port)),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=Patient if address.cert is None else door(address.cert, address.key),
        loop="asyncio",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve_socket(path: Path, address: Address, listening: socket.socket, parent: int = 0) -> None:
    """Serve a home until interrupted or, where ``parent`` is a pipe from another process, until that has ended."""
    running = server(Home(path), address, int(listening.getsockname()[1]))

    def end() -> None:
        running.should_exit = True

    if parent:
        end_with_parent(parent, end)
    running.run(sockets=[listening])


def _command(home: Path, address: Address, listening: socket.socket, parent: int) -> list[str]:
    """What starts the page in a process of its own: without torch it needs a quarter of the memory."""
    numbers = [str(listening.fileno()), str(parent)]
    return [sys.executable, "-m", "chase.home.page", str(home.resolve()), *numbers, json.dumps(address.to_json())]


def serve(home: Home, address: Address, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; ``announce`` is told the page's address. This process becomes the page's."""
    address.check()
    address.check_certificate()
    with bind(address) as listening:
        announce(origin(address, int(listening.getsockname()[1])))
        home.close()
        listening.set_inheritable(True)
        command = _command(home.path, address, listening, 0)
        if os.name == "nt":
            subprocess.run(command, check=False, close_fds=False)
        else:
            os.execve(command[0], command, _environment())


def _environment() -> dict[str, str]:
    """Threads share the memory that they give back, so that reading large pictures leaves the process small."""
    return {"MALLOC_ARENA_MAX": "2"} | os.environ


@contextmanager
def serving_beside(home: Home, address: Address) -> Iterator[str]:
    """Serve in a process of its own while the block runs; gives the page's address."""
    address.check()
    with bind(address) as listening:
        theirs, ours = os.pipe()
        command = _command(home.path, address, listening, theirs)
        kept = [listening.fileno(), theirs]
        with without_interrupts():
            process = subprocess.Popen(command, pass_fds=kept, stdin=subprocess.DEVNULL, env=_environment())
        os.close(theirs)
        try:
            yield origin(address, int(listening.getsockname()[1]))
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours)
