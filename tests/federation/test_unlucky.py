"""What an unlucky administrator meets: a name that nobody knows, a port that is taken, another user, a full disk."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from flwr.supercore.protobuf.client import ProtobufClient
from site_room.sites import tiny_site
from starlette.requests import Request
from starlette.responses import Response

from chase.cli.federation import keep_going
from chase.core.errors import ChaseError, FederationError
from chase.core.operator import check_owner
from chase.federation.health import site_problems
from chase.federation.ops import certificates, keys, launch, setup, supervisor
from chase.federation.ops.proxy import FleetProxy, server
from chase.federation.ops.supervisor import ProcessSpec, Supervisor
from chase.federation.rules import FederationDirectory, Rules
from chase.federation.transport import CONTACT
from chase.flower import fleet
from chase.site.place import Site
from chase.web import patience, tls

FLOWERS = pytest.mark.filterwarnings("ignore:`verify=<str>` is deprecated")
"""Flower's client gives its HTTP library a file name, which that library no longer likes."""


class Enough(Exception):
    """Ends what would try for ever."""


def call_of(place: Path, server: str, monkeypatch: pytest.MonkeyPatch, tries: int = 2) -> None:
    """A node that connects, for so many tries."""
    left = iter(range(tries - 1))

    def sleep(seconds: float) -> None:
        if next(left, None) is None:
            raise Enough

    monkeypatch.setattr(fleet.time, "sleep", sleep)
    if not (place / "node.key").exists():
        keys.site_key(place / "node.key", "site-a")
    line = fleet.Fleet(server, place / "keys" / "ca.crt", place / "node.key")
    try:
        line.enter()
    finally:
        line.leave()


@FLOWERS
def test_a_name_that_nobody_knows_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys.server_certificate(tmp_path / "keys", ["localhost"])
    with caplog.at_level(logging.INFO, "chase.node"), pytest.raises(Enough):
        call_of(tmp_path, "no-such-host.invalid:8443", monkeypatch, tries=4)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the server cannot be reached (")


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Site]:
    """A site whose node's process runs."""
    site = tiny_site(tmp_path / "home", 1)
    with Supervisor(site.path / "processes.json") as held:
        held.start(ProcessSpec("site-a", ("sleep", "600"), site.path / "logs" / "node.log"))
        yield site


def test_a_site_whose_server_is_silent_is_not_healthy(connected: Site) -> None:
    log, contact = connected.path / "logs" / "node.log", connected.path / CONTACT
    assert site_problems(connected) == ["the server has not answered since the site was connected"]
    log.write_text("2026-11-17 07:00:00,000 WARNING the server cannot be reached (no such name), trying again\n")
    assert site_problems(connected)[1:] == ["its node says: the server cannot be reached (no such name), trying again"]
    log.write_text("2026-11-17 07:00:00,000 INFO connected as node 7\n")
    contact.touch()
    assert site_problems(connected) == []
    before = time.time() - 3600
    os.utime(contact, (before, before))
    assert site_problems(connected) == ["the server has not answered for 3600 s"]


def test_a_node_keeps_when_the_server_last_answered(tmp_path: Path) -> None:
    from chase.flower.node import SiteNode

    class Line:
        skew, answers = None, [True, None, False]

        def enter(self) -> int:
            return 7

        def beat(self) -> bool | None:
            return self.answers.pop(0)

    node = SiteNode(Line(), tmp_path)  # type: ignore[arg-type]
    node._over.wait = lambda seconds: not node._fleet.answers  # type: ignore[assignment,method-assign,attr-defined]
    contact, old = tmp_path / CONTACT, 1_000_000
    node._touch()
    os.utime(contact, (old, old))
    node._beat()
    assert contact.stat().st_mtime > old
    assert node._lost == "the server no longer knows this site"
    os.utime(contact, (old, old))
    node._fleet.answers = [None]  # type: ignore[attr-defined]
    node._lost = ""
    node._beat()
    assert (contact.stat().st_mtime, node._lost) == (old, "")


def read_request(line: socket.socket) -> None:
    """A whole request: closing with a part of it unread would reset the connection before the answer is seen."""
    text = bytearray()
    while b"\r\n\r\n" not in text and (more := line.recv(65536)):
        text += more
    head, _, body = bytes(text).partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    left = int(length[1]) - len(body) if length else 0
    while left > 0 and (more := line.recv(65536)):
        left -= len(more)


