"""What an administrator does, on real processes: a change of settings waits for the sites; versions are mixed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from federation.real import Real, assert_sound, federation_settings, running, saved_state

from chase.federation.diary import events
from chase.federation.ops.launch import Watch, server_lives
from chase.run.record import Record
from chase.site import approval

pytestmark = [pytest.mark.federation, pytest.mark.timeout(900)]
LIMIT = 800.0


def chase(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "chase", *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def extend(real: Real, rounds: int, **rules: object) -> None:
    """More rounds, with changed rules, as `chase federation run --set --rule` does."""
    federation = real.loopback.federation
    real.until(lambda _: not server_lives(real.run))
    record = Record.open(real.run)
    record.keep(record.changed({"rounds": rounds}))
    federation.keep_rules(federation.changed(rules))
    real.watch = Watch(federation)
    real.watch.begin()


def refusals(real: Real) -> dict[str, str]:
    return {e["site"]: e["why"] for e in events(real.run) if e["what"] == "refused"}


def test_a_change_of_rules_runs_only_at_sites_whose_people_accepted_it(tmp_path: Path) -> None:
    settings = federation_settings(rounds=1, behaviour="AbCo")
    with running(tmp_path / "fed", settings, LIMIT) as real:
        real.finish()
        homes = real.loopback.homes
        spent = {name: saved_state(home).labels_spent for name, home in homes.items()}
        extend(real, 2, secure=True)
        real.until(lambda _: len(refusals(real)) == 3)
        assert all("secure: False -> True" in why for why in refusals(real).values())
        code, said = chase("site", "health", str(homes["site-a"]))
        assert code == 1, said
        assert "secure: False -> True" in said
        for name, home in homes.items():
            assert saved_state(home).labels_spent == spent[name]  # nothing ran there
        assert len(Record.open(real.run).metrics) == 1
        assert chase("site", "accept", str(homes["site-a"])) == (0, "accepted secure: False -> True\n")
        for name in ("site-b", "site-c"):
            assert approval.accept(homes[name]) == ["secure: False -> True"]
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 3]
        assert metrics[1]["clients"] == {}  # sums only
        assert approval.accept(homes["site-a"]) == []
    assert_sound(real, settings.budget)


NEWER = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import chase
    chase.__version__ = "9.9.9"
    import chase.flower.codec as codec
    codec.FORMAT += 1
"""


def test_a_site_of_another_version_is_refused_with_both_named_until_all_have_the_same(tmp_path: Path) -> None:
    settings = federation_settings(rounds=2)
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-c",), quorum=2, join=5.0) as real:
        real.start_changed("site-c", NEWER, tmp_path / "newer")
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [2, 2]
        if "site-c" not in refusals(real):  # it came after the last round: one more
            extend(real, 3)
            real.until(lambda _: "site-c" in refusals(real))
            real.finish()
        why = refusals(real)["site-c"]
        assert "use the same version of chase" in why
        assert "9.9.9" in why
        before = saved_state(real.loopback.homes["site-c"])
        assert before.turn == 0
        real.supervisor.stop("site-c")
        real.loopback.start_site(real.supervisor, "site-c")
        extend(real, len(Record.open(real.run).metrics) + 1, quorum=3)
        metrics = real.finish()
        assert metrics[-1]["took_part"] == 3
    assert_sound(real, len(metrics) * settings.budget)
