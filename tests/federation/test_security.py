"""Who gets in and what gets through, on a real SuperLink."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from federation.real import assert_same, assert_sound, federation_settings, running, simulated
from starlette.requests import Request

from chase.core.errors import FederationError
from chase.federation.diary import events
from chase.federation.ops import keys, launch, setup
from chase.federation.ops.proxy import FleetProxy, allowed, server
from chase.federation.ops.setup import Loopback
from chase.federation.ops.supervisor import Supervisor
from chase.federation.rules import FederationDirectory, Rules
from chase.site.place import Site


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        (b"/v1/fleet/pull-messages", True),
        (b"/v1/control/start-run", False),
        (b"/v1/runtime/get-nodes", False),
        (b"/", False),
        (b"/v1/fleet", False),
        (b"/v1/fleet/../control/start-run", False),
        (b"/v1/fleet/%2e%2e/control/start-run", False),
        (b"/v1/fleet//../control/start-run", False),
        (b"/v1/fleet/\xff", False),
        (b"//v1/fleet/x", False),
    ],
)
def test_the_proxy_passes_the_fleet_path_only(path: bytes, fits: bool) -> None:
    assert allowed(path) == fits


REFUSED = re.compile("Failed to activate SuperNode|SuperNode authentication is enabled", re.IGNORECASE)
PUSHES = ("push-messages", "push-object")


class Meddler(FleetProxy):
    """A proxy that writes down every byte and, when a site has sent an answer, sends it and older ones once more.

    A copy of the first request of an answer before its last would only break off the upload that is under way.
    """

    def __init__(self, upstream: str, trust: Path) -> None:
        super().__init__(upstream, trust)
        self.seen: list[bytes] = []
        self.sent: dict[str, list[tuple[Request, bytes]]] = {}
        self.replays: list[int] = []

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        self.seen.append(body)
        node, call = request.headers.get("flwr-public-key", ""), request.url.path.rpartition("/")[2]
        if call in PUSHES:
            self.sent.setdefault(node, []).append((request, body))
        elif call == "pull-messages":  # a node asks for work only when its answer is sent
            for old, same in self.sent.get(node, [])[-12:]:
                self.replays.append((await super().pass_on(old, same)).status_code)
        return await super().pass_on(request, body)


class Forgetful(FleetProxy):
    """A proxy that loses the reply to the first request of every answer, as a server that dies then does."""

    def __init__(self, upstream: str, trust: Path) -> None:
        super().__init__(upstream, trust)
        self.lost: list[bytes] = []

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        answer = await super().pass_on(request, body)
        if request.url.path.endswith("push-messages") and answer.status_code == 200 and body not in self.lost:
            self.lost.append(body)
            raise httpx.ReadError("the reply is lost")
        return answer


P = TypeVar("P", bound=FleetProxy)


@contextmanager
def meddling(federation: FederationDirectory, kind: type[P]) -> Iterator[tuple[P, str]]:
    host, inner = federation.address
    proxy, port = kind(f"https://{host}:{inner}", launch.ca(federation)), launch.free_port()
    directory = federation.path / "keys"
    web = server(proxy, "127.0.0.1", port, directory / "server.pem", directory / "server.key")
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    launch.wait_for_port("127.0.0.1", port, 60)
    try:
        yield proxy, f"127.0.0.1:{port}"
    finally:
        web.should_exit = True
        thread.join(30)


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_replayed_and_doubled_answers_change_nothing_and_only_numbers_leave(tmp_path: Path) -> None:
    """All sites connect through a proxy that repeats their answers: the weights are still those of a simulation."""
    settings = federation_settings()
    names = ("site-a", "site-b", "site-c")
    with (
        running(tmp_path / "fed", settings, 800, absent=names) as real,
        meddling(real.loopback.federation, Meddler) as (proxy, at),
    ):
        trust = launch.ca(real.loopback.federation)
        for name in names:
            home = real.loopback.homes[name]
            site = Site(home)
            site.home.inbox.add_samples({i: f"canary-{name}-{i}.png" for i in site.start().ids.tolist()})
            site.close()
            real.supervisor.start(launch.site_job(home, name, at, trust))
        with httpx.Client(verify=ssl.create_default_context(cafile=str(trust))) as outsider:
            for path in ("control/list-runs", "control/start-run", "runtime/get-nodes", "fleet/../control/start-run"):
                assert outsider.post(f"https://{at}/v1/{path}").status_code == 403
            assert outsider.get(f"https://{at}/").status_code == 403
        real.finish()
        assert len(proxy.replays) > 20
        sent = b"".join(proxy.seen)
        assert len(sent) > 100_000
        assert b"site-a" in sent  # the search would find what is there
        assert b"canary" not in sent
        said = (tmp_path / "fed" / "logs" / "superlink.log").read_text()
        assert said.count("Failed to store Message reply") >= 3
        assert [e["why"] for e in events(real.run) if e["what"] in ("refused", "dropped", "failed")] == []
        assert str(tmp_path).encode() not in sent
    assert_same(real, simulated(tmp_path / "sim", settings))
    assert_sound(real, 2 * settings.budget)


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_an_answer_whose_first_reply_is_lost_comes_whole(tmp_path: Path) -> None:
    settings, names = federation_settings(rounds=2), ("site-a", "site-b", "site-c")
    with (
        running(tmp_path / "fed", settings, 800, absent=names) as real,
        meddling(real.loopback.federation, Forgetful) as (proxy, at),
    ):
        for name in names:
            trust = launch.ca(real.loopback.federation)
            real.supervisor.start(launch.site_job(real.loopback.homes[name], name, at, trust))
        real.finish()
        assert len(proxy.lost) >= 9  # of three handshakes and two rounds
        assert [e["why"] for e in events(real.run) if e["what"] in ("refused", "dropped", "failed")] == []
    assert_same(real, simulated(tmp_path / "sim", settings))


def exits(supervisor: Supervisor, name: str, limit: float = 120.0) -> int:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        code = supervisor.ended(name)
        if code is not None:
            return code
        time.sleep(0.2)
    raise AssertionError(f"{name} was not refused")


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_strangers_wrong_keys_and_impostors_are_refused(tmp_path: Path) -> None:
    settings = federation_settings(rounds=1)
    absent = ("site-b", "site-c")  # the rounds do not begin before everybody has tried to get in
    with running(tmp_path / "fed", settings, 800, absent=absent, quorum=2, join=30.0) as real:
        trust, at = launch.ca(real.loopback.federation), real.loopback.server

        def try_in(name: str, home: Path, keyless: bool = False) -> None:
            job = launch.site_job(home, name, at, trust)
            command = list(job.command)
            if keyless:
                at_key = command.index("--key")
                del command[at_key : at_key + 2]
            real.supervisor.start(
                launch.ProcessSpec(name, tuple(command), home / "logs" / "node.log", job.env, again=False)
            )

        for name in ("stranger", "keyless", "wrong-key", "impostor"):
            home = tmp_path / name
            shutil.copytree(real.loopback.homes["site-c"], home)
            if name != "impostor":
                (home / "node.key").unlink()
                keys.site_key(tmp_path / f"{name}.key", name)
                shutil.copy(tmp_path / f"{name}.key", home / "node.key")
                (home / "node.key").chmod(0o600)
        # the impostor has site-c's good key but says that it is site-a; the stranger has a name and a key of its own
        for name, says in (("impostor", "site-a"), ("stranger", "stranger")):
            card = json.loads((tmp_path / name / "site.json").read_text())
            (tmp_path / name / "site.json").write_text(json.dumps(card | {"name": says}))
        for name in ("stranger", "wrong-key"):
            try_in(name, tmp_path / name)
        try_in("keyless", tmp_path / "keyless", keyless=True)
        try_in("impostor", tmp_path / "impostor")
        for name in ("stranger", "wrong-key", "keyless"):
            assert exits(real.supervisor, name) != 0
            said = (tmp_path / name / "logs" / "node.log").read_text()
            assert REFUSED.search(said), said[-500:]
        real.until(lambda _: bool(real.told("refused")))
        real.loopback.start_site(real.supervisor, "site-b")
        real.finish()
        refused = {e["site"]: e["why"] for e in events(real.run) if e["what"] == "refused"}
        assert refused == {"site-c": "it calls itself 'site-a', but its key is that of 'site-c'"}
        assert sorted(site for _, site in real.told("joined")) == ["site-a", "site-b"]


@pytest.mark.federation
@pytest.mark.timeout(900)
def test_a_site_that_is_let_out_is_gone_and_comes_back_with_a_new_key_alone(tmp_path: Path) -> None:
    settings = federation_settings(rounds=25)
    with running(tmp_path / "fed", settings, 800, quorum=2) as real:
        federation, home = real.loopback.federation, real.loopback.homes["site-c"]
        real.until(lambda s: s.get("round", 0) >= 1 and s.get("phase") == "saved")
        setup.dismiss(federation, "site-c")
        ((out_in, who),) = real.told("removed")
        assert who == "site-c"
        with pytest.raises(FederationError, match="not accepted again"):
            setup.admit(federation, "site-c", home / "node.key.pub")
        with pytest.raises(FederationError, match="already in use"):  # Flower itself says the same
            launch.control(federation, "register", str(home / "node.key.pub"), "site-c")
        metrics = real.finish()
        assert metrics[0]["took_part"] == 3
        after = [line["took_part"] for line in metrics[out_in + 1 :]]
        assert len(after) >= 2
        assert set(after) == {2}
        keys.site_key(tmp_path / "new.key", "site-c")
        setup.admit(federation, "site-c", tmp_path / "new.key.pub")
        assert [m.name for m in federation.roster.active] == ["site-a", "site-b", "site-c"]
    assert_sound(real, 24 * settings.budget)


def test_without_its_key_a_site_is_not_even_started(tmp_path: Path) -> None:
    loopback = Loopback.prepare(tmp_path / "fed", federation_settings(clients=1, classes_per_client=10), Rules())
    home = loopback.homes["site-a"]
    (home / "node.key").chmod(0o644)
    with pytest.raises(FederationError, match="chmod 600"):
        launch.site_job(home, "site-a", "127.0.0.1:1", Path("ca.crt"))
