from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation.transports import METRICS, Script, ThreeSites, prompt, update_for
from support import small_settings

from chase.core.errors import FederationError, UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.federation.checks import Outgrown, check_answer
from chase.federation.rules import FederationDirectory, Member, MemberList, Rules, make_rules
from chase.federation.transport import Hello, Reply, SiteMessage, Tally
from chase.server.server import Server


def slow(seconds: float):
    return lambda letter, turn: (seconds, prompt(letter, turn)[1])


def test_a_round_in_which_all_answer_is_closed_at_once(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1, 2]
    assert table.transport.clock.now < 5
    assert table.told("joined") == [(0, "a"), (0, "b"), (0, "c")]


def test_at_the_deadline_a_round_goes_on_with_its_quorum(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2)
    table.transport.scripts[12] = slow(1000)
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1]
    assert outcome.missing == ["c"]
    assert 60 <= table.transport.clock.now < 65


def test_without_its_quorum_a_round_waits_beyond_the_deadline(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)
    table.transport.scripts[12] = slow(200)
    assert sorted(table.hold(1).updates) == [0, 1, 2]
    assert table.transport.clock.now >= 200
    assert table.told("short of quorum") == [(1, "")]


def test_a_busy_site_gets_no_new_order_and_its_late_answer_is_used_once(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2, late_rounds=1)
    table.transport.scripts[12] = lambda letter, turn: (62.0 if turn == 0 else 1.0, prompt(letter, turn)[1])
    table.transport.scripts[10] = slow(20)
    table.hold(1)
    second = table.hold(2)
    assert second.late == ["c"]
    assert second.orders[2].round == 1
    assert second.orders[0].round == 2
    orders_of_c = [x.order.round for x in table.transport.sent if x.kind == "turn" and x.node == 12]
    assert orders_of_c == [1]
    third = table.hold(3)
    assert third.orders[2].round == 3
    assert third.late == []


def test_an_answer_that_is_too_late_is_dropped(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2, late_rounds=0)
    table.transport.scripts[12] = lambda letter, turn: (62.0 if turn == 0 else 1.0, prompt(letter, turn)[1])
    table.transport.scripts[10] = slow(20)
    table.hold(1)
    second = table.hold(2)
    assert sorted(second.updates) == [0, 1]
    assert table.told("dropped") == [(2, "c")]
    assert sorted(table.hold(3).updates) == [0, 1, 2]


def test_a_site_that_stays_busy_is_named_as_busy(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2)
    table.transport.scripts[12] = slow(90_000)
    table.hold(1)
    assert table.hold(2).busy == ["c"]


def test_a_failed_site_is_asked_again_and_then_left_out(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2, retries=2)
    table.transport.scripts[11] = lambda letter, turn: (
        1.0,
        "node unavailable" if turn == 0 else prompt(letter, turn)[1],
    )
    assert sorted(table.hold(1).updates) == [0, 1, 2]
    assert table.told("failed") == [(1, "b")]
    table.transport.scripts[11] = lambda letter, turn: (1.0, "node unavailable")
    outcome = table.hold(2)
    assert sorted(outcome.updates) == [0, 2]
    assert outcome.missing == ["b"]
    assert len([x for x in table.transport.sent if x.node == 11 and x.order and x.order.round == 2]) == 3


BAD = {
    "nan": {"weights": {"w": np.array([1, np.nan, 1], dtype=np.float32)}},
    "infinity": {"weights": {"w": np.array([1, np.inf, 1], dtype=np.float32)}},
    "shape": {"weights": {"w": np.zeros(4, dtype=np.float32)}},
    "dtype": {"weights": {"w": np.zeros(3, dtype=np.float64)}},
    "name": {"weights": {"v": np.zeros(3, dtype=np.float32)}},
    "round": {"round": 7},
    "client": {"client": 0},
    "negative weight": {"num_labeled": -1},
    "huge weight": {"num_labeled": 10**9},
    "weight that is not the pool": {"num_labeled": 5},
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_update_is_refused_by_site_and_reason_and_the_round_goes_on(tmp_path: Path, case: str) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)
    table.transport.scripts[12] = lambda letter, turn: (1.0, update_for(letter.order, 2, 9.0, **BAD[case]))
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1]
    assert list(outcome.refused) == ["c"]
    assert outcome.refused["c"].startswith("update of client 2")
    assert table.told("refused") == [(1, "c")]


@pytest.mark.parametrize(
    "change",
    [{"secret": 1.0}, {"labels": float("nan")}, {"labels": -1.0}, {"labels": None}],
)
def test_metrics_that_were_not_agreed_on_are_refused(tmp_path: Path, change: dict) -> None:
    table = ThreeSites.set(tmp_path)

    def script(letter: SiteMessage, turn: int):
        good = update_for(letter.order, 2, 1.0)
        metrics = {k: v for k, v in (dict(good.metrics) | change).items() if v is not None}
        return 1.0, update_for(letter.order, 2, 1.0, metrics=metrics)

    table.transport.scripts[12] = script
    assert list(table.hold(1).refused) == ["c"]


