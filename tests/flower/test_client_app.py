"""What leaves a site: every record of every answer, looked at in full."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity
from site_room.sites import first_order, tiny_settings, tiny_site

from chase import __version__
from chase.core.errors import ClientError, DataError
from chase.core.messages import RoundOrder
from chase.federation.engine import sent_settings
from chase.federation.transport import SiteMessage
from chase.flower import client_app, codec
from chase.settings import Settings
from chase.site import turn as site_turn
from chase.site.contract import HEADER, contract_of
from chase.site.place import Site

NUMBER = 1
OPEN = {"secure": False, "dp_epsilon": 0.0}
METRICS = re.compile(
    r"turn|picks|ranked_picks|chance_picks|observed_ev_sum|observed_ev_count|train_loss|ev_sum|ev_count|labels|inferences|inferred_samples|seconds_[a-z]+|"
    r"pool_(labeled|unlabeled|asked|dormant|set_aside)"
)


@pytest.fixture(autouse=True)
def identity() -> None:
    """What Flower sets before it calls an app."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def letter(site: Site, settings: Settings, kind: str, order: RoundOrder | None = None, **header: object) -> SiteMessage:
    agreed = contract_of(settings, site.samples(), site.classes)
    text = agreed.to_json() if kind == "hello" else agreed.digest()
    values = {"settings": sent_settings(settings), HEADER: text, "number": NUMBER, "rules": OPEN, **header}
    weights = first_order(site, settings).weights if kind == "tally" else None
    return SiteMessage(1, kind, values, order=order, weights=weights)


def ask(site: Site, letter: SiteMessage) -> RecordDict:
    message = Message(codec.pack_letter(letter), dst_node_id=1, message_type=codec.KINDS[letter.kind])
    return client_app.answer(message, site.path).content


def everything(site: Site, settings: Settings) -> list[RecordDict]:
    """The answers to a handshake, three turns, a repeated order, an evaluation and an order that is refused."""
    said = [ask(site, letter(site, settings, "hello"))]
    weights = first_order(site, settings).weights
    for round in (1, 2, 3, 3):
        said.append(ask(site, letter(site, settings, "turn", RoundOrder("run", round, 0, weights))))
    said.append(ask(site, letter(site, settings, "tally")))
    said.append(ask(site, letter(site, settings, "turn", RoundOrder("run", 9, 0, weights), agreement="another")))
    return said


