"""The commands that make up a federation on Flower, and the directories that they work in.

The SuperLink listens on loopback: its port also serves the control API, which has no authentication. Other machines
reach it through a reverse proxy that passes ``/v1/fleet/`` and nothing else.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from chase import __version__
from chase.core.errors import ChaseError, FederationError
from chase.core.files import held_by, write_atomically
from chase.federation.diary import Diary, state
from chase.federation.ops.keys import check_private, write_private
from chase.federation.ops.supervisor import ProcessSpec
from chase.federation.rules import FederationDirectory
from chase.run.record import LOCK, Record

AGAIN = 10.0
"""Seconds until a run that could not be submitted is submitted again."""
MOST_IN_VAIN = 5
"""How often a server may end in the same round before its run is not submitted again."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
APP = {
    "chase_app/__init__.py": '"""Flower asks for a bundle with every run. Nobody runs this one."""\n',
    "chase_app/none.py": '"""Server and sites run the chase that is installed there."""\n\napp = None\n',
}


def environment(home: Path) -> dict[str, str]:
    """The variables of every Flower process; each keeps its files in a home of its own."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**QUIET, "FLWR_HOME": str(home), "PATH": beside}


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def write_app(federation: FederationDirectory) -> Path:
    """The bundle that a Flower run is started from."""
    app = federation.path / "app"
    lines = [
        "[project]",
        'name = "chase-federation"',
        f'version = "{__version__}"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "[tool.flwr.app]",
        'publisher = "chase"',
        "[tool.flwr.app.components]",
        'serverapp = "chase_app.none:app"',
        'clientapp = "chase_app.none:app"',
        "[tool.flwr.app.config]",
        f"federation = {json.dumps(str(federation.path.resolve()))}",
    ]
    for name, text in {"pyproject.toml": "\n".join(lines) + "\n", **APP}.items():
        write_atomically(app / name, text.encode(), refusal=FederationError)
    return app


def ca(federation: FederationDirectory) -> Path:
    """The certificate that sites trust."""
    return (federation.path / "keys" / "ca.crt").resolve()


def control_secret(federation: FederationDirectory) -> str:
    """What opens the SuperLink's control API: only who may read the federation's directory has it."""
    return _secret(federation, "control.secret").read_text(encoding="utf-8").strip()


def executor_secret(federation: FederationDirectory) -> Path:
    """The file with what lets the executor take the server's side of a run."""
    return _secret(federation, "executor.secret")


def _secret(federation: FederationDirectory, name: str) -> Path:
    """A secret of the federation, made when it is first needed."""
    path = federation.path / "keys" / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            write_private(path, secrets.token_hex(32).encode())
        except FederationError:
            if not path.exists():  # else another process was first
                raise
    check_private(path)
    return path


def other_port(federation: FederationDirectory) -> str:
    """What to do where the SuperLink's port is taken."""
    return f"end it, or choose another port in {federation.path}/federation.toml ([link])"


def server_jobs(federation: FederationDirectory) -> list[ProcessSpec]:
    """The SuperLink, and the executor that holds the server's side of a run."""
    host, port = federation.address
    if host not in LOOPBACK:
        raise FederationError(
            f"the SuperLink would listen on {host}, where its control API lets anybody start code at every site: "
            "keep it on 127.0.0.1 behind a reverse proxy that passes /v1/fleet/ only (docs/deploy.md)"
        )
    keys, env = federation.path / "keys", environment(federation.path / "flwr")
    safe = ["--insecure"]
    if federation.secure:
        check_private(keys / "server.key")
        safe = ["--enable-supernode-auth", "--ssl-ca-certfile", str(ca(federation))]
        safe += ["--ssl-certfile", str(keys / "server.pem"), "--ssl-keyfile", str(keys / "server.key")]
    control_secret(federation)
    link = [sys.executable, "-m", "chase.flower.superlink", "--secret", str(keys / "control.secret")]
    link += ["--most-answer", str(federation.most_answer), "--", "--isolation", "process", *safe]
    link += ["--database", str(federation.path / "link.db"), "--host", host, "--port", str(port)]
    link += [
        "--superexec-auth-secret-file",
        str(executor_secret(federation)),
        "--disable-runtime-dependency-installation",
    ]
    execute = [sys.executable, "-m", "chase.flower.executor", str(federation.path)]
    logs = federation.path / "logs"
    return [
        ProcessSpec("superlink", tuple(link), logs / "superlink.log", env),
        ProcessSpec("server", tuple(execute), logs / "server.log", env),
    ]


def proxy_job(federation: FederationDirectory, host: str, port: int) -> ProcessSpec:
    """The proxy through which other machines reach the SuperLink."""
    command = (sys.executable, "-m", "chase", "federation", "proxy", str(federation.path))
    where = ("--host", host, "--port", str(port))
    return ProcessSpec("proxy", command + where, federation.path / "logs" / "proxy.log")


def site_job(home: Path, name: str, server: str, trust: Path | None) -> ProcessSpec:
    """The node of a site; without a certificate to trust it is not encrypted."""
    command = [sys.executable, "-m", "chase.flower.node", str(home.resolve()), "--server", server]
    if trust is not None:
        check_private(home / "node.key")
        command += ["--ca", str(trust), "--key", str(home / "node.key")]
    return ProcessSpec(name, tuple(command), home / "logs" / "node.log", environment(home / "flwr"))


