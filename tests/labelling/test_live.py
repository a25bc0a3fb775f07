"""Questions that are re-ranked after each answer (``live = true``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desks import Desk, needs_chromium, on_screen
from homes import image_home, served
from playwright.sync_api import Browser, expect
from support import blobs, small_settings

from chase.acquisition.uncertainty import LIVE, ranking
from chase.annotation.behaviour import Behaviour
from chase.client import live as client_live
from chase.client.build import build_net
from chase.client.context import ClientContext
from chase.client.live import temperature
from chase.client.spec import net_spec
from chase.client.state import ClientState
from chase.client.turn import Client, Turn
from chase.closed_form.feature_map import decode
from chase.closed_form.ridge import solve
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError
from chase.core.messages import ClientUpdate
from chase.core.weights import Array
from chase.home.home import Home, HomeCard
from chase.home.inbox import Given
from chase.home.live import Base, read_base
from chase.home.store import ClientStore, resident
from chase.models.net import set_weights
from chase.server.closed_form import ClosedFormServer, make_server
from chase.server.server import new_start
from chase.settings import Settings

KERNEL = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
SCORES = np.array([[0.5, 0.5, 0.0], [0.55, 0.45, 0.0], [0.6, 0.4, 0.0]])


def by_hand(strategy: str = "margin", **changes: Array) -> dict[str, Array]:
    """Samples 10, 11 and 12, asked in this order by their margins; 10 and 11 are alike, 12 is unrelated to both.

    When 10 is of class 0, 11 gains 0.5 (1 - 0.5) / (1 + 1) = 0.125 for class 0 and loses as much for class 1: its
    scores are then (0.675, 0.325), further apart than (0.6, 0.4) of sample 12, which comes first from then on.
    """
    arrays = {
        "ids": np.array([10, 11, 12]),
        "kernel": KERNEL,
        "scores": SCORES,
        "temperature": np.array([0.25]),
        "counts": np.array([2, 2, 2]),
        "strategy": np.frombuffer(strategy.encode(), dtype=np.uint8),
    }
    return arrays | changes


def order_of(base: Base) -> list[int]:
    places = base.places()
    return sorted(places, key=places.__getitem__)


def home_with(path: Path, live: dict[str, Array] | None = None) -> Home:
    """A home whose last turn asked about 10, 11 and 12."""
    home = image_home(path, initial={0: 0, 1: 1})
    start = ClientState.start(np.arange(40), np.array([0, 1]), np.array([0, 1]))
    store = ClientStore(home, start)
    state = store.load().ask(np.array([10, 11, 12]))
    store.commit("run", 1, Turn(ClientUpdate(0, 1, {}, 2, {}, {}), state, (), (), live or {}))
    return home


def asked_next(home: Home, name: str = "anna", count: int = 1) -> list[int]:
    return [q["sample"] for q in home.inbox.next_for(home.people.named(name).id, count, count)]


def answer(home: Home, sample: int, label: int | None, name: str = "anna", **more: Any) -> None:
    home.inbox.answer(Given(sample, label, home.people.named(name).id, "cannot tell" if label is None else "", **more))


# the order


def test_an_answer_changes_the_order_as_worked_by_hand() -> None:
    base = Base(by_hand())
    base.learn({})
    assert order_of(base) == [10, 11, 12]
    base.learn({10: 0})
    assert base._live.scores[1] == pytest.approx([0.675, 0.325, 0.0])
    assert order_of(base) == [12, 11]


def test_an_undone_or_corrected_label_is_as_if_it_had_never_been() -> None:
    base, fresh = Base(by_hand()), Base(by_hand())
    base.learn({10: 0, 12: 1})
    base.learn({10: 2, 12: 1})
    fresh.learn({12: 1, 10: 2})
    assert base._live.scores == pytest.approx(fresh._live.scores, abs=1e-12)
    base.learn({})
    assert np.array_equal(base._live.scores, SCORES)
    assert order_of(base) == [10, 11, 12]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("margin", [1, 0, 2]),
        ("least-confidence", [1, 2, 0]),
        ("entropy", [2, 1, 0]),
        ("posterior", [0, 2, 1]),
        ("balanced-margin", [2, 1, 0]),
    ],
)
def test_every_strategy_ranks_by_its_own_score(strategy: str, expected: list[int]) -> None:
    probs = np.array([[0.52, 0.48, 0.0], [0.49, 0.48, 0.03], [0.3, 0.5, 0.2]])
    assert ranking(strategy, probs, np.array([3.0, 1.0, 2.0]), np.array([5, 0, 5])).tolist() == expected


def test_more_questions_than_are_ranked_wait_behind_in_the_order_they_were_asked() -> None:
    base = Base(by_hand(ids=np.array([10, 11, 12, 20, 21])))
    base.learn({10: 0, 20: 1})
    assert order_of(base) == [12, 11, 20, 21]


# on the page


def test_without_it_questions_come_as_they_were_filed(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home")
    assert home.inbox.live.places() is None
    assert asked_next(home) == [10]
    answer(home, 10, 0)
    assert asked_next(home) == [11]
    assert small_settings().live is False


def test_the_next_question_knows_the_last_answer(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    anna = home.people.named("anna").id
    assert [q["sample"] for q in home.inbox.next_for(anna, 4)] == [10], "nothing is fetched ahead"
    answer(home, 10, 0)
    assert asked_next(home) == [12]
    assert asked_next(home) == [12], "what is on the screen stays there"
    home.inbox.undo(anna)
    assert asked_next(home) == [10]
    answer(home, 10, None)
    assert asked_next(home) == [11], "a skip teaches nothing"


def test_what_is_on_the_screen_stays_there_when_a_colleague_answers(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    assert asked_next(home, "anna") == [10]
    assert asked_next(home, "ben") == [11]
    answer(home, 10, 0)
    assert asked_next(home, "ben") == [11]
    assert asked_next(home, "anna") == [12], "what a colleague holds is not given twice"


def test_a_sample_that_wants_two_answers_teaches_when_it_has_a_label(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    with home.database.transaction() as db:
        db.execute("UPDATE questions SET wanted = 2")
    asked_next(home, "anna")
    answer(home, 10, 0)
    assert home.inbox.live.places() == {10: 0, 11: 1, 12: 2}
    assert asked_next(home, "anna") == [11]
    assert asked_next(home, "ben") == [10]
    answer(home, 10, 0, "ben")
    assert home.inbox.live.places() == {12: 0, 11: 1}


def test_gold_questions_are_still_mixed_in(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    with home.database.transaction() as db:
        db.executemany("INSERT INTO gold VALUES (?, 0)", [(sample,) for sample in range(30, 40)])
    anna, seen, gold = home.people.named("anna").id, [], 0
    for _ in range(9):
        found = home.inbox.claims.next_for(anna, 1, 1, 0.49, True, home.inbox.live.places())
        if not found:
            break
        seen.append(found[0]["sample"])
        gold += found[0]["sample"] >= 30
        answer(home, found[0]["sample"], 0, question=found[0]["id"])
    assert [sample for sample in seen if sample < 30] == [10, 12, 11]
    assert 0 < gold <= 3
    assert len(seen) == 3 + gold


def test_second_opinions_come_before_what_is_ranked(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    with home.database.transaction() as db:
        db.execute(
            "INSERT INTO questions (sample, round, turn, strategy, ev, asked_at, wanted)"
            " VALUES (5, 1, 1, 'again', 0, 0, 2)"
        )
    assert asked_next(home) == [5]
    answer(home, 5, 1)
    assert asked_next(home) == [10]


KILLED = """
import os, signal, sys
from pathlib import Path
from chase.home.home import Home
from chase.home.inbox import Given
home = Home(Path(sys.argv[1]))
anna = home.people.named("anna").id
(first,) = home.inbox.next_for(anna, 1)
home.inbox.answer(Given(first["sample"], 0, anna))
assert "torch" not in sys.modules, "the page's process does without torch"
print(first["sample"], home.inbox.live.places(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_page_that_was_killed_gives_the_same_order(tmp_path: Path) -> None:
    home_with(tmp_path / "home", by_hand()).close()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "home")], capture_output=True, text=True, env=os.environ
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == "10 {12: 0, 11: 1}\n"
    home = Home(tmp_path / "home")
    assert home.inbox.live.places() == {12: 0, 11: 1}
    assert asked_next(home) == [12]