def test_all_that_leaves_a_site_is_weights_a_count_and_agreed_metrics(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    hello, *turns, tally, refusal = everything(site, settings)
    size = int(site.start().ids.size)
    greeting = {"site": "site-1", "objections": [], "samples": size, "held_out": 20, "turn": 0}
    assert {k: dict(v) for k, v in hello.items()} == {"hello": greeting}
    assert {k: dict(v) for k, v in tally.items()} == {"tally": {"correct": tally["tally"]["correct"], "count": 20}}
    assert dict(refusal["failure"]) == {"reason": "refused (ContractError); the site's log says why", "again": True}
    shapes = {name: a.shape for name, a in first_order(site, settings).weights.items()}
    for turn in turns:
        assert sorted(turn) == ["metrics", "update", "weights/0"]
        assert {name: a.shape for name, a in codec.take_arrays(turn, "weights").items()} == shapes
        assert isinstance(turn["update"], ConfigRecord)
        assert set(turn["update"]) == {"format", "client", "round", "num_labeled"}
        assert isinstance(turn["metrics"], MetricRecord)
        assert all(METRICS.fullmatch(name) for name in turn["metrics"])
    assert [t["update"]["num_labeled"] for t in turns] == [8, 11, 14, 14]


def test_no_name_and_no_class_of_a_sample_is_in_the_bytes_that_leave(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    site.home.inbox.add_samples({i: f"canary-{i}.png" for i in site.start().ids.tolist()})
    sent = b"".join(c for a in everything(site, settings) for c in deflated(a))
    assert b"site-1" in sent  # the search would find what is there
    for secret in (b"canary", b"bright", b"dark", str(tmp_path).encode()):
        assert secret not in sent


def deflated(records: RecordDict) -> list[bytes]:
    """A reply as the bytes that Flower puts on the wire."""
    return [found.deflate() for found in get_all_nested_objects(records).values()]


def test_relabelling_what_was_asked_changes_the_weights_alone(tmp_path: Path) -> None:
    """Two sites that differ in the labels they were given send the same, their weights and losses apart."""
    settings = tiny_settings()
    sites = [tiny_site(tmp_path / f"home-{i}", NUMBER) for i in range(2)]
    truth = sites[1].read("truth")
    sites[1].write("truth", {"ids": truth["ids"], "labels": 1 - truth["labels"]})
    weights = first_order(sites[0], settings).weights
    said = []
    for site in sites:
        turns = [ask(site, letter(site, settings, "turn", RoundOrder("run", r, 0, weights))) for r in (1, 2)]
        said.append(turns[1])
    assert dict(said[0]["update"]) == dict(said[1]["update"])
    quiet = ("train_loss", "ev_sum", "seconds_")
    first, second = ({k: v for k, v in s["metrics"].items() if not k.startswith(quiet)} for s in said)
    assert first == second
    assert not np.array_equal(*(codec.take_arrays(answer, "weights")["head.bias"] for answer in said))


def test_the_text_of_an_error_stays_at_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)

    def fail(*args: object) -> None:
        try:
            raise DataError("sample 17 (anna-smith.png) is torn")
        except DataError as error:
            raise ClientError("1", 2, "training", error) from error

    monkeypatch.setattr("chase.site.turn.take_turn", fail)
    reply = ask(site, letter(site, settings, "turn", first_order(site, settings)))
    assert dict(reply["failure"]) == {"reason": "training failed (DataError); the site's log says why", "again": True}


def test_a_repeated_order_is_answered_from_what_was_committed(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    order = first_order(site, settings)
    first = codec.unpack_update(ask(site, letter(site, settings, "turn", order)))
    again = codec.unpack_update(ask(site, letter(site, settings, "turn", order)))
    assert again.metrics == first.metrics  # seconds included: it was not trained again
    assert all(np.array_equal(again.weights[n], first.weights[n]) for n in first.weights)


def test_a_site_objects_to_other_classes_and_says_which(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    offered = contract_of(settings, site.samples(), ("bright", "dark"))
    message = letter(site, settings, "hello", agreement=offered.to_json())
    said = codec.unpack(ask(site, message))
    assert said.objections == ("class list: the server has (bright, dark), the site (dark, bright)",)


def objections(site: Site, asked: SiteMessage) -> list[str]:
    return list(ask(site, asked)["hello"]["objections"])


def test_what_another_version_sends_is_an_objection_that_names_both_versions(tmp_path: Path) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    (said,) = objections(site, letter(site, settings, "hello", format=99))
    assert said.startswith("a message has format 99, this site reads ")
    assert f"the server runs chase {__version__}, the site {__version__}" in said
    newer = letter(site, settings, "hello", chase="9.9")
    (said,) = objections(site, replace(newer, header={**newer.header, "settings": {"brand_new_setting": 1}}))
    assert "brand_new_setting" in said
    assert "the server runs chase 9.9" in said
    (said,) = objections(site, letter(site, settings, "hello", agreement="{}"))
    assert "a contract cannot be read" in said
    refused = ask(site, letter(site, settings, "tally", format=99))
    assert dict(refused["failure"]) == {"reason": "refused (UpdateError); the site's log says why", "again": True}


def test_a_model_that_is_not_finite_is_neither_kept_nor_sent_and_the_next_round_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings()
    site = tiny_site(tmp_path / "home", NUMBER)
    weights = first_order(site, settings).weights
    first = codec.unpack_update(ask(site, letter(site, settings, "turn", RoundOrder("run", 1, 0, weights))))
    before = site_turn.turns(site), site.home.inbox.mark("taken"), len(list((site.path / "state").iterdir()))
    wild = {name: array * np.float32(1e30) if array.dtype == np.float32 else array for name, array in weights.items()}
    said = ask(site, letter(site, settings, "turn", RoundOrder("run", 2, 0, wild)))
    assert dict(said["failure"]) == {
        "reason": "training failed (TrainingError); the site's log says why",
        "again": False,
    }
    assert (site_turn.turns(site), site.home.inbox.mark("taken"), len(list((site.path / "state").iterdir()))) == before
    third = codec.unpack_update(ask(site, letter(site, settings, "turn", RoundOrder("run", 3, 0, weights))))
    assert all(np.isfinite(array).all() for array in third.weights.values())
    assert third.num_labeled == first.num_labeled + settings.budget  # what the lost turn would have asked
