"""Faults on real processes. After each: the run continues, no label is lost, no sample is in two pools, it is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from federation.real import Real, assert_same, assert_sound, federation_settings, running, saved_state, simulated

from chase.core.processes import group_lives
from chase.federation.status_view import links_in, page_log
from chase.run.record import Record
from chase.site.place import Site

pytestmark = [pytest.mark.federation, pytest.mark.timeout(900)]
LIMIT = 800.0


HALTS = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import os, time
    from pathlib import Path
    import chase.client.turn as client
    honest, gate, halted = client.train, Path("GATE"), Path("HALTED")
    def train(context, state, order, costs):
        if order.round >= 2 and gate.exists() and not halted.exists():
            halted.write_text(str(os.getpid()))
            time.sleep(3600)
        return honest(context, state, order, costs)
    client.train = train
"""


class Halting:
    """A site whose process stops in the first training after ``open``, of round 2 or later, to be killed there."""

    def __init__(self, real: Real, site: str, where: Path) -> None:
        self._real, self._home = real, real.loopback.homes[site]
        self._gate, self._halted = where.with_suffix(".gate"), where.with_suffix(".halted")
        real.start_changed(site, HALTS.replace("GATE", str(self._gate)).replace("HALTED", str(self._halted)), where)

    def open(self) -> None:
        """From now on, it stops."""
        self._gate.touch()

    def wait(self) -> int:
        """Wait until it has stopped, in its turn and nowhere else; returns the process."""
        self._real.until(lambda _: self._halted.is_file() and self._halted.read_text() != "")
        pid = int(self._halted.read_text())
        assert holds(pid, self._home / "turn.lock")
        return pid


