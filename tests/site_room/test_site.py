from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from site_room.sites import all_bytes, first_order, images, now, play, put, some, tiny_settings, tiny_site

from chase.core.errors import ContractError, DataError, LabelError, PoolError
from chase.core.messages import RoundOrder
from chase.home.inbox import Given
from chase.site import change
from chase.site.contract import Contract, contract_of, differences
from chase.site.place import Site, read_card
from chase.site.status import status
from chase.site.turn import agreed_metrics, take_turn, tally

WRONG = {
    '{"shape": [8, 8]}': r"its shape is \[8, 8\], not channels, height, width",
    '{"shape": [1, 0, 8]}': "its shape is",
    '{"shape": "1x8"}': 'its shape is "1x8"',
    '{"shape": [1, 8.5, 8]}': "its shape is",
    '{"kind": "sound"}': "not image or text",
    '{"kind": "text"}': "not length",
    '{"std": [0.0]}': "divided by",
    '{"classes": []}': "its classes is",
}


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
    with pytest.raises(LabelError, match="is invalid as the name"):
        tiny_site(tmp_path / "home", name=name or " ")


@pytest.mark.parametrize("turns", [(), (1, 2)])
def test_new_samples_enter_the_pool_before_and_between_turns(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home")
    play(site, *turns)
    before = now(site)
    ids = put(site, some(3), ["x.png", "y.png", "z.png"], [-1, 1, 0])
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
    ids = put(site, some(2), ["x.png", "y.png"], [-1, 1])
    play(site, 1)
    after = now(site)
    assert after.labels_of(ids).tolist() == [-1, 1]
    assert ids[1] in after.pools.labeled


def test_a_sample_is_added_once_and_only_if_it_fits(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    put(site, some(1), ["x.png"])
    with pytest.raises(DataError, match=r"names that exist already \(x.png\)"):
        put(site, some(1, value=80), ["x.png"])
    with pytest.raises(DataError, match="exist already"):
        put(site, some(2, value=90), ["y.png", "y.png"])
    with pytest.raises(DataError, match=r"uint8\[1, 9, 9\]"):
        put(site, np.zeros((1, 1, 9, 9), dtype=np.uint8), ["q.png"])


@pytest.mark.parametrize("turns", [(), (1, 2, 3)])
def test_a_forgotten_sample_leaves_no_trace(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home", annotator="page")
    ids = put(site, some(2, value=201), ["canary-one.png", "other.png"])
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
    assert [left.count(bytes([shade]) * 64) for shade in (201, 202)] == [0, 1]  # the picture of the other one
    again = Site(tmp_path / "home")
    state = now(again)
    state.pools.check()
    assert not np.isin(ids[0], state.ids)
    assert not np.isin(ids[0], again.start().ids)
    play(again, 10)
    new = put(again, some(1), ["later.png"])
    assert new[0] > ids[1]  # an id is never used twice


def test_two_that_waited_for_one_turn_both_add(tmp_path: Path) -> None:
    tiny_site(tmp_path / "home")
    first, second = Site(tmp_path / "home"), Site(tmp_path / "home")  # both before either has its turn
    ids = [*put(first, some(2), ["a.png", "b.png"]), *put(second, some(2, value=80), ["c.png", "d.png"])]
    assert ids == list(range(ids[0], ids[0] + 4))
    samples = Site(tmp_path / "home").samples()
    assert samples.inputs[samples.rows(np.array(ids)), 0, 0, 0].tolist() == [9, 10, 80, 81]


def test_an_addition_that_cannot_succeed_writes_nothing(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    site.keep(replace(site.card, next_id=int(site.start().ids.max())))
    before = {file: file.read_bytes() for file in (tmp_path / "home").glob("*.safetensors")}
    with pytest.raises(PoolError, match="already in a pool"):
        put(site, some(1), ["a.png"])
    assert {file: file.read_bytes() for file in (tmp_path / "home").glob("*.safetensors")} == before


@pytest.mark.parametrize("ids", [[0, 2, 1], [0, 1, 1], [0, 1]])
def test_samples_whose_ids_do_not_rise_are_refused(tmp_path: Path, ids: list[int]) -> None:
    with pytest.raises(DataError, match="not one each in rising order"):
        replace(images(3), ids=np.array(ids))


@pytest.mark.parametrize("turns", [(), (1,)])
def test_the_same_picture_enters_once_whatever_it_is_called(tmp_path: Path, turns: tuple[int, ...]) -> None:
    site = tiny_site(tmp_path / "home")
    play(site, *turns)
    held, own = site.held_out(), site.samples()
    assert held is not None
    known = np.stack([held.inputs[3], own.inputs[5].numpy(), *some(2), *some(1)])
    added = change.add(site, change.New(known, ["v", "w", "x", "y", "z"], np.full(5, -1)))
    assert added.ids.size == 2
    assert added.twins[0] == ("v", "held-out-3")
    assert [name for name, _ in added.twins] == ["v", "w", "z"]
    assert added.twins[2] == ("z", "x")
    again = change.add(Site(tmp_path / "home"), change.New(known, ["v", "w", "x", "y", "z"], np.full(5, -1)))
    assert (again.ids.size, len(again.twins)) == (0, 5)
    change.forget(site, added.ids[:1])
    assert put(site, some(1), ["x"]).size == 1  # what was forgotten may come back


def test_a_held_out_sample_can_be_forgotten(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    held = site.held_out()
    assert held is not None
    with pytest.raises(DataError, match="names that exist already"):
        put(site, some(1), ["held-out-4"])
    change.forget(site, change.find(site, ["held-out-4", "image-0" if 0 in site.start().ids else "held-out-7"]))
    assert held.inputs[4].tobytes() not in (tmp_path / "home" / "holdout.safetensors").read_bytes()
    left = Site(tmp_path / "home").held_out()
    assert left is not None
    row = left.names.index("held-out-5")
    assert np.array_equal(left.inputs[row], held.inputs[5])
    with pytest.raises(LabelError, match="no sample called held-out-4"):
        change.find(site, ["held-out-4"])
    change.forget(site, left.ids)
    assert tally(site, tiny_settings(), first_order(site, tiny_settings()).weights) == (0, 0)


def test_a_held_out_part_of_an_earlier_version_has_names_by_number(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    held = site.read("holdout")
    site.write("holdout", {"inputs": held["inputs"], "labels": held["labels"]})
    assert put(site, held["inputs"][:2], ["a", "b"]).size == 0
    change.forget(site, change.find(site, ["held-out-0"]))
    assert status(site)["held_out"] == 19
    assert change.find(site, ["held-out-19"]).tolist() == [-20]


def test_questions_for_what_was_forgotten_are_counted_out(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home", annotator="page")
    play(site, 1, 2)
    asked = now(site).pools.asked
    assert status(site)["open_questions"] == asked.size == 3
    change.forget(site, asked[:2])
    assert status(site)["open_questions"] == 1


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
    put(site, some(1), ["x.png"], [0])
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


def test_a_contract_names_every_difference(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home")
    ours = contract_of(tiny_settings(), site.samples(), site.classes)
    assert Contract.from_json(ours.to_json()) == ours
    for wrong, says in WRONG.items():
        with pytest.raises(ContractError, match=says):
            Contract.from_json(json.dumps(json.loads(ours.to_json()) | json.loads(wrong)))
    assert differences(ours, ours) == []
    theirs = Contract.from_json(ours.to_json().replace('"mean": [0.4]', '"mean": [0.5]').replace("tiny-cnn", "big"))
    assert differences(theirs, ours) == [
        "normalisation mean: the server has (0.5), the site (0.4)",
        "network: the server has big, the site tiny-cnn",
    ]
    assert theirs.digest() != ours.digest()
    many = tuple(f"class-{i}" for i in range(30))
    other = contract_of(tiny_settings(), site.samples(), many)
    swapped = contract_of(tiny_settings(), site.samples(), (many[1], many[0], *many[2:]))
    assert "the order differs" in differences(other, swapped)[0]


def test_a_sites_people_are_asked_again_within_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead's policy decides; the counts of second opinions go up with the other metrics."""
    site, settings = tiny_site(tmp_path / "home", annotator="page"), tiny_settings()
    anna, _ = (site.home.people.named(name).id for name in ("anna", "ben"))
    site.home.policies.change({"second_opinions": 2})
    weights = first_order(site, settings).weights
    for round in (1, 2):
        take_turn(site, settings, 0, RoundOrder("run", round, 0, weights))
    asked = [q["sample"] for q in site.home.ledger.open_questions()]
    for sample in asked:
        site.home.inbox.answer(Given(sample, 0, anna))
    doubts = np.array([[0.02, 0.98]])
    monkeypatch.setattr("chase.client.second_opinions.plain", lambda context, ids: doubts.repeat(ids.size, axis=0))
    order = RoundOrder("run", 3, 0, weights)
    update = take_turn(site, settings, 0, order)
    again = [q for q in site.home.ledger.open_questions() if q["strategy"] == "second opinion"]
    assert len(again) == 2
    assert len(site.home.ledger.open_questions()) == 3, "the budget"
    assert agreed_metrics(update)["second_opinions_waiting"] == 2
    assert update.metrics["labels"] == 3