def test_an_answer_nobody_asked_for_and_one_that_comes_twice_change_nothing(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    collect = table.transport.collect

    def twice(tickets):
        found = collect(tickets)
        forged = [Reply("never-sent", a.body) for a in found if isinstance(a.body, ClientUpdate)]
        return found + found + forged

    table.transport.collect = twice  # type: ignore[method-assign]
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1, 2]
    assert table.whys("refused") == ["an answer that no open order asked for"] * 6


def test_a_site_that_joins_later_takes_part_from_then_on(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2)
    table.transport.online[12] = "c"
    table.rounds.members.nodes.pop(2)
    table.rounds.members._asked_at.pop(12)
    table.transport.comes_at[12] = 1.0
    assert sorted(table.hold(1).updates) == [0, 1]
    assert sorted(table.hold(2).updates) == [0, 1, 2]


def test_a_site_is_refused_by_the_differences_it_finds(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    table.transport.online[13] = "d"
    table.transport.hellos[13] = Hello("d", (), 100, 20)
    table.rounds.members.look(1)
    assert table.rounds.members.refused["d"] == "'d' is not on the list of sites"


def test_a_node_with_the_key_of_one_site_cannot_pass_as_another(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    table.rounds.members.nodes.clear()
    table.transport.online = {20: "b", 21: ""}
    table.transport.hellos = {20: Hello("a", (), 100, 20), 21: Hello("c", ())}
    table.rounds.members.look(1)
    assert table.rounds.members.here() == {}
    said = table.rounds.members.refused  # under who it is, not under whom it would be
    assert said["b"] == "it calls itself 'a', but its key is that of 'b'"
    assert said["node 21"] == "it calls itself 'c', but its key is on no list"
    assert said.keys() == {"b", "node 21"}


def test_two_nodes_of_one_name_are_not_both_let_in(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, authenticated=False)
    table.transport.online[13] = ""
    table.transport.hellos[13] = Hello("a", (), 100, 20)
    table.rounds.members.look(1)
    assert table.rounds.members.nodes[0] == 10
    assert "from another node" in table.rounds.members.refused["a"]


def test_held_out_parts_are_summed_and_who_answers_nonsense_is_left_out(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    sums = table.rounds.tallies(1, lambda c: SiteMessage(table.rounds.members.nodes[c], "tally"), 30.0)
    assert sums == Tally(10, 10)  # nodes 11 and 12 claim more right answers than they have samples
    assert table.told("no score") == [(1, "b"), (1, "c")]


def test_late_and_prompt_updates_are_averaged_in_the_order_of_the_clients(tmp_path: Path) -> None:
    server = Server("run", small_settings(), {"w": np.zeros(3, dtype=np.float32)})
    old = RoundOrder("run", 1, 0, server.weights)
    new = RoundOrder("run", 2, 0, server.weights)
    server.aggregate({2: old, 0: new}, [update_for(old, 2, 3.0), update_for(new, 0, 1.0)])
    assert server.weights["w"].tolist() == [2.0, 2.0, 2.0]


def test_rules_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="did you mean 'quorum'"):
        make_rules({"quorm": 2})
    with pytest.raises(FederationError, match="deadline = 0"):
        make_rules({"deadline": 0})
    with pytest.raises(FederationError, match="evaluate = 'moon'"):
        make_rules({"evaluate": "moon"})
    with pytest.raises(FederationError, match="give a whole number"):
        make_rules({"quorum": "two"})


def test_a_federation_is_read_back_as_it_was_written_and_made_once(tmp_path: Path) -> None:
    rules = Rules(quorum=2, deadline=5.5, evaluate="both")
    federation = FederationDirectory.create(tmp_path / "fed", rules, True, "127.0.0.1", 1234)
    federation.keep(federation.roster.admit("site-a").admit("site-b", "ssh-key"))
    again = FederationDirectory(tmp_path / "fed")
    assert (again.rules, again.secure, again.address) == (rules, True, ("127.0.0.1", 1234))
    assert [(m.number, m.name, m.key) for m in again.roster.members] == [(0, "site-a", ""), (1, "site-b", "ssh-key")]
    with pytest.raises(FederationError, match="is a federation already"):
        FederationDirectory.create(tmp_path / "fed", rules, True, "127.0.0.1", 1)
    with pytest.raises(FederationError, match="another key"):
        again.roster.admit("site-b", "other")


def test_a_sound_update_passes() -> None:
    order = RoundOrder("run", 1, 0, {"w": np.zeros(3, dtype=np.float32)})
    check_answer(update_for(order, 0, 1.0), order, Rules(), 100)


def test_second_opinions_are_labels_that_no_sample_has_to_stand_for() -> None:
    order = RoundOrder("run", 1, 0, {"w": np.zeros(3, dtype=np.float32)})
    sound = update_for(order, 0, 1.0)
    more = {**sound.metrics, "labels": 150.0, "second_opinions": 60.0, "second_opinions_waiting": 2.0}
    check_answer(replace(sound, metrics=more), order, Rules(), 100)
    with pytest.raises(Outgrown, match="110 labels given"):
        check_answer(replace(sound, metrics={**more, "second_opinions": 40.0}), order, Rules(), 100)
    with pytest.raises(UpdateError, match="more second opinions than labels"):
        check_answer(replace(sound, metrics={**more, "second_opinions": 151.0}), order, Rules(), 100)


def lost(letter: SiteMessage, turn: int) -> tuple[float, object]:
    """The first order is never answered, those after it are."""
    return (1e9, "") if turn == 0 else prompt(letter, turn)


def test_an_order_lost_by_a_node_that_was_started_anew_is_sent_again(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)
    table.transport.scripts[11], table.transport.restarts[11] = lost, (20.0,)
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1, 2]
    assert table.transport.clock.now < 30
    assert table.whys("failed") == ["its node was restarted"]
    assert table.told("asked again") == [(1, "b")]


def test_an_order_of_an_earlier_round_that_was_lost_does_not_keep_a_site_busy(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2, deadline=10.0)
    table.transport.scripts[11], table.transport.restarts[11] = lost, (12.0,)
    assert table.hold(1).missing == ["b"]
    table.transport.clock.now = 15.0
    assert sorted(table.hold(2).updates) == [0, 1, 2]


def test_a_handshake_that_was_lost_is_sent_again(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    members, transport = table.rounds.members, table.transport
    transport.online[13] = "d"
    members.roster = lambda: MemberList((*(Member(n, name, "key") for n, name in enumerate("abcd")),))
    collect, transport.collect = transport.collect, lambda tickets: []  # type: ignore[method-assign]
    members.look(1)
    transport.collect = collect  # type: ignore[method-assign]
    members._asked = {f"never-{t}": n for t, n in members._asked.items()}
    transport._due |= dict.fromkeys(members._asked, (1000000000.0, ""))
    for _ in range(300):
        transport.clock.sleep(1.0)
        members.look(1)
    assert members.here()[3] == 13
    assert sum(1 for letter in transport.sent if letter.node == 13 and letter.kind == "hello") == 2


def test_a_site_that_was_let_out_is_asked_no_more(tmp_path: Path) -> None:
    roster = MemberList().admit("a", "k one").admit("b", "k two").dismiss("a")
    assert [m.name for m in roster.active] == ["b"]
    table = ThreeSites.set(tmp_path)
    table.rounds.members.roster = lambda: MemberList(
        tuple(Member(n, name, "key", out=name == "a") for n, name in enumerate("abc"))
    )
    table.rounds.members.look(1)
    assert sorted(table.rounds.members.here()) == [1, 2]
    table.rounds.members.nodes.clear()
    table.transport.clock.sleep(60.0)
    table.rounds.members.look(1)
    assert table.rounds.members.refused["a"] == "'a' was removed"


def test_a_key_belongs_to_one_site_and_is_never_let_in_again() -> None:
    roster = MemberList().admit("a", "ecdsa one a").admit("b", "ecdsa two b")
    assert roster.admit("a", "ecdsa one another comment").named("a").number == 0  # type: ignore[union-attr]
    with pytest.raises(FederationError, match="is that of site 'a': every site has its own"):
        roster.admit("c", "ecdsa one c")
    with pytest.raises(FederationError, match="with another key"):
        roster.admit("a", "ecdsa three a")
    without = roster.at_node("a", "17").dismiss("a")
    with pytest.raises(FederationError, match="not accepted again"):
        without.admit("a", "ecdsa one a")
    back = without.admit("a", "ecdsa three a").named("a")
    assert back == Member(0, "a", "ecdsa three a", retired=("ecdsa one a",))
    with pytest.raises(FederationError, match="'z'"):
        roster.dismiss("z")


def test_the_list_of_sites_is_read_back_as_it_was(tmp_path: Path) -> None:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1)
    roster = (
        MemberList().admit("a", "ecdsa one").at_node("a", "17").dismiss("a").admit("a", "ecdsa two").admit("b", "x y")
    )
    federation.keep(roster)
    assert federation.roster == roster


def test_no_more_sites_are_asked_at_once_than_the_rule_says(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3, at_once=1)
    table.rounds.members.at_once = 1
    most: list[int] = []
    table.transport.scripts = dict.fromkeys((10, 11, 12), slow(5.0))
    show, table.rounds._show = table.rounds._show, lambda *args: most.append(len(table.rounds.owed)) or show(*args)  # type: ignore[method-assign]
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 1, 2]
    assert max(most) == 1
    assert 15 <= table.transport.clock.now < 25
    sums = table.rounds.tallies(1, lambda c: SiteMessage(table.rounds.members.nodes[c], "tally"), 30.0)
    assert sums == Tally(10, 10)


