"""What visitors cannot do to the page: hold connections for good, fill the log, or make it large."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from homes import ask, certificate, image_home, served
from support import run_async

from chase.cli.running import annotators
from chase.core.errors import SettingsError
from chase.home.home import Home
from chase.home.page import guard
from chase.home.page.serving import Address, serving_beside
from chase.web import patience, tls


def connect(where: str, text: bytes = b"") -> socket.socket:
    host, _, port = where.removeprefix("http://").partition(":")
    line = socket.create_connection((host, int(port)), timeout=10)
    line.sendall(text)
    return line


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1000) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("text", [b"", b"GET / HT", b"POST /api/next HTTP/1.1\r\nhost: x\r\n"])
def test_a_half_open_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(patience, "HEADER_SECONDS", 0.3)
    home = image_home(tmp_path / "home")
    with served(home) as where, connect(where, text) as line:
        began = time.monotonic()
        assert is_closed(line)
        assert time.monotonic() - began < 5


def test_a_body_that_never_comes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    home = image_home(tmp_path / "home")
    with served(home) as where:
        host = where.removeprefix("http://")
        head = (
            f"POST /api/enter HTTP/1.1\r\nhost: {host}\r\norigin: {where}\r\n"
            "content-type: application/json\r\ncontent-length: 50\r\n\r\n{"
        )
        with connect(where, head.encode()) as line:
            assert line.recv(200).startswith(b"HTTP/1.1 408")


def test_one_connection_too_many_is_closed_and_the_others_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "most_connections", lambda most: 5)
    home = image_home(tmp_path / "home")
    with served(home) as where:
        lines = [connect(where) for _ in range(5)]
        time.sleep(0.2)
        with connect(where) as one_more:
            assert is_closed(one_more)
        lines[0].sendall(f"GET / HTTP/1.1\r\nhost: {where.removeprefix('http://')}\r\n\r\n".encode())
        assert lines[0].recv(20).startswith(b"HTTP/1.1 200")
        for line in lines:
            line.close()


def test_silent_connections_under_tls_are_counted_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "most_connections", lambda most: 5)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 1.0)
    made = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(made["cert"]))
    with served(image_home(tmp_path / "home"), **made) as where:
        host = where.removeprefix("https://")
        silent = [connect(host) for _ in range(5)]
        time.sleep(0.2)
        with connect(host) as one_more:
            assert is_closed(one_more)
        assert all(is_closed(line) for line in silent), "their time for a handshake is over"
        for line in silent:
            line.close()
        with trusting.wrap_socket(connect(host), server_hostname="localhost") as line:
            line.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            assert line.recv(20).startswith(b"HTTP/1.1 200")
        with connect(host, b"GET / HTTP/1.1\r\n\r\n") as plain:
            assert is_closed(plain)


def test_what_comes_with_the_handshake_is_read(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(made["cert"]))
    with served(image_home(tmp_path / "home"), **made) as where:
        host = where.removeprefix("https://")
        came, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = trusting.wrap_bio(came, sent, server_hostname="localhost")
        with connect(host) as line:
            while True:
                try:
                    secure.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    line.sendall(sent.read())
                    came.write(line.recv(16384))
            secure.write(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            line.sendall(sent.read())  # the last message of the handshake and the request in one piece
            reply = b""
            while not reply:
                came.write(line.recv(16384))
                try:
                    reply = secure.read(20)
                except ssl.SSLWantReadError:
                    continue
            assert reply.startswith(b"HTTP/1.1 200")


def test_visitors_cannot_fill_the_log() -> None:
    few = patience.FewLines()
    lines = [logging.LogRecord("x", 30, "", 0, "bad request", (), None) for _ in range(500)]
    written = [line for line in lines if few.filter(line)]
    assert len(written) == patience.LINES_PER_MINUTE
    assert "left out" in written[-1].getMessage()


def _is_page(process: Path) -> bool:
    try:
        mine = f"PPid:\t{os.getpid()}\n" in (process / "status").read_text()
        return mine and b"chase.home.page" in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here to read the memory from")
def test_the_page_s_process_is_small_and_without_torch(tmp_path: Path) -> None:
    home = image_home(tmp_path / "home")
    ask(home, range(5))
    with serving_beside(home, Address(port=0)) as where:
        for _ in range(100):
            try:
                line = connect(where)
                break
            except OSError:
                time.sleep(0.1)
        line.settimeout(60)
        line.sendall(f"GET / HTTP/1.1\r\nhost: {where.removeprefix('http://')}\r\n\r\n".encode())
        assert line.recv(20).startswith(b"HTTP/1.1 200")
        line.close()
        children = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "-f", "chase.home.page"], capture_output=True, text=True
        )
        pid = children.stdout.split()[0]
        status = Path(f"/proc/{pid}/status").read_text()
        kilobytes = int(re.findall(r"VmRSS:\s+(\d+)", status)[0])
        assert kilobytes < 150 * 1024, f"{kilobytes} kB"
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


def test_nothing_that_the_page_imports_loads_torch() -> None:
    code = "import sys, chase.home.page.serving, chase.home.team; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_page_over_tls_asks_browsers_to_stay_with_it(tmp_path: Path) -> None:

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def headers(scheme: str) -> dict[bytes, bytes]:
        sent: list[dict] = []

        async def send(message: dict) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "headers": [(b"host", b"x")]}
        run_async(guard.Guard(app, ["x"], scheme)(scope, None, send))  # type: ignore[arg-type]
        return dict(sent[0]["headers"])

    assert headers("https")[b"strict-transport-security"] == b"max-age=31536000"
    assert b"strict-transport-security" not in headers("http")


def test_people_can_be_named_for_a_run() -> None:
    assert annotators([]) == (None, [])
    assert annotators(["page"]) == ("page", [])
    assert annotators(["oracle"]) == ("oracle", [])
    assert annotators(["team"]) == ("team", [])  # simulated, not a person of this name
    assert annotators(["thea", "paige"]) == ("page", ["thea", "paige"])  # people, though team and page are near
    assert annotators(["my.module:Crowd"]) == ("my.module:Crowd", [])
    with pytest.raises(SettingsError, match="--annotator team cannot be combined with other annotators"):
        annotators(["anna", "team"])
    assert annotators(["anna", "ben"]) == ("page", ["anna", "ben"])
    with pytest.raises(SettingsError, match="did you mean 'oracle'"):
        annotators(["orcale"])
    with pytest.raises(SettingsError, match="cannot be combined"):
        annotators(["oracle", "anna"])


def test_sessions_end_when_idle_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Home = image_home(tmp_path / "home")
    session = home.people.enter(home.people.invite("anna"))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 599)
    assert home.people.whose(session, active=False, idle=600) is not None
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert home.people.whose(session, idle=600) is None, "a page that only looks for questions keeps nobody in"
    assert home.people.whose(session, longest=600) is None
    assert home.people.whose(session) is not None
