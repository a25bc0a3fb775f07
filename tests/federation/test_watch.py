"""Watching a run: attached to where it is served, submitted anew where its server is gone."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from support import small_settings

from chase.core.errors import FederationError
from chase.core.files import held_by
from chase.federation.diary import Diary, events, state
from chase.federation.ops import launch
from chase.federation.ops.launch import Watch
from chase.federation.ops.proxy import MOST_BYTES, FleetProxy
from chase.federation.rules import FederationDirectory, Rules
from chase.run.record import LOCK, Record, RunHeld


@pytest.fixture
def charter(tmp_path: Path) -> FederationDirectory:
    charter = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1)
    Record.create(charter.run, small_settings(), kind="federation")
    return charter


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(launch, "submit", lambda charter: calls.append("run") or "1")
    return calls


def test_a_run_that_is_being_served_is_watched_and_not_submitted_again(
    charter: FederationDirectory, submitted: list[str]
) -> None:
    Diary(charter.run).show(phase="round", round=2)
    with Record.open(charter.run).held():
        watch = Watch(charter)
        watch.begin()
        assert watch.look() == "round"
        with pytest.raises(RunHeld, match=f"process {os.getpid()}"), Record.open(charter.run).held():
            pass
    assert submitted == []
    assert state(charter.run)["phase"] == "round"
    watch.look()
    assert submitted == ["run"]
    assert [e["what"] for e in events(charter.run)] == ["server gone"]


def test_a_look_at_the_wrong_moment_does_not_keep_a_server_out(charter: FederationDirectory) -> None:
    with ThreadPoolExecutor(1) as beside:
        seen = beside.submit(lambda: [held_by(charter.run / LOCK) or time.sleep(0.002) for _ in range(100)])
        while not seen.done():
            with Record.open(charter.run).held():
                pass
    with Record.open(charter.run).held():
        assert launch.server_lives(charter.run)
        assert launch.server_pid(charter.run) == os.getpid()
    assert not launch.server_lives(charter.run)


def test_where_the_superlink_is_away_a_run_is_submitted_until_it_is_back(
    charter: FederationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def submit(charter: FederationDirectory) -> str:
        tries.append(1)
        if len(tries) in (2, 3):
            raise FederationError("away")
        return "1"

    monkeypatch.setattr(launch, "submit", submit)
    monkeypatch.setattr(launch, "AGAIN", 0.0)
    watch = Watch(charter, patience=0.0)
    watch.begin()
    for _ in range(3):
        watch.look()
    assert watch.submitted == 2
    assert [e["what"] for e in events(charter.run)].count("not submitted") == 2


def test_a_first_submission_that_fails_leaves_the_state_as_it_was(
    charter: FederationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(charter: FederationDirectory) -> str:
        raise FederationError("away")

    monkeypatch.setattr(launch, "submit", submit)
    Diary(charter.run).show(phase="finished", round=3)
    with pytest.raises(FederationError, match="away"):
        Watch(charter).begin()
    assert state(charter.run)["phase"] == "finished"


def test_what_the_superlink_says_went_wrong_is_the_error(tmp_path: Path) -> None:
    nobody = FederationDirectory.create(tmp_path / "fed", Rules(), False, "127.0.0.1", 1)
    with pytest.raises(FederationError, match=r"the SuperLink on .* is not reached"):
        launch.submit(nobody)


def test_the_proxy_refuses_long_requests_before_and_while_they_come(
    charter: FederationDirectory, tmp_path: Path
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

    assert asyncio.run(ask(content=b"", headers={"content-length": str(MOST_BYTES + 1)})) == 413
    assert asyncio.run(ask(content=endless())) == 413
    assert asyncio.run(ask(content=b"short")) == 503
