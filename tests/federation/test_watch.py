"""Watching a run: attached to where it is served, submitted again where its server has ended."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from support import run_async, small_settings

from chase.core.errors import FederationError
from chase.core.files import held_by
from chase.federation.diary import Diary, events, state
from chase.federation.ops import launch
from chase.federation.ops.launch import Watch
from chase.federation.ops.proxy import MOST_BYTES, FleetProxy
from chase.federation.rules import FederationDirectory, Rules
from chase.run.record import LOCK, Record, RunHeld


@pytest.fixture
def federation(tmp_path: Path) -> FederationDirectory:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1)
    Record.create(federation.run, small_settings(), kind="federation")
    return federation


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(launch, "submit", lambda federation: calls.append("run") or "1")
    return calls


def test_a_run_that_is_being_served_is_watched_and_not_submitted_again(
    federation: FederationDirectory, submitted: list[str]
) -> None:
    Diary(federation.run).show(phase="round", round=2)
    with Record.open(federation.run).held():
        watch = Watch(federation)
        watch.begin()
        assert watch.look() == "round"
        with pytest.raises(RunHeld, match=f"process {os.getpid()}"), Record.open(federation.run).held():
            pass
    assert submitted == []
    assert state(federation.run)["phase"] == "round"
    watch.look()
    assert submitted == ["run"]
    assert [e["what"] for e in events(federation.run)] == ["server gone"]


def test_a_look_at_the_wrong_moment_does_not_keep_a_server_out(federation: FederationDirectory) -> None:
    with ThreadPoolExecutor(1) as beside:
        seen = beside.submit(lambda: [held_by(federation.run / LOCK) or time.sleep(0.002) for _ in range(100)])
        while not seen.done():
            with Record.open(federation.run).held():
                pass
    with Record.open(federation.run).held():
        assert launch.server_lives(federation.run)
        assert held_by(federation.run / LOCK).pid == os.getpid()
    assert not launch.server_lives(federation.run)


def test_where_the_superlink_is_away_a_run_is_submitted_until_it_is_back(
    federation: FederationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def submit(federation: FederationDirectory) -> str:
        tries.append(1)
        if len(tries) in (2, 3):
            raise FederationError("away")
        return "1"

    monkeypatch.setattr(launch, "submit", submit)
    monkeypatch.setattr(launch, "AGAIN", 0.0)
    watch = Watch(federation, patience=0.0)
    watch.begin()
    for _ in range(3):
        watch.look()
    assert watch.submitted == 2
    assert [e["what"] for e in events(federation.run)].count("not submitted") == 2


def test_a_first_submission_that_fails_leaves_the_state_as_it_was(
    federation: FederationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(federation: FederationDirectory) -> str:
        raise FederationError("away")

    monkeypatch.setattr(launch, "submit", submit)
    Diary(federation.run).show(phase="finished", round=3)
    with pytest.raises(FederationError, match="away"):
        Watch(federation).begin()
    assert state(federation.run)["phase"] == "finished"


def test_what_the_superlink_says_went_wrong_is_the_error(tmp_path: Path) -> None:
    nobody = FederationDirectory.create(tmp_path / "fed", Rules(), False, "127.0.0.1", 1)
    with pytest.raises(FederationError, match=r"the SuperLink on .* cannot be reached"):
        launch.submit(nobody)


def test_the_proxy_refuses_long_requests_before_and_while_they_come(
    federation: FederationDirectory, tmp_path: Path
) -> None:
    from chase.federation.ops import keys

    keys.server_certificate(tmp_path / "keys", ["localhost"])
    proxy = FleetProxy("https://localhost:1", tmp_path / "keys" / "ca.crt")

    async def endless():
        for _ in range(MOST_BYTES // (1 << 20) + 1):
            yield b"x" * (1 << 20)

    async def ask(**content: object) -> int:
        transport = httpx.ASGITransport(proxy.app())
        async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as client:
            return (await client.post("/v1/fleet/push-object", **content)).status_code  # type: ignore[arg-type]

    assert run_async(ask(content=b"", headers={"content-length": str(MOST_BYTES + 1)})) == 413
    assert run_async(ask(content=endless())) == 413
    assert run_async(ask(content=b"short")) == 503