def test_who_has_not_been_asked_at_the_deadline_is_missing(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=1, deadline=10.0, at_once=1)
    table.transport.scripts = dict.fromkeys((10, 11, 12), slow(8.0))
    assert table.hold(1).missing == ["b", "c"]


def scaled(factor: float) -> Script:
    def answer(letter: SiteMessage, turn: int) -> tuple[float, object]:
        assert letter.order is not None
        return 1.0, update_for(letter.order, int(letter.header["number"]), factor)

    return answer


def test_an_update_times_a_thousand_is_refused_named_and_the_honest_ones_go_on(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)
    table.transport.scripts = {10: scaled(1.0), 11: scaled(1000.0), 12: scaled(2.0)}
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 2]
    assert "500 times the median" in outcome.refused["b"]
    assert table.told("refused") == [(1, "b")]
    table.transport.scripts[11] = scaled(16.0)
    outcome = table.hold(2)
    assert outcome.clipped == {"b": 8.0}
    assert outcome.updates[1].weights["w"].tolist() == [10.0] * 3
    assert table.told("clipped") == [(2, "b")]
    sites = outcome.as_metrics()["sites"]
    assert isinstance(sites, dict)
    assert sites["clipped"] == {"b": 8.0}


def test_a_site_that_claims_more_labels_than_it_has_samples_is_refused_and_greeted_again(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)

    def liar(letter: SiteMessage, turn: int) -> tuple[float, object]:
        assert letter.order is not None
        claim = {**METRICS, "pool_labeled": 9_999_999.0}
        return 1.0, update_for(letter.order, 1, 1.0, num_labeled=9_999_999, metrics=claim)

    table.transport.scripts[11] = liar
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 2]
    assert "more than the 100 samples" in outcome.refused["b"]
    table.transport.scripts[11] = prompt
    assert sorted(table.hold(2).updates) == [0, 1, 2]
    assert [m.kind for m in table.transport.sent if m.node == 11].count("hello") == 2


