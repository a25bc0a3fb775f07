"""Rounds of which the server learns sums only, and rounds under differential privacy, over packed messages."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from federation.real import federation_settings, saved_state
from federation.transports import Clock
from federation.wire import Wire

from chase.core.errors import FederationError
from chase.federation.diary import events
from chase.federation.ops.setup import Loopback
from chase.federation.privacy import Budget
from chase.federation.rollback import roll_back
from chase.federation.rules import Rules
from chase.federation.run import run_federation
from chase.federation.transport import SiteMessage, Ticket
from chase.run.checkpoint import Checkpoint
from chase.run.metrics import Metrics
from chase.run.record import Record
from chase.server.server import model_of
from chase.site import approval
from chase.site.place import Site

SETTINGS = {"clients": 5, "rounds": 2, "local_epochs": 2, "classes_per_client": 4, "client_weights": "equal"}

CLOSED = {"learner": "closed-form", "filters": 8, "fit_passes": 1, "min_labels": 1, "strategy": "margin"}


def federation(path: Path, changes: dict[str, object] | None = None, **rules: object) -> Loopback:
    return Loopback.prepare(
        path,
        federation_settings(**{**SETTINGS, **(changes or {})}),
        Rules(quorum=3, deadline=30.0, **rules),
        secure=False,
    )


def wire_of(loopback: Loopback) -> Wire:
    return Wire({100 + n: home for n, home in enumerate(loopback.homes.values())})


def run(loopback: Loopback, wire: Wire, last: float = 100_000.0) -> list[Metrics]:
    clock = Clock(last=last)
    return run_federation(loopback.federation, wire, clock, clock.sleep)


def model(loopback: Loopback) -> dict[str, np.ndarray]:
    checkpoint = Checkpoint(loopback.federation.run / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    return model_of(checkpoint.read_arrays(manifest.server))


def told(loopback: Loopback, what: str) -> list[str]:
    return [e["why"] for e in events(loopback.federation.run) if e["what"] == what]


@pytest.mark.parametrize("weights", ["equal", "labelled"])
def test_a_secure_federation_learns_what_a_plain_one_learns(tmp_path: Path, weights: str) -> None:
    changes = {"client_weights": weights}
    plain = federation(tmp_path / "plain", changes, evaluate="sites")
    secure = federation(tmp_path / "secure", changes, evaluate="sites", secure=True)
    wire = wire_of(secure)
    ours, theirs = run(secure, wire), run(plain, wire_of(plain))
    first, second = model(secure), model(plain)
    for name in first:
        assert np.abs(first[name] - second[name]).max() < 1e-6, name
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["took_part"] == other["took_part"] == 5
        assert (mine["labels"], mine["inferences"], mine["pools"]) == (
            other["labels"],
            other["inferences"],
            other["pools"],
        )
        assert (mine["site_correct"], mine["site_count"]) == (other["site_correct"], other["site_count"])
        assert mine["clients"] == {}
    assert told(secure, "no sum") == []


def test_what_reaches_the_server_holds_neither_weights_nor_counts_of_one_site(tmp_path: Path) -> None:
    secure = federation(tmp_path / "fed", {"rounds": 1}, secure=True)
    wire = wire_of(secure)
    run(secure, wire)
    kinds = [kind for _, kind, _ in wire.seen]
    assert [kinds.count(kind) for kind in ("turn", "shares", "masked", "unmask")] == [5, 5, 5, 5]
    home = next(iter(secure.homes.values()))
    site = Site(home)
    committed = (home / "state").iterdir()
    bias = np.concatenate([np.frombuffer(path.read_bytes()[-400:], dtype=np.uint8) for path in committed])
    site.close()
    sent = b"".join(part for node, _, parts in wire.seen if node == 100 for part in parts)
    assert len(sent) > 10_000
    assert bias.tobytes()[-80:] not in sent
    assert b"pool_labeled" not in sent
    assert b"num_labeled" in sent  # always 0
    assert not (home / "secure" / "turn.json").stat().st_mode & 0o077 or (home / "secure").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["turn", "shares", "masked", "unmask"])
def test_a_site_may_drop_out_in_every_phase(tmp_path: Path, kind: str) -> None:
    secure = federation(tmp_path / "fed", {"rounds": 2}, secure=True)
    wire = wire_of(secure)
    wire.lost = {(102, kind)}
    metrics = run(secure, wire)
    counted = 5 if kind == "unmask" else 4
    assert [line["took_part"] for line in metrics] == [counted, counted if kind != "turn" else 4]
    assert told(secure, "no sum") == []
    assert all(np.isfinite(array).all() for array in model(secure).values())
    assert metrics[-1]["test_accuracy"] is not None


def test_too_few_sites_give_no_sum_and_the_model_stays(tmp_path: Path) -> None:
    secure = federation(tmp_path / "fed", {"rounds": 1}, secure=True)
    wire = wire_of(secure)
    wire.lost = {(node, "masked") for node in (100, 101, 102)}
    (line,) = run(secure, wire)
    assert line["took_part"] == 0
    assert told(secure, "no sum") == ["only 2 sites sent vectors, 3 are needed: this round has no sum"]


@pytest.mark.parametrize("learner", [{}, CLOSED], ids=["network", "closed-form"])
def test_a_round_that_is_held_again_has_no_sum_over_other_sites(tmp_path: Path, learner: dict[str, object]) -> None:
    """The server dies after a sum and before it is saved: the sum over one site fewer would give that site away."""
    secure = federation(tmp_path / "fed", {"rounds": 1, **learner}, secure=True)
    place, before = secure.federation.run, tmp_path / "before"
    run(secure, wire_of(secure))
    record = Record.open(place)
    record.keep(record.changed({"rounds": 2}))
    shutil.copytree(place, before)

    def hold_again(lost: set[tuple[int, str]]) -> Metrics:
        shutil.rmtree(place)
        shutil.copytree(before, place)
        wire = wire_of(secure)
        wire.lost = lost
        return run(secure, wire)[-1]

    assert hold_again(set())["took_part"] == 5
    learnt = model(secure)
    assert hold_again({(104, "turn")})["took_part"] == 0
    assert told(secure, "no sum") == ["only 0 sites helped to unmask the sum, 3 are needed: this round has no sum"]
    why = "this round was summed with other sites before: what a site sends is part of one sum only"
    assert told(secure, "failed") == [why] * 4
    assert hold_again(set())["took_part"] == 5
    again = model(secure)
    assert all((again[name] == learnt[name]).all() for name in learnt)


@dataclass
class KilledInRoundOne(Wire):
    """Ends the server when so many sites have done their first turn."""

    done: int = 0

    def do(self, letter: SiteMessage) -> Ticket:
        if letter.order is not None and letter.order.round == 1:
            self.done -= 1
            if self.done < 0:
                raise KeyboardInterrupt
        return super().do(letter)


def test_features_that_were_summed_with_other_sites_say_how_to_begin_again(tmp_path: Path) -> None:
    """The server dies after features were fitted by four sites, and begins again with five."""
    secure = federation(tmp_path / "fed", {"rounds": 1, **CLOSED}, secure=True)
    wire = KilledInRoundOne(wire_of(secure).homes)
    wire.lost = {(104, "turn")}
    with pytest.raises(KeyboardInterrupt):
        run(secure, wire)
    with pytest.raises(FederationError, match="were summed with other sites before: run `chase federation rollback"):
        run(secure, wire_of(secure))
    roll_back(secure.federation, 0)
    assert run(secure, wire_of(secure))[-1]["took_part"] == 5


def test_a_secure_server_whose_first_round_was_not_saved_says_how_to_begin_again(tmp_path: Path) -> None:
    """The sites have done the round, and the server fits features again."""
    fed = federation(tmp_path / "fed", {"rounds": 1, **CLOSED}, secure=True)
    place, before = fed.federation.run, tmp_path / "before"
    shutil.copytree(place, before)
    run(fed, wire_of(fed))
    shutil.rmtree(place)
    shutil.copytree(before, place)
    with pytest.raises(FederationError, match="Run `chase federation rollback FED 0`, then run it again"):
        run(fed, wire_of(fed))
    roll_back(fed.federation, 0)
    assert run(fed, wire_of(fed))[-1]["took_part"] == 5


@pytest.mark.parametrize("asked", [0, 1, 4])
def test_a_server_that_was_killed_in_round_one_of_closed_form_fits_features_anew(tmp_path: Path, asked: int) -> None:
    """Sites that had done the round would have answered with sums of features that are not those of the model."""
    fed, clean = (federation(tmp_path / name, {"rounds": 1, **CLOSED}) for name in ("fed", "clean"))
    with pytest.raises(KeyboardInterrupt):
        run(fed, KilledInRoundOne(wire_of(fed).homes, done=asked))
    assert run(fed, wire_of(fed))[-1]["took_part"] == 5
    run(clean, wire_of(clean))
    assert told(fed, "refused") == []
    ours, theirs = model(fed), model(clean)
    assert all((ours[name] == theirs[name]).all() for name in ours if name.startswith("feature_"))


class SameModelTwice(Wire):
    """Round 2 has no sum, so its model is that of round 1, and one site fewer scores it."""

    def do(self, letter: SiteMessage) -> Ticket:
        context = str(letter.header.get("context", ""))
        no_sum = {(node, "masked") for node in (100, 101, 102)} if " turn 2." in context else set()
        self.lost = no_sum | ({(104, "tally")} if " tally 2." in context else set())
        return super().do(letter)


def test_a_model_that_stays_is_not_scored_by_other_sites(tmp_path: Path) -> None:
    """The difference of the two scores would be that of one site."""
    secure = federation(tmp_path / "fed", evaluate="sites", secure=True)
    first, second = run(secure, SameModelTwice(wire_of(secure).homes))
    assert (first["took_part"], second["took_part"]) == (5, 0)
    assert first["site_count"] > 0
    assert (second["site_count"], second["test_accuracy"]) == (0, None)
    assert told(secure, "no score") == ["only 0 sites helped to unmask the sum, 3 are needed: this round has no sum"]


def test_privacy_is_spent_round_by_round_and_never_more_than_allowed(tmp_path: Path) -> None:
    loud = federation(tmp_path / "loud", {"rounds": 3}, dp_epsilon=8.0, dp_clip=0.5)
    metrics = run(loud, wire_of(loud))
    spent = [line["dp_epsilon"] for line in metrics]
    assert 0 < spent[0] < spent[1] < spent[2] <= 8.0
    assert spent[2] > 7.9
    quiet = federation(tmp_path / "quiet", {"rounds": 3})
    run(quiet, wire_of(quiet))
    moved = max(float(np.abs(model(loud)[n] - model(quiet)[n]).max()) for n in model(quiet))
    assert moved > 0.1  # the noise is there


def test_the_accounts_of_server_and_sites_agree_after_a_kill_and_another_quorum(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 2}, dp_epsilon=8.0, dp_clip=0.5)
    wire = wire_of(fed)
    wire.lost = {(node, "turn") for node in wire.homes}
    with pytest.raises(AssertionError, match="stands still"):  # the sites have answered, and the server is killed
        run(fed, wire, 1_000.0)
    fed.federation.keep_rules(fed.federation.changed({"quorum": 4}))
    metrics = run(fed, wire_of(fed))
    assert [line["took_part"] for line in metrics] == [5, 5]
    spent = {Budget(home / "privacy.json", 8.0, 1e-5).spent for home in fed.homes.values()}
    assert spent == {metrics[-1]["dp_epsilon"]}
    assert metrics[-1]["dp_epsilon"] <= 8.01


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    for name, changes, rules, why in (
        ("a", {"combine": "median"}, {"secure": True}, "set combine = mean"),
        ("b", {"client_weights": "labelled"}, {"dp_epsilon": 1.0}, "client_weights = equal"),
        ("c", {"strategy": "ll4al"}, {"secure": True}, "ll4al also sends"),
    ):
        with pytest.raises(FederationError, match=why):
            federation(tmp_path / name, changes, **rules)
        later = federation(tmp_path / f"{name}-later", changes)
        later.federation.keep_rules(later.federation.changed(rules))  # by hand, after the sites joined
        with pytest.raises(FederationError, match=why):
            run(later, wire_of(later))


def test_a_federation_goes_back_and_sites_that_are_ahead_go_on(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 5})
    run(fed, wire_of(fed))
    before = Record.open(fed.federation.run)
    labels = before.metrics[-1]["labels"]
    with pytest.raises(FederationError, match="round 9 is not saved; saved rounds: 1, 2, 3, 4, 5"):
        roll_back(fed.federation, 9)
    roll_back(fed.federation, 1)
    after = Record.open(fed.federation.run)
    assert after.run != before.run
    assert [line["round"] for line in after.metrics] == [1]
    metrics = run(fed, wire_of(fed))
    assert [line["took_part"] for line in metrics] == [5] * 5
    assert metrics[-1]["labels"] > labels  # labels of the rounds that were undone are kept
    assert told(fed, "refused") == []


def test_a_site_runs_a_changed_setting_only_after_its_people_accept_it(tmp_path: Path) -> None:
    home = tmp_path
    assert approval.changes(home, {"lr": 0.1, "rounds": 5, "secure": True}) == []
    assert approval.changes(home, {"lr": 0.1, "rounds": 50, "secure": True}) == []
    assert approval.changes(home, {"lr": 0.1, "rounds": 50, "secure": False}) == ["secure: True -> False"]
    assert approval.proposed(home) == ["secure: True -> False"]
    assert approval.accept(home) == ["secure: True -> False"]
    assert approval.changes(home, {"lr": 0.1, "secure": False}) == []
    assert approval.proposed(home) == []


def test_a_damaged_list_of_accepted_settings_accepts_nothing_by_itself(tmp_path: Path) -> None:
    assert approval.changes(tmp_path, {"secure": True}) == []
    (tmp_path / "accepted.json").write_bytes(b"\x00" * 40)
    assert approval.changes(tmp_path, {"secure": False}) == [approval.UNREADABLE]
    assert approval.proposed(tmp_path) == [approval.UNREADABLE]
    (tmp_path / "proposed.json").write_text("")
    assert approval.accept(tmp_path) == []  # nothing that can be read is proposed
    assert approval.changes(tmp_path, {"secure": True}) == [approval.UNREADABLE]
    assert approval.accept(tmp_path) == [approval.UNREADABLE]
    assert approval.changes(tmp_path, {"secure": True}) == []


def test_a_site_that_lost_its_protection_by_a_change_of_rules_does_not_take_part(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1}, secure=True)
    run(fed, wire_of(fed))
    text = (fed.federation.path / "federation.toml").read_text().replace("secure = true", "secure = false")
    (fed.federation.path / "federation.toml").write_text(text)
    home = next(iter(fed.homes.values()))
    for other in list(fed.homes.values())[1:]:
        (other / "accepted.json").unlink()
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": 2}))
    metrics = run(fed, wire_of(fed))
    assert metrics[-1]["took_part"] == 4
    assert any("secure: True -> False" in why for why in told(fed, "refused"))
    assert approval.accept(home) == ["secure: True -> False"]


def test_rounds_under_changed_rules_wait_until_the_sites_have_accepted_them(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 2, "clients": 3})
    run(fed, wire_of(fed))
    fed.federation.keep_rules(fed.federation.changed({"secure": True}))
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": 3}))
    clock, accepted = Clock(), list[list[str]]()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if not accepted and len(told(fed, "refused")) == 3:
            assert len(Record.open(fed.federation.run).metrics) == 2
            accepted.extend(approval.accept(home) for home in fed.homes.values())

    metrics = run_federation(fed.federation, wire_of(fed), clock, sleep)
    assert accepted == [["secure: False -> True"]] * 3
    assert [line["took_part"] for line in metrics] == [3, 3, 3]
    assert [bool(line["clients"]) for line in metrics] == [True, True, False]  # then sums only
    assert 0 < metrics[1]["labels"] <= metrics[2]["labels"]
    assert metrics[2]["labels"] == sum(saved_state(home).labels_spent for home in fed.homes.values())


def test_a_run_that_is_made_longer_or_goes_back_still_keeps_its_promise(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 2}, dp_epsilon=8.0, dp_clip=0.5)
    first = run(fed, wire_of(fed))
    assert 7.9 < first[-1]["dp_epsilon"] <= 8.0
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": 4}))
    with pytest.raises(FederationError, match="dp_epsilon = 8 is spent"):
        run(fed, wire_of(fed))
    roll_back(fed.federation, 1)
    with pytest.raises(FederationError, match="dp_epsilon = 8 is spent"):
        run(fed, wire_of(fed))


def test_a_server_that_was_restored_from_an_older_copy_is_told_what_to_do(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1})
    run(fed, wire_of(fed))
    shutil.copytree(fed.federation.run, tmp_path / "copy")
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": 6}))
    before = run(fed, wire_of(fed))
    shutil.rmtree(fed.federation.run)
    shutil.copytree(tmp_path / "copy", fed.federation.run)
    record = Record.open(fed.federation.run)
    record.keep(record.changed({"rounds": 3}))
    with pytest.raises(FederationError, match=r"later rounds than 2.*`chase federation rollback FED 1`"):
        run(fed, wire_of(fed))
    roll_back(fed.federation, 1)
    metrics = run(fed, wire_of(fed))
    assert [line["took_part"] for line in metrics] == [5, 5, 5]
    assert metrics[-1]["labels"] > before[-1]["labels"]


def test_one_site_that_says_it_is_ahead_does_not_stop_the_others(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 1})
    record = Record.open(fed.federation.run)
    home = list(fed.homes.values())[1]
    site = Site(home)
    with site.home.database.transaction() as db:
        db.execute("INSERT INTO turns VALUES (1, ?, 9, 'none', 'none', '{}')", (record.run,))
    site.close()
    metrics = run(fed, wire_of(fed))
    assert metrics[0]["took_part"] == 4
    assert any("site-b" in name for name in metrics[0]["sites"]["refused"]) or told(fed, "refused")


def order_without(fed: Loopback, **changes: object) -> tuple[str, list[str]]:
    """What a site answers to an order whose rules a server has changed behind its back, and the reasons it logs."""
    wire = wire_of(fed)
    sent: list[SiteMessage] = []
    honest = wire.send

    def send(letters):  # type: ignore[no-untyped-def]
        changed = [
            replace(x, header={**x.header, "rules": {**x.header["rules"], **changes}}) if x.kind == "turn" else x
            for x in letters
        ]
        sent.extend(changed)
        return honest(changed)

    wire.send = send  # type: ignore[method-assign]
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > 200:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        run_federation(fed.federation, wire, clock, sleep)
    return told(fed, "failed")[0], [x.kind for x in sent]


@pytest.mark.parametrize("changes", [{"secure": False}, {"dp_epsilon": 0.0}, {"dp_clip": 1e6}])
def test_an_order_under_other_rules_than_were_accepted_is_refused(tmp_path: Path, changes: dict) -> None:
    rules = {"secure": True} if "secure" in changes else {"dp_epsilon": 8.0, "dp_clip": 0.5}
    fed = federation(tmp_path / "fed", {"rounds": 1}, **rules)
    why, kinds = order_without(fed, **changes)
    assert why == "refused (ContractError); the site's log says why"
    assert "turn" in kinds
    assert not list((next(iter(fed.homes.values())) / "state").glob("*"))