@contextmanager
def tls_server(place: Path, answer: bytes = b"") -> Iterator[int]:
    """Something that speaks TLS with the federation's certificate, and gives the same answer to everything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "server.pem", place / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(line, server_side=True) as shaken:
                    if answer:
                        read_request(shaken)
                        shaken.sendall(answer)
            except OSError:
                line.close()

    threading.Thread(target=greet, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


@FLOWERS
@pytest.mark.parametrize(
    ("case", "todo"),
    [
        ("expired", r"expired.*run `chase federation renew`"),
        ("another CA", r"the ca.crt here is of another federation"),
        ("another name", r"mismatch.*`chase federation renew --host`"),
    ],
)
def test_a_certificate_that_is_not_accepted_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, todo: str
) -> None:
    if case == "expired":
        monkeypatch.setattr(keys, "DAYS", 0)
    keys.server_certificate(tmp_path / "keys", ["fed.example.org" if case == "another name" else "127.0.0.1"])
    with tls_server(tmp_path / "keys") as port:
        if case == "another CA":
            shutil.rmtree(tmp_path / "keys")
            keys.server_certificate(tmp_path / "keys", ["127.0.0.1"])
        with pytest.raises(fleet.SiteRefused, match=todo):
            call_of(tmp_path, f"127.0.0.1:{port}", monkeypatch)


def test_a_clock_that_is_behind_is_named_and_does_not_make_a_new_certificate_invalid(tmp_path: Path) -> None:
    assert "set it (NTP)" in fleet.certificate_sentence("certificate verify failed: certificate is not yet valid")
    keys.server_certificate(tmp_path, ["localhost"])
    begins = certificates.read_certificate(tmp_path / "server.pem").not_valid_before_utc
    assert datetime.datetime.now(datetime.UTC) - begins > datetime.timedelta(hours=23)


def test_a_certificate_outlives_a_renewal_that_the_disk_has_no_space_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.server_certificate(tmp_path, ["localhost"])
    before = {name: (tmp_path / name).read_bytes() for name in ("server.pem", "server.key")}

    def full(*_: object, **__: object) -> None:
        raise FederationError("no space is left on the disk")

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "write_atomically", full)
        with pytest.raises(FederationError, match="no space"):
            certificates.renew(tmp_path)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert certificates.renew(tmp_path) > 800
    assert before == {name: (tmp_path / f"{name}.old").read_bytes() for name in before}
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")


def test_a_renewed_certificate_may_have_one_more_name(tmp_path: Path) -> None:
    keys.server_certificate(tmp_path, ["localhost"])
    certificates.renew(tmp_path, ["fed.example.org", "10.0.0.7", "localhost"])
    found = certificates.read_certificate(tmp_path / "server.pem")
    (names,) = [e.value for e in found.extensions if e.oid == certificates.x509.SubjectAlternativeName.oid]
    assert [str(name.value) for name in names] == ["localhost", "fed.example.org", "10.0.0.7"]
    with pytest.raises(FederationError, match="is not a host name"):
        certificates.renew(tmp_path, ["fed example"])


def test_a_ca_outlives_several_server_certificates(tmp_path: Path) -> None:
    keys.server_certificate(tmp_path, ["localhost"])
    assert certificates.days_left(tmp_path / "ca.crt") > 4 * certificates.days_left(tmp_path / "server.pem")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_named_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(supervisor, "end_on_signals", lambda: None)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as other:
        port = other.getsockname()[1]
        with pytest.raises(FederationError, match=rf"{port}: another process listens there; choose another"):
            launch.refuse_taken(host, port, "choose another", patience=0.3)
        started = tmp_path / "started"
        job = ProcessSpec("job", ("touch", str(started)), tmp_path / "log")
        with pytest.raises(FederationError, match="listens there"):
            keep_going(tmp_path / "p.json", [job], "", lambda: launch.refuse_taken(host, port, "", patience=0.0))
        assert not started.exists()
        assert not (tmp_path / "p.json").exists()
    launch.refuse_taken(host, port, "")
    with pytest.raises(FederationError, match=r"cannot listen on 192.0.2.7:8443: .*assign"):
        launch.refuse_taken("192.0.2.7", 8443, "")
    with pytest.raises(FederationError, match="give an address of this machine") as found:
        launch.refuse_taken("nosuch.invalid", 8443, "end it, or give another address")
    assert "end it" not in str(found.value)


@pytest.mark.skipif(os.getuid() != 0, reason="giving a directory to another user needs root")
def test_another_user_leaves_no_files_that_the_owner_cannot_change(tmp_path: Path) -> None:
    check_owner(tmp_path, FederationError)
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(
        FederationError, match=r"belongs to nobody, .*started by root: run it as nobody \(`sudo -u nobody"
    ):
        check_owner(tmp_path, FederationError)
    with pytest.raises(ChaseError, match="belongs to nobody"), Supervisor(tmp_path / "processes.json"):
        pass
    assert list(tmp_path.iterdir()) == []
    os.chown(tmp_path, 54321, -1)
    with pytest.raises(FederationError, match=r"run it as user 54321 \(`sudo -u '#54321' -H"):
        check_owner(tmp_path, FederationError)


def test_a_site_whose_admission_was_cut_short_can_still_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1)
    (federation.run).mkdir()
    line = keys.site_key(tmp_path / "node.key", "site-a")
    federation.keep(federation.roster.admit("site-a", line))
    asked = list[tuple[str, ...]]()

    def control(_: FederationDirectory, *arguments: str) -> str:
        asked.append(arguments)
        return "4711"

    monkeypatch.setattr(launch, "control", control)
    monkeypatch.setattr(launch, "wait_for_port", lambda *_: None)
    monkeypatch.setattr(setup.Record, "open", lambda _: type("Empty", (), {"metrics": []}))
    setup.dismiss(federation, "site-a")
    assert asked == [("node", line), ("unregister", "4711")]
    assert federation.roster.active == ()


@contextmanager
def proxy_of(place: Path, kind: type[FleetProxy] = FleetProxy, host: str = "127.0.0.1") -> Iterator[int]:
    port = launch.free_port()
    upstream = kind("https://127.0.0.1:1", place / "ca.crt")
    web = server(upstream, host, port, place / "server.pem", place / "server.key")
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    launch.wait_for_port(host, port, 60)
    try:
        yield port
    finally:
        web.should_exit = True
        thread.join(30)


def closed(line: socket.socket) -> bool:
    line.settimeout(20)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_strangers_who_connect_and_say_nothing_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(patience, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr("chase.federation.ops.proxy.SILENCE", 0.5)
    keys.server_certificate(tmp_path, ["localhost"])
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    with proxy_of(tmp_path) as port:
        lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        shaken = trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        half = trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        half.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n1")
        assert half.recv(20).startswith(b"HTTP/1.1 408")
        assert closed(shaken)
        assert all(closed(line) for line in lines)
        for line in (*lines, shaken, half):
            line.close()


def post(body: bytes) -> bytes:
    return b"POST /v1/fleet/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)


def said_by(line: ssl.SSLSocket) -> bytes:
    text = b""
    while b"the server" not in text:
        text += line.recv(4096) or b"the server has closed it"
    return text


def test_a_slow_line_has_time_and_one_that_crawls_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chase.federation.ops.proxy.SILENCE", 0.5)
    keys.server_certificate(tmp_path, ["localhost"])
    trust, body = ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), bytes(8)
    with proxy_of(tmp_path) as port:
        for rate, answer in ((2, b"HTTP/1.1 503"), (1000, b"HTTP/1.1 408")):  # 503: nothing is behind it
            monkeypatch.setattr("chase.federation.ops.proxy.LEAST_RATE", rate)
            with trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as line:
                line.sendall(post(body))
                for byte in body:
                    line.sendall(bytes([byte]))
                    time.sleep(0.15)
                assert line.recv(12) == answer


def test_bodies_hold_no_more_memory_than_there_is_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chase.federation.ops.proxy.MOST_HELD", 1500)
    keys.server_certificate(tmp_path, ["localhost"])
    trust, said = ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), []
    with proxy_of(tmp_path) as port, ExitStack() as stack:
        lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        half, other, third = (stack.enter_context(trust.wrap_socket(x, server_hostname="localhost")) for x in lines)
        half.sendall(post(bytes(1001)) + bytes(1000))
        time.sleep(0.5)
        other.sendall(post(bytes(1000)) + bytes(1000))
        said.append(said_by(other))
        half.sendall(bytes(1))
        said.append(said_by(half))
        third.sendall(post(bytes(1000)) + bytes(1000))
        said.append(said_by(third))
    assert [b"busy" in text for text in said] == [True, False, False]
    assert all(text.startswith(b"HTTP/1.1 503") for text in said)


def test_a_request_that_was_too_slow_is_tried_again() -> None:
    assert 408 in fleet.AWAY


@FLOWERS
def test_sites_connect_to_an_ipv6_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys.server_certificate(tmp_path / "keys", ["::1"])
    caplog.set_level(logging.INFO, "chase.node")
    with proxy_of(tmp_path / "keys", host="::1") as port, pytest.raises(Enough):
        call_of(tmp_path, f"[::1]:{port}", monkeypatch)
    assert "the server does not answer (503), trying again" in caplog.text  # the proxy has: nothing is behind it


def test_a_full_disk_does_not_end_what_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise FederationError("no space is left on the disk")

    def tend_until(held: Supervisor, what: Callable[[], bool]) -> list[str]:
        said, end = list[str](), time.monotonic() + 60
        while not what():
            assert time.monotonic() < end
            said += held.tend()
            time.sleep(0.05)
        return said

    with Supervisor(tmp_path / "processes.json") as held:
        held.start(ProcessSpec("node", ("sleep", "600"), tmp_path / "logs" / "node.log"))
        first = held.pid("node")
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "write_atomically", full)
            os.kill(first, signal.SIGKILL)
            tend_until(held, lambda: held.restarts.get("node") == 1)
            assert supervisor.running(tmp_path / "processes.json") == {"node": False}  # it could not be written
        tend_until(held, lambda: supervisor.running(tmp_path / "processes.json") == {"node": True})
        with monkeypatch.context() as patch:
            patch.setattr(held, "_spawn", full)
            patch.setattr(supervisor, "SLOWEST", 0.1)
            os.kill(held.pid("node"), signal.SIGKILL)
            said = list[str]()
            tend_until(held, lambda: bool(said.extend(held.tend()) or [line for line in said if "no space" in line]))
        tend_until(held, lambda: held.restarts["node"] == 2)


@FLOWERS
@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "405 Method Not Allowed"])
def test_an_address_where_something_else_answers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    keys.server_certificate(tmp_path / "keys", ["127.0.0.1"])
    answer = f"HTTP/1.1 {status}\r\ncontent-length: 5\r\nconnection: close\r\n\r\nsorry".encode()
    with (
        tls_server(tmp_path / "keys", answer) as port,
        pytest.raises(fleet.SiteRefused, match="is not the server of a federation: give HOST:PORT of its proxy"),
    ):
        call_of(tmp_path, f"127.0.0.1:{port}", monkeypatch)


class Deaf(FleetProxy):
    """Its server holds every request, as the real one does with those of waiting sites."""

    asked: ClassVar = threading.Event()

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        self.asked.set()
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits so long")


def test_a_proxy_that_ends_tells_waiting_sites_to_come_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keys.server_certificate(tmp_path, ["localhost"])
    trust, said = ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), list[bytes]()

    def wait_as_a_site(port: int) -> None:
        with trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as line:
            line.sendall(post(b"1") + b"1")
            said.append(line.recv(20))

    with proxy_of(tmp_path, Deaf) as port:
        site = threading.Thread(target=wait_as_a_site, args=(port,))
        site.start()
        assert Deaf.asked.wait(30)
    site.join()
    assert said == [b"HTTP/1.1 503 Service"]
    assert capfd.readouterr().err == ""


class Ended(Deaf):
    """Is ended while a request is being read."""

    async def handle(self, request: Request) -> Response:
        self.end()
        return await super().handle(request)


def test_a_request_that_is_read_while_the_proxy_ends_does_not_keep_it(tmp_path: Path) -> None:
    keys.server_certificate(tmp_path, ["localhost"])
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    with (
        proxy_of(tmp_path, Ended) as port,
        socket.create_connection(("127.0.0.1", port), timeout=15) as plain,
        trust.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        line.sendall(post(b"1") + b"1")
        assert line.recv(20) == b"HTTP/1.1 503 Service"


@contextmanager
def breaking_off(mute: bool) -> Iterator[int]:
    """A server that ends every connection before its TLS handshake is done, or says nothing at all."""
    kept = list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                kept.append(line)
                if not mute:
                    line.recv(1 << 16)
                    line.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(30)
    for line in kept:
        line.close()


@FLOWERS
@pytest.mark.parametrize("mute", [False, True], ids=["closes", "is silent"])
def test_a_handshake_that_a_busy_server_breaks_off_says_nothing_about_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mute: bool
) -> None:
    keys.server_certificate(tmp_path / "keys", ["localhost"])
    monkeypatch.setitem(ProtobufClient.__init__.__kwdefaults__, "timeout", 0.5)
    with breaking_off(mute) as port, caplog.at_level(logging.INFO, "chase.node"), pytest.raises(Enough):
        call_of(tmp_path, f"127.0.0.1:{port}", monkeypatch)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the server cannot be reached (")
