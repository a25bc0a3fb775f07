"""Other people with an account on the server's or on a site's machine: tried as the user ``nobody``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation.real import federation_settings, running

from chase.federation.ops import launch

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
CALL = """
import ssl, sys, urllib.error, urllib.request
url, ca, *headers = sys.argv[1:]
request = urllib.request.Request(url, data=b"", method="POST")
request.add_header("content-type", "application/protobuf")
for header in headers:
    request.add_header(*header.split("=", 1))
try:
    answer = urllib.request.urlopen(request, timeout=30, context=ssl.create_default_context(cafile=ca))
    print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def reason_to_skip() -> str:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return "acting as another user needs root and setpriv"
    tried = subprocess.run([*AS_NOBODY, sys.executable, "-c", ""], capture_output=True)
    return "" if tried.returncode == 0 else "nobody may not run this Python"


def as_nobody(*command: str) -> str:
    done = subprocess.run([*AS_NOBODY, *command], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def listening(pid: int) -> list[str]:
    """The addresses on which a process and its children take connections."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    sockets = {line[9]: line[1] for line in lines if line[3] == "0A"}
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[2]) != pid:
                continue
            links = [os.readlink(fd) for fd in (stat.parent / "fd").iterdir()]
        except OSError:
            continue
        found += [sockets[link[8:-1]] for link in links if link.startswith("socket:[") and link[8:-1] in sockets]
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may look into, unlike ``tmp_path``: what is private in it is so by its own mode."""
    path = Path(tempfile.mkdtemp(prefix="chase-users-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.federation
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "can act as another user")
def test_other_users_of_the_machines_get_nothing(place: Path) -> None:
    public = Path("/tmp") / f"ca-for-anybody-{os.getpid()}.crt"
    with running(place / "fed", federation_settings(rounds=2), 500) as real:
        fed = real.loopback.federation
        shutil.copy(launch.ca(fed), public)
        public.chmod(0o644)
        try:
            base = f"https://{real.loopback.server}/v1"

            def call(path: str, *headers: str) -> str:
                return as_nobody(sys.executable, "-c", CALL, f"{base}/{path}", str(public), *headers)

            real.until(lambda s: s.get("phase") == "round")
            for path in ("start-run", "list-runs", "register-node", "list-nodes", "stop-run", "stream-logs"):
                assert call(f"control/{path}") == "403"
            assert call("control/list-runs", "chase-control=guess") == "403"
            assert (
                call("control/list-runs", f"chase-control={launch.control_secret(fed)}") == "200"
            )  # the door has a key
            for path in ("acquire-task", "pull-messages", "get-nodes", "push-messages", "pull-task-input"):
                assert call(f"runtime/{path}") in ("401", "403")
            for path in ("pull-messages", "push-messages", "activate-node"):
                assert call(f"fleet/{path}") == "401"
            assert call("../docs") == "403"
            port = launch.free_port()
            real.supervisor.start(launch.proxy_job(fed, "127.0.0.1", port))
            launch.wait_for_port("127.0.0.1", port, 120)
            base = f"https://127.0.0.1:{port}/v1"  # the same through the proxy, where the secret opens nothing either
            assert call("control/list-runs", f"chase-control={launch.control_secret(fed)}") == "403"
            for path in ("control/start-run", "control/register-node", "runtime/acquire-task", "../docs"):
                assert call(path) == "403"
            for path in ("pull-messages", "push-messages", "activate-node"):
                assert call(f"fleet/{path}") == "401"
            private = [
                fed.path / "keys" / name for name in ("control.secret", "executor.secret", "ca.key", "server.key")
            ]
            homes = list(real.loopback.homes.values())
            private += [home / name for home in homes for name in ("node.key", "inbox.sqlite", "samples.safetensors")]
            there = [path for path in private if path.exists()]
            assert len(there) >= 4 + 2 * len(homes)
            for path in there:
                assert "Permission denied" in as_nobody("cat", str(path))
            for name in real.loopback.homes:
                assert listening(real.supervisor.pid(name)) == [], "a site opens no port"
            metrics = real.finish()
            assert [line["took_part"] for line in metrics] == [3, 3]
        finally:
            public.unlink()