def test_a_score_over_more_samples_than_a_site_holds_out_is_not_counted(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path)
    table.rounds.members.said[0] = Hello("a", (), 100, 5)
    sums = table.rounds.tallies(1, lambda c: SiteMessage(10 + c, "tally"), 60.0)
    assert sums == Tally(0, 0)
    assert table.whys("no score")[0] == "an impossible score: 10 of 10, of 5 held out"


def test_an_answer_that_breaks_the_checks_themselves_costs_its_site_alone(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)

    def odd(letter: SiteMessage, turn: int) -> tuple[float, object]:
        assert letter.order is not None
        return 1.0, update_for(letter.order, 1, 1.0, weights={"w": "not an array"})

    table.transport.scripts[11] = odd
    outcome = table.hold(1)
    assert sorted(outcome.updates) == [0, 2]
    assert outcome.refused == {"b": "the answer cannot be used (AttributeError)"}


def test_a_site_that_is_always_a_little_late_is_part_of_every_second_round(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=2, deadline=60.0)
    honest = scaled(1.0)
    table.transport.scripts[11] = lambda letter, turn: (75.0, honest(letter, turn)[1])
    took = [sorted(table.hold(round).updates) for round in range(1, 7)]
    assert took == [[0, 2], [0, 1, 2]] * 3
    assert table.told("late") == [(2, "b"), (4, "b"), (6, "b")]
    assert table.hold(7).seconds["a"] == 1.0


def test_a_site_restored_from_an_older_copy_is_noticed(tmp_path: Path) -> None:
    table = ThreeSites.set(tmp_path, quorum=3)
    kept: list[dict[int, int]] = []
    table.rounds.members.keep_turns = lambda turns: kept.append(dict(turns))

    def at_turn(turn: float) -> Script:
        def answer(letter: SiteMessage, _: int) -> tuple[float, object]:
            assert letter.order is not None
            return 1.0, update_for(letter.order, 1, 1.0, metrics={**METRICS, "turn": turn})

        return answer

    for round, turn in ((1, 90.0), (2, 9.0)):
        table.transport.scripts[11] = at_turn(turn)
        table.hold(round)
    assert table.told("rolled back") == [(2, "b")]
    assert "9 turns, and had taken 90" in table.whys("rolled back")[0]
    assert kept[-1][1] == 9