def test_a_damaged_turn_does_not_stop_the_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = home_with(tmp_path / "home", by_hand())
    (file,) = (tmp_path / "home" / "state").iterdir()
    file.write_bytes(b"nothing")
    assert asked_next(home) == [10]
    assert "questions are not re-ranked: cannot read" in caplog.text


def test_forgotten_samples_leave_no_trace_in_it(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", by_hand())
    store = ClientStore(home, ClientState.start(np.arange(40), np.array([0, 1]), np.array([0, 1])))
    store.amend(lambda state: state)
    assert home.inbox.live.places() is not None
    store.amend(lambda state: state, frozenset({11}))
    store.sweep()
    assert home.inbox.live.places() is None
    assert all(read_base(file) is None for file in (tmp_path / "home" / "state").iterdir())


# what a turn leaves


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "features"))


class Clinic:
    """A client of the closed-form learner whose questions people answer, alone with its server."""

    def __init__(self, path: Path, **changes: Any) -> None:
        values = {"learner": "closed-form", "strategy": "margin", "filters": 8, "fit_passes": 1, "ridge": 3.0}
        self.settings: Settings = small_settings(**{**values, "clients": 1, "live": True, **changes})
        samples, self.truth = blobs(40)
        card = HomeCard(0, "clinic", ("dark", "light"), "image", mean=samples.mean, std=samples.std)
        labels = dict(enumerate(self.truth[:6].tolist()))
        self.home = Home.create(path, card, np.arange(40), samples.inputs.numpy(), initial=labels)
        self.samples = resident(self.home)
        store = ClientStore(self.home, ClientState.start(np.arange(40), np.arange(6), self.truth[:6]))
        net = build_net(self.settings, self.samples, 2)
        self.context = ClientContext(0, self.settings, self.samples, net, 2, Behaviour(5, 1), for_people=True)
        self.client = Client(self.context, store, store)
        spec = net_spec(self.settings, self.samples, 2)
        made = make_server("run", self.settings, new_start(spec, self.settings), spec)
        assert isinstance(made, ClosedFormServer)
        self.server = made
        for round in [*made.preparation, 1, 2]:
            self.turn(round)

    def turn(self, round: int) -> None:
        orders = self.server.orders(round)
        self.last = self.client.take_turn(orders[0])
        self.server.aggregate(orders, [self.last.update])

    def codes(self, ids: list[int]) -> Any:
        set_weights(self.context.net, self.server.weights)
        return self.context.net.codes(self.samples, self.samples.rows(np.array(ids)))  # type: ignore[operator]

    def solved(self, ids: list[int], of: list[int]) -> Array:
        """Scores of some samples by a head that is solved from the labels of others."""
        head = solve(Sums.of(self.codes(ids), self.truth[ids], 2), ridge=3.0)
        return head.scores(decode(self.codes(of)).astype(np.float64))