def refuse_taken(host: str, port: int, todo: str, patience: float = 5.0) -> None:
    """Refuse an address that cannot be listened on; one whose last process is just ending is waited for.

    ``todo`` is what to do where another process listens there.
    """
    until = time.monotonic() + patience
    while True:
        try:
            family, kind, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            with socket.socket(family, kind) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                line.bind(where)
                line.listen()
            return
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.2)
                continue
            taken = error.errno == errno.EADDRINUSE
            why = f"another process listens there; {todo}" if taken else error.strerror or str(error)
            hint = "" if taken else "; give an address of this machine"
            raise FederationError(f"cannot listen on {host}:{port}: {why}{hint}") from None


def wait_for_port(host: str, port: int, limit: float, check: Callable[[], None] = lambda: None) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        check()
        try:
            with socket.create_connection((host, port), timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise FederationError(f"nothing listens on {host}:{port} after {limit:.0f} s: see the logs")


def control(federation: FederationDirectory, *arguments: str, limit: float = 300.0) -> str:
    """Have something done at the SuperLink (``chase.flower.control``); what it refuses is the error."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "chase.flower.control", str(federation.path), *arguments],
            env={**os.environ, **environment(federation.path / "flwr")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        said = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise FederationError(f"the SuperLink did not answer within {limit:.0f} s: is it running?") from None
    except (ValueError, IndexError):
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise FederationError(f"`{arguments[0]}` failed: {words[-1] if words else 'it said nothing'}") from None
    if "error" in said:
        raise FederationError(str(said["error"]))
    return str(said["value"])


def register(federation: FederationDirectory, name: str, public_key: Path) -> str:
    """Register a site's key at the SuperLink; returns Flower's id of the node, "" where it was registered already."""
    try:
        return control(federation, "register", str(public_key), name)
    except FederationError as error:
        if "already in use" not in str(error):
            raise
        return ""


def register_all(federation: FederationDirectory, public_keys: Mapping[str, Path]) -> dict[str, str]:
    """Register the keys of several sites at once; the ids of the nodes that are new, by site."""
    if len(public_keys) == 1:
        ((name, key),) = public_keys.items()
        found = [register(federation, name, key) or "-"]
    else:
        pairs = [text for name, key in public_keys.items() for text in (str(key), name)]
        found = control(federation, "register", *pairs).split() if pairs else []
    return {name: node for name, node in zip(public_keys, found, strict=True) if node != "-"}


def node_of(federation: FederationDirectory, key: str) -> str:
    """Flower's id of the node that has a public key; "" where none has."""
    found = control(federation, "node", key)
    return "" if found == "-" else found


def unregister(federation: FederationDirectory, node: str) -> None:
    """Remove a node's key: it is refused from now on, and Flower never takes the same key again."""
    control(federation, "unregister", node)


def submit(federation: FederationDirectory) -> str:
    """Start a Flower run for the rounds that are left; returns Flower's id of it."""
    return control(federation, "submit")


def server_lives(run: Path) -> bool:
    """Whether the server's side of a run is at work."""
    return held_by(run / LOCK) is not None


class Hopeless(FederationError):
    """The server's side ends again and again."""


class Watch:
    """Looks after a submitted run: when its server dies before the end, a new Flower run continues it.

    Where the SuperLink is away then, that is tried again until it is back.
    """

    def __init__(self, federation: FederationDirectory, patience: float = 120.0) -> None:
        self._federation, self._patience, self._wait = federation, patience, patience
        self.submitted, self._in_vain, self._round = 0, 0, -1
        self._seen, self._since = False, 0.0

    def begin(self) -> None:
        """Submit a run, or watch the one that is being served."""
        if server_lives(self._federation.run):
            self._seen = True
            return
        round = len(Record.open(self._federation.run).metrics)
        in_vain = self._in_vain + 1 if round == self._round else 0
        if in_vain >= MOST_IN_VAIN:
            raise Hopeless(
                f"the server has ended {in_vain} times in round {round + 1}: see {self._federation.path}/logs"
            )
        diary, before = Diary(self._federation.run), state(self._federation.run)
        diary.show(phase="submitted", round=round)
        try:
            submit(self._federation)
        except FederationError:
            with suppress(ChaseError, OSError):
                Diary(self._federation.run).show(**(before or {"phase": "none"}))
            raise
        self._in_vain, self._round, self._wait = in_vain, round, self._patience
        self.submitted, self._seen, self._since = self.submitted + 1, False, time.monotonic()

    def look(self) -> str:
        """The phase of the run; it is submitted again where its server has ended early."""
        lives = server_lives(self._federation.run)
        phase = str(state(self._federation.run).get("phase", ""))
        self._seen = self._seen or lives
        if lives or phase in ("finished", "failed"):
            return phase
        if self._seen or time.monotonic() - self._since > self._wait:
            self._begin_again()
        return phase

    def _begin_again(self) -> None:
        diary = Diary(self._federation.run)
        try:
            if self._wait == self._patience:
                diary.note(0, "server gone", why="a new Flower run continues from the last checkpoint")
            self.begin()
        except Hopeless:
            raise
        except (ChaseError, OSError) as error:
            self._seen, self._since, self._wait = False, time.monotonic(), AGAIN
            with suppress(ChaseError, OSError):  # a full disk: there is nowhere to say so
                diary.note(0, "not submitted", why=str(error))
