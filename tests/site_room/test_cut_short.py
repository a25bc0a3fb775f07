"""``add``, ``forget`` and making a site, killed at every step: not begun, finished by the next, or made again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from site_room.cutting import CANARY, HELD_OUT, SHADE
from site_room.sites import all_bytes, now, play, put, some, tiny_site

from chase.core.errors import LabelError
from chase.home.originals import keep_texts
from chase.site import change
from chase.site.place import Site


def cut_at_every_step(home: Path, what: str) -> Iterator[Path]:
    command = [sys.executable, "-m", "site_room.cutting", str(home), what]
    tests = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps > 5
    for step in range(steps):
        yield home.with_name(f"{home.name}-{step}")


def is_sound(site: Site) -> None:
    """Inbox, state, start and files tell of the same samples."""
    state, ids = now(site), site.samples().ids
    state.pools.check()
    with site.home.database.reading() as db:
        named = [row["id"] for row in db.execute("SELECT id FROM samples ORDER BY id")]
    assert state.ids.tolist() == named
    assert ids is not None
    assert np.isin(state.ids, ids).all()
    assert np.isin(site.start().ids, ids).all()
    play(site, 11, 12)


@pytest.mark.parametrize("turns", [(), (1, 2)])
def test_a_removal_that_was_cut_short_is_finished_or_can_be_done_again(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home", annotator="simulated" if turns else "page")
    held = site.held_out()
    assert held is not None
    picture = held.inputs[3].tobytes()
    put(site, some(2, SHADE), [CANARY, "other.txt"])
    keep_texts(site.path, [CANARY, "other.txt"], ["the canary sings", "another"])
    play(site, *turns)
    site.close()
    begun = 0
    for home in cut_at_every_step(tmp_path / "home", "forget"):
        site = Site(home)
        if site.home.inbox.sample_named(CANARY) is None:
            begun += 1
        else:
            change.forget(site, change.find(site, [CANARY, HELD_OUT]))
        site.close()
        left = all_bytes(home)
        assert CANARY.encode() not in left
        assert HELD_OUT.encode() not in left
        assert picture not in left
        assert [left.count(bytes([shade]) * 64) for shade in (SHADE, SHADE + 1)] == [0, 1]
        assert b"the canary sings" not in left
        assert b"another" in left
        is_sound(Site(home))
    assert begun > 3


@pytest.mark.parametrize("turns", [(), (1, 2)])
def test_an_addition_that_was_cut_short_is_finished_or_can_be_done_again(
    tmp_path: Path, turns: tuple[int, ...]
) -> None:
    site = tiny_site(tmp_path / "home", annotator="page" if turns else "simulated")
    play(site, *turns)
    before = now(site).ids.size
    site.close()
    for home in cut_at_every_step(tmp_path / "home", "add"):
        site = Site(home)
        put(site, some(2, SHADE), [CANARY, "other.txt"])
        assert now(site).ids.size == before + 2
        assert all_bytes(home).count(bytes([SHADE]) * 64) == 1
        is_sound(site)


def test_a_site_whose_making_was_cut_short_is_made_by_the_same_command(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    whole = cut = 0
    for home in cut_at_every_step(tmp_path / "home", "make"):
        if (home / "site.json").exists():
            whole += 1
            with pytest.raises(LabelError, match="is a client's home already"):
                tiny_site(home)
        else:
            with pytest.raises(LabelError, match="is not a site"):
                Site(home)
            cut += 1
            # the second try holds nothing out: nothing of the first may stay
            assert tiny_site(home, held_out=False).held_out() is None
        is_sound(Site(home))
        assert not (home / "making").exists() or whole
    assert cut > 5
    assert whole > 0


def test_a_home_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    tiny_site(tmp_path / "home").close()
    (tmp_path / "home" / "site.json").unlink()
    with pytest.raises(LabelError, match="is a client's home already"):
        tiny_site(tmp_path / "home")
    assert (tmp_path / "home" / "client.json").exists()