def holds(pid: int, lock: Path) -> bool:
    """Whether a process has the file open."""
    try:
        return any(os.path.realpath(link) == str(lock) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_client_killed_in_training_does_its_turn_again(tmp_path: Path) -> None:
    settings = federation_settings()
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-b",), join=300.0) as real:
        site = Halting(real, "site-b", tmp_path / "change")
        site.open()
        os.kill(site.wait(), signal.SIGKILL)
        real.finish()
        assert (2, "site-b") in real.told("failed")
        assert (2, "site-b") in real.told("asked again")
    assert_same(real, simulated(tmp_path / "sim", settings))
    assert_sound(real, 2 * settings.budget)


def test_a_killed_node_comes_back_as_itself_with_its_state(tmp_path: Path) -> None:
    settings = federation_settings()
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-c",), join=300.0) as real:
        site = Halting(real, "site-c", tmp_path / "change")
        site.open()
        site.wait()
        before = real.supervisor.pid("site-c")
        os.kill(before, signal.SIGKILL)
        real.finish()
        assert real.supervisor.pid("site-c") != before
        assert real.supervisor.restarts["site-c"] >= 1
        assert (2, "site-c") in real.told("failed")
    assert_same(real, simulated(tmp_path / "sim", settings))
    assert_sound(real, 2 * settings.budget)


def test_a_superlink_that_is_away_for_ten_seconds_loses_nothing(tmp_path: Path) -> None:
    settings = federation_settings()
    with running(tmp_path / "fed", settings, LIMIT) as real:
        real.training(2, "site-a")
        group = real.supervisor.pid("superlink")
        os.killpg(group, signal.SIGKILL)
        time.sleep(10)
        assert not group_lives(group)
        real.finish()
        assert real.supervisor.restarts["superlink"] == 1
    assert_same(real, simulated(tmp_path / "sim", settings))
    assert_sound(real, 2 * settings.budget)


def test_a_site_that_joins_at_round_three_takes_part_from_then_on(tmp_path: Path) -> None:
    settings = federation_settings(rounds=25)
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-c",), quorum=2, join=1.0) as real:
        real.until(lambda s: s.get("round", 0) >= 2 and s.get("phase") == "round")
        real.loopback.start_site(real.supervisor, "site-c")
        metrics = real.finish()
        joined = {site: round for round, site in real.told("joined")}["site-c"]
        assert joined >= 2
        took = [line["took_part"] for line in metrics]
        assert took[:2] == [2, 2]
        assert took[-1] == 3
        assert metrics[0]["sites"]["absent"] == ["site-c"]
    assert_sound(real, 24 * settings.budget)


@contextmanager
def person_at(real: Real, site: str) -> Iterator[Callable[[], dict[int, int]]]:
    """Somebody at a site's labelling page: each call answers all that is asked, and returns what was answered."""
    log = page_log(real.loopback.homes[site])
    real.until(lambda _: bool(links_in(log)))
    (link,) = links_in(log).values()
    where, _, token = link.partition("/#token=")
    headers = {"origin": where, "content-type": "application/json"}
    with httpx.Client(base_url=where, headers=headers, trust_env=False, timeout=60) as page:
        assert page.post("/api/enter", json={"token": token}).status_code == 200

        def answer() -> dict[int, int]:
            asked = page.post("/api/next", json={"want": 20, "shown": 20}).json()["queue"]
            given = {question["sample"]: question["sample"] % 10 for question in asked}
            seen = {s: page.get(f"/api/samples/{s}").headers.get("x-chase-seen", "") for s in given}
            body = {"answers": [{"sample": s, "label": n, "key": f"k{s}", "seen": seen[s]} for s, n in given.items()]}
            accepted = page.post("/api/answer", json=body).json()["accepted"] if given else []
            return {a["sample"]: given[a["sample"]] for a in accepted}

        yield answer


def test_what_a_person_labelled_at_a_site_outlives_a_kill_in_its_turn(tmp_path: Path) -> None:
    settings, away = federation_settings(rounds=10), ("site-a",)
    with (
        running(tmp_path / "fed", settings, LIMIT, away, person=True, join=300.0) as real,
        person_at(real, "site-a") as answer,
    ):
        halting, given = Halting(real, "site-a", tmp_path / "change"), dict[int, int]()

        def answer_until_the_end(stands: dict[str, Any]) -> bool:
            given.update(answer())
            return stands.get("phase") == "finished"

        real.until(lambda s: bool(given.update(answer()) or given))
        halting.open()
        os.kill(halting.wait(), signal.SIGKILL)
        real.until(answer_until_the_end)
        metrics = Record.open(real.run).metrics
        assert "site-a" in [site for _, site in real.told("failed")]
    assert [line["round"] for line in metrics] == list(range(1, 11))
    now = saved_state(real.loopback.homes["site-a"])
    held = dict(zip(now.pools.labeled.tolist(), now.labels_of(now.pools.labeled).tolist(), strict=True))
    used = {sample: label for sample, label in given.items() if sample in held}
    assert len(used) >= settings.budget, "no answer reached the model"
    assert {sample: held[sample] for sample in used} == used
    site = Site(real.loopback.homes["site-a"])
    lines = [line for line in site.home.ledger.labels() if line["annotator"] == "site-a"]
    site.close()
    assert sorted((line["sample"], line["label"]) for line in lines) == sorted(given.items())
    assert now.labels_spent == len(used)
    now.pools.check()


def start_changed(real: Real, site: str, change: str, where: Path) -> None:
    """Connect a site whose turns are changed by a piece of code; ``honest(*args)`` is the turn as it should be."""
    real.start_changed(site, CHANGE.replace("CHANGE", change), where)


CHANGE = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import time
    from dataclasses import replace
    import chase.site.turn as turn
    honest = turn.take_turn
    def changed(*args):
        CHANGE
    turn.take_turn = changed
"""
SLOW = """
        time.sleep(95 if args[3].round == 2 else 0)
        return honest(*args)
"""
NAN = """
        update = honest(*args)
        if args[3].round != 2:
            return update
        return replace(update, weights={name: array * float("nan") for name, array in update.weights.items()})
"""


def test_a_site_that_is_too_slow_is_gone_on_without_and_its_labels_are_kept(tmp_path: Path) -> None:
    settings = federation_settings(rounds=7)
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-a",), quorum=2, deadline=75.0, join=300.0) as real:
        start_changed(real, "site-a", SLOW, tmp_path / "change")
        metrics = real.finish()
        assert metrics[1]["sites"]["missing"] == ["site-a"]
        assert metrics[1]["took_part"] == 2
        assert "site-a" in metrics[2]["sites"]["busy"] + metrics[2]["sites"]["late"]
        assert {what for what in ("late", "dropped") if (real.told(what))}
    assert_sound(real, 6 * settings.budget)


def test_a_site_that_sends_nan_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    settings = federation_settings()
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-b",), join=300.0) as real:
        start_changed(real, "site-b", NAN, tmp_path / "change")
        metrics = real.finish()
        assert list(metrics[1]["sites"]["refused"]) == ["site-b"]
        assert "holds NaN or infinity" in metrics[1]["sites"]["refused"]["site-b"]
        assert [line["took_part"] for line in metrics] == [3, 2, 3]
        assert (2, "site-b") in real.told("refused")
        assert np.isfinite(metrics[-1]["test_loss"])
    assert_sound(real, 2 * settings.budget)
    assert saved_state(real.loopback.homes["site-b"]).turn == 3