@pytest.mark.parametrize("changes", [{}, {"form": "isolated"}, {"temperature": "leave-one-out"}])
def test_a_turn_leaves_what_gives_the_numbers_of_a_full_solution(
    tmp_path: Path, own_cache: None, changes: dict[str, Any]
) -> None:
    """Of a client that is alone, or has the system of all: to 1e-6, and to 1e-5 where that was sent as float32."""
    clinic = Clinic(tmp_path / "home", **changes)
    asked = [q["sample"] for q in clinic.home.ledger.open_questions()]
    assert len(asked) == 5
    for sample in asked[:2]:
        answer(clinic.home, sample, int(clinic.truth[sample]))
    assert clinic.home.inbox.live.places() is not None
    base = clinic.home.inbox.live._base
    assert base is not None
    expected = clinic.solved([*range(6), *asked[:2]], base.ids)
    assert np.abs(expected - clinic.solved(list(range(6)), base.ids)).max() > 0.01, "the answers matter"
    assert base._live.scores == pytest.approx(expected, abs=1e-5 if "temperature" in changes else 1e-6)


def test_labels_that_the_head_does_not_contain_yet_are_learnt_by_the_turn(tmp_path: Path, own_cache: None) -> None:
    clinic = Clinic(tmp_path / "home")
    first = [q["sample"] for q in clinic.home.ledger.open_questions()]
    for sample in first[:2]:
        answer(clinic.home, sample, int(clinic.truth[sample]))
    clinic.turn(3)
    base = clinic.home.inbox.live.places() and clinic.home.inbox.live._base
    assert base
    assert set(first[2:]) < set(base.ids)
    assert base._live.scores == pytest.approx(clinic.solved([*range(6), *first[:2]], base.ids), abs=1e-6)


def test_nothing_is_left_without_the_setting_or_without_a_solved_head(tmp_path: Path, own_cache: None) -> None:
    clinic = Clinic(tmp_path / "home", live=False)
    assert clinic.last.live == {}
    assert clinic.last.state.pools.asked.size == 5
    assert temperature({"head.bias": np.zeros(3, dtype=np.float32)}) is None
    assert temperature({"head.bias": np.array([3.0, 1.0, -2.0], dtype=np.float32)}) == pytest.approx(0.5)


def test_only_so_many_questions_are_ranked(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_live, "MOST", 3)
    clinic = Clinic(tmp_path / "home")
    assert clinic.last.live["ids"].size == 5
    assert clinic.last.live["kernel"].shape == (3, 3)
    assert len(clinic.home.inbox.live.places() or {}) == 5


# refusals


def test_what_cannot_be_re_ranked_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingsError, match="learner = 'network' trains one: set learner=closed-form, or leave live"):
        small_settings(strategy="margin", live=True)
    with pytest.raises(SettingsError, match="which strategy 'badge' does not allow: use margin, balanced-margin"):
        small_settings(learner="closed-form", strategy="badge", live=True)
    for strategy in (*LIVE, "recommended"):
        assert small_settings(learner="closed-form", strategy=strategy, live=True).live


# in a browser


@needs_chromium
def test_in_a_browser_the_next_sample_is_the_re_ranked_one(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    home = home_with(tmp_path / "home", by_hand())
    with served(home) as where:
        desks.append(Desk(home, where, chromium))
        page = desks[0].sit(route=("/api/answer", 0.3))
        assert on_screen(page) == 10
        page.keyboard.press("1")
        expect(page.locator("#sample-name")).to_have_text("sample 12")
        page.keyboard.press("Backspace")
        expect(page.locator("#sample-name")).to_have_text("sample 10")
        assert on_screen(page) == 10
        page.keyboard.press("3")
        desks[0].wait_for(3, page)  # two labels were known from the start
        expect(page.locator("#sample-name")).to_have_text("sample 11")
        for context in desks[0].contexts:
            context.close()
        desks[0].contexts.clear()
