from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from site_room.sites import first_order, tiny_settings, tiny_site

from chase.annotation.inbox import Given
from chase.core.errors import DataError, LabelError
from chase.core.messages import RoundOrder
from chase.homestore import HomeStore
from chase.site import change
from chase.site.agreement import Agreement, agreement_of, differences
from chase.site.place import Site, read_card
from chase.site.status import status
from chase.site.turn import take_turn, tally
from chase.state import ClientState


def now(site: Site) -> ClientState:
    return HomeStore(site.home, site.start()).load()


def play(site: Site, *rounds: int) -> None:
    settings = tiny_settings()
    weights = first_order(site, settings).weights
    for round in rounds:
        take_turn(site, settings, 0, RoundOrder("run", round, 0, weights))


def some(count: int, value: int = 9) -> np.ndarray:
    return np.full((count, 1, 8, 8), value, dtype=np.uint8)


def all_bytes(path: Path) -> bytes:
    return b"".join(f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file())


def test_a_site_is_whole_or_not_there(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    assert status(site)["pools"] == {"labeled": 8, "unlabeled": 32, "asked": 0, "dormant": 0, "set_aside": 0}
    assert status(site)["held_out"] == 20
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0
    with pytest.raises(LabelError, match="is a client's home already"):
        tiny_site(tmp_path / "home")
    with pytest.raises(LabelError, match="not a site"):
        Site(tmp_path)
    (tmp_path / "home" / "site.json").write_text("{")
    with pytest.raises(LabelError, match="damaged"):
        read_card(tmp_path / "home")


@pytest.mark.parametrize("name", ["", "Site A", "../up", "a" * 64, "-x"])
def test_a_name_that_does_not_do_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabelError, match="does not do as the name"):
        tiny_site(tmp_path / "home", name=name or " ")


@pytest.mark.parametrize("turns", [(), (1, 2)])
def test_new_samples_enter_the_pool_before_and_between_turns(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home")
    play(site, *turns)
    before = now(site)
    ids = change.add(site, some(3), ["x.png", "y.png", "z.png"], np.array([-1, 1, 0]))
    after = now(Site(tmp_path / "home"))
    assert ids.min() > before.ids.max()
    assert np.isin(ids, after.pools.unlabeled).all()
    assert after.turn == before.turn
    assert np.array_equal(after.pools.labeled, before.pools.labeled)
    play(Site(tmp_path / "home"), 3, 4)
    last = now(Site(tmp_path / "home"))
    last.pools.check()
    assert last.ids.size == before.ids.size + 3


def test_a_label_that_comes_with_a_new_file_is_taken_in_at_the_next_turn(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home", annotator="page")
    ids = change.add(site, some(2), ["x.png", "y.png"], np.array([-1, 1]))
    play(site, 1)
    after = now(site)
    assert after.labels_of(ids).tolist() == [-1, 1]
    assert ids[1] in after.pools.labeled


def test_a_sample_is_added_once_and_only_if_it_fits(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    change.add(site, some(1), ["x.png"], np.array([-1]))
    with pytest.raises(DataError, match="there already"):
        change.add(site, some(1), ["x.png"], np.array([-1]))
    with pytest.raises(DataError, match="there already"):
        change.add(site, some(2), ["y.png", "y.png"], np.array([-1, -1]))
    with pytest.raises(DataError, match=r"uint8\[1, 9, 9\]"):
        change.add(site, np.zeros((1, 1, 9, 9), dtype=np.uint8), ["q.png"], np.array([-1]))


@pytest.mark.parametrize("turns", [(), (1, 2, 3)])
def test_a_forgotten_sample_leaves_no_trace(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home", annotator="page")
    ids = change.add(site, some(2, value=201), ["canary-one.png", "other.png"], np.array([-1, -1]))
    play(site, *turns)
    who = site.home.people.named("anna").id
    site.home.inbox.answer(Given(int(ids[0]), 1, who))
    play(site, *(r + 3 for r in turns))
    assert b"canary-one" in all_bytes(tmp_path / "home")
    change.forget(site, change.find(site, ["canary-one.png"]))
    site.close()
    left = all_bytes(tmp_path / "home")
    assert b"canary-one" not in left
    assert b"other.png" in left
    assert left.count(bytes([201]) * 64) == 1  # the picture of the other one
    again = Site(tmp_path / "home")
    state = now(again)
    state.pools.check()
    assert not np.isin(ids[0], state.ids)
    assert not np.isin(ids[0], again.start().ids)
    play(again, 10)
    new = change.add(again, some(1), ["later.png"], np.array([-1]))
    assert new[0] > ids[1]  # an id is never used twice


def test_forgetting_what_is_not_there_is_refused(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    with pytest.raises(LabelError, match=r"no sample called nobody\.png"):
        change.find(site, ["nobody.png"])
    with pytest.raises(LabelError, match="not in a pool"):
        change.forget(site, np.array([10_000]))


def test_a_repeated_order_is_still_answered_after_a_sample_was_added_or_forgotten(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    settings = tiny_settings()
    order = first_order(site, settings)
    first = take_turn(site, settings, 0, order)
    change.add(site, some(1), ["x.png"], np.array([0]))
    change.forget(site, now(site).pools.labeled[:1])
    again = take_turn(Site(tmp_path / "home"), settings, 0, order)
    assert again.metrics == first.metrics
    assert all(np.array_equal(again.weights[n], first.weights[n]) for n in first.weights)


def test_a_held_out_part_gives_two_sums_and_none_gives_zero(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "a")
    correct, count = tally(site, settings, first_order(site, settings).weights)
    assert 0 <= correct <= count == 20
    bare = tiny_site(tmp_path / "b", held_out=False)
    assert tally(bare, settings, first_order(bare, settings).weights) == (0, 0)


def test_an_agreement_names_every_difference(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    ours = agreement_of(tiny_settings(), site.samples(), site.classes)
    assert Agreement.from_json(ours.to_json()) == ours
    assert differences(ours, ours) == []
    theirs = Agreement.from_json(ours.to_json().replace('"mean": [0.4]', '"mean": [0.5]').replace("tiny-cnn", "big"))
    assert differences(theirs, ours) == [
        "mean that is subtracted: the server has (0.5), the site (0.4)",
        "network: the server has big, the site tiny-cnn",
    ]
    assert theirs.digest() != ours.digest()
    many = tuple(f"class-{i}" for i in range(30))
    other = agreement_of(tiny_settings(), site.samples(), many)
    swapped = agreement_of(tiny_settings(), site.samples(), (many[1], many[0], *many[2:]))
    assert "the order differs" in differences(other, swapped)[0]
