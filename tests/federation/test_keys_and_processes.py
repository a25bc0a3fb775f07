from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import small_settings

from chase.core.errors import FederationError
from chase.core.processes import group_lives, started
from chase.federation.ops import keys, launch
from chase.federation.ops.supervisor import (
    ProcessSpec,
    Supervisor,
    alive,
    end_groups,
    running,
    take_down,
)
from chase.federation.rules import FederationDirectory, Rules
from chase.run.record import Record

SLEEPER = (sys.executable, "-c", "import subprocess, sys; subprocess.run(['sleep', '600'])")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def wait_until(what, limit: float = 30.0) -> None:
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_private_keys_are_for_their_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    old = os.umask(0)  # the worst case: nothing is masked
    try:
        keys.server_certificate(tmp_path / "keys", ["fed.example.org", "127.0.0.1"])
        line = keys.site_key(tmp_path / "node.key", "site-a")
    finally:
        os.umask(old)
    assert mode(tmp_path / "keys") == 0o700
    assert {mode(p) for p in (tmp_path / "keys").glob("*.key")} | {mode(tmp_path / "node.key")} == {0o600}
    assert keys.read_public(tmp_path / "node.key.pub") == line
    with pytest.raises(FederationError, match="is not overwritten"):
        keys.site_key(tmp_path / "node.key", "site-a")
    keys.check_private(tmp_path / "node.key")
    (tmp_path / "node.key").chmod(0o640)
    with pytest.raises(FederationError, match="chmod 600"):
        keys.check_private(tmp_path / "node.key")
    with pytest.raises(FederationError, match="not the public key"):
        keys.read_public(tmp_path / "node.key")


def test_the_certificate_is_good_for_its_names_and_signed_by_the_ca(tmp_path: Path) -> None:
    keys.server_certificate(tmp_path, ["fed.example.org", "127.0.0.1"])
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    for name, fits in (("fed.example.org", True), ("127.0.0.1", True), ("evil.example.org", False)):
        assert shakes_hands(context, server, name) == fits


def shakes_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return ours.getpeercert() is not None


def test_the_superlink_never_listens_beyond_loopback(tmp_path: Path) -> None:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), False, "0.0.0.0", 1234)
    with pytest.raises(FederationError, match="control API"):
        launch.server_jobs(federation)


def test_a_secure_server_is_started_with_tls_and_authentication_and_an_insecure_one_says_so(tmp_path: Path) -> None:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1234)
    Record.create(federation.run, small_settings(), kind="federation")
    keys.server_certificate(tmp_path / "fed" / "keys", ["127.0.0.1"])
    (federation.path / "contract.json").write_text('{"arrays": ["w float32[2, 3]"]}')
    link, execute = launch.server_jobs(federation)
    for name in ("control.secret", "executor.secret"):
        assert (federation.path / "keys" / name).stat().st_mode & 0o777 == 0o600
    assert "--enable-supernode-auth" in link.command
    assert "--insecure" not in (*link.command, *execute.command)
    (tmp_path / "fed" / "keys" / "server.key").chmod(0o644)
    with pytest.raises(FederationError, match="chmod 600"):
        launch.server_jobs(federation)
    loose = FederationDirectory.create(tmp_path / "loose", Rules(), False, "127.0.0.1", 1234)
    Record.create(loose.run, small_settings(), kind="federation")
    (loose.path / "contract.json").write_text('{"arrays": []}')
    assert "--insecure" in launch.server_jobs(loose)[0].command
    before = loose.most_answer
    (loose.path / "contract.json").rename(loose.path / "agreement.json")  # of a federation that is older
    assert loose.most_answer == before


def test_a_supervisor_starts_again_what_ends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "jobs.json") as supervisor:
        supervisor.start(ProcessSpec("a", SLEEPER, tmp_path / "a.log"))
        first = supervisor.pid("a")
        wait_until(lambda: len(children(first)) == 1)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: bool(supervisor.tend()))
        wait_until(lambda: not supervisor.tend() and supervisor.pid("a") != first)
        assert not group_lives(first)  # its child went with it
        assert running(tmp_path / "jobs.json") == {"a": True}
        with pytest.raises(FederationError, match="is already running"), Supervisor(tmp_path / "jobs.json"):
            pass
        second = supervisor.pid("a")
    assert not group_lives(second)
    assert not (tmp_path / "jobs.json").exists()


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


BOSS = """
import sys, time
from pathlib import Path
from chase.federation.ops.supervisor import *
end_on_signals()
try:
    with Supervisor(Path(sys.argv[1])) as s:
        s.start(ProcessSpec("a", (sys.executable, "-c", sys.argv[3]), Path(sys.argv[2])))
        while True:
            time.sleep(0.1)
except Ended:
    pass
"""


@pytest.mark.parametrize("how", ["take_down", "interrupt", "hang up", "kill"])
def test_however_a_supervisor_ends_its_processes_end_too(tmp_path: Path, how: str) -> None:
    registry = tmp_path / "jobs.json"
    boss = subprocess.Popen([sys.executable, "-c", BOSS, str(registry), str(tmp_path / "log"), SLEEPER[2]])
    try:
        wait_until(lambda: registry.exists() and "a" in running(registry))
        group = json.loads(registry.read_text())["jobs"]["a"]["pid"]
        wait_until(lambda: len(children(group)) == 1)
        if how == "take_down":
            assert take_down(registry)
        elif how == "kill":
            boss.kill()
            boss.wait()
            wait_until(lambda: not started(group))  # told by the system that its parent died
            take_down(registry)  # and what it may have left is found through the registry
        else:
            boss.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGHUP)
        boss.wait(30)
        wait_until(lambda: not group_lives(group))
        assert not registry.exists()
        assert not take_down(registry)
    finally:
        boss.kill()
        boss.wait()


def test_a_process_that_took_over_a_number_is_not_mistaken_for_ours() -> None:
    assert alive({"pid": os.getpid(), "started": started(os.getpid())})
    assert not alive({"pid": os.getpid(), "started": 1})
    assert not alive({"pid": 2**22 - 1, "started": 0})
    assert end_groups([]) == []


def test_a_log_is_turned_over_while_its_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chase.federation.ops.supervisor.LARGEST_LOG", 1000)
    log = tmp_path / "talk.log"
    talk = "import time\nwhile True:\n    print('x' * 99, flush=True)\n    time.sleep(0.01)"
    with Supervisor(tmp_path / "processes.json") as supervisor:
        supervisor.start(ProcessSpec("talk", (sys.executable, "-c", talk), log))
        end = time.monotonic() + 60
        while not log.with_name("talk.log.1").exists():
            assert time.monotonic() < end
            supervisor.tend()
            time.sleep(0.02)
        seen = log.stat().st_size
        while log.stat().st_size <= seen:  # it goes on writing to the same file
            assert time.monotonic() < end
            time.sleep(0.02)
    assert log.with_name("talk.log.1").stat().st_size > 1000
    assert set(log.read_text()) <= {"x", "\n"}
