"""Who can come, who has seen what, and what the lead and the audit log are told."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from homes import ANIMALS, ask, image_home, served
from test_page import Annotator, browser, enter
from typer.testing import CliRunner

from chase.annotation.annotator import SECOND_OPINION, Question
from chase.cli.main import app
from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.home import exchange
from chase.home.again import ask_again, doubtful, panel_of
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.team import overview, set_gold, warnings

SKIP = "ask a colleague"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return image_home(tmp_path / "home", initial={0: 1, 1: 2, 2: 0, 3: 1})


def doubted(home: Home, person: str = "anna") -> int:
    """A person answers samples 5 to 14; the model doubts the answer to sample 9."""
    who = home.people.named(person).id
    ask(home, range(5, 15))
    for sample in range(5, 15):
        home.inbox.answer(Given(sample, 2 if sample == 9 else 0, who))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    return who


def again(home: Home, *samples: int) -> None:
    home.inbox.file([Question(sample, 4, 3, SECOND_OPINION, 0, 0.93, again=True) for sample in samples])


def run(home: Home, *words: str) -> str:
    done = CliRunner().invoke(app, ["label", words[0], str(home.path), *words[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


# who can come


def test_nobody_waits_for_people_whose_access_was_ended(home: Home) -> None:
    doubted(home)
    home.invite("ben", "lead")
    assert [one.sample for one in doubtful(home)] == [9]
    assert 9 not in panel_of(home).closed
    home.revoke("ben", "lead")
    assert doubtful(home) == []
    assert 9 in panel_of(home).closed
    home.invite("ben", "lead")
    assert [one.sample for one in doubtful(home)] == [9], "with a new link he can come again"


def test_an_open_second_opinion_holds_no_place_once_nobody_can_give_it(home: Home) -> None:
    doubted(home)
    home.invite("ben", "lead")
    ask_again(home, doubtful(home))
    assert list(panel_of(home).waiting) == [9]
    home.revoke("ben", "lead")
    assert panel_of(home).waiting == {}
    cleo = home.people.named("cleo").id
    assert [q["sample"] for q in home.inbox.next_for(cleo, 5)] == [9], "whoever comes later may give it"


def test_people_whom_only_a_file_names_or_whose_link_expired_cannot_come(home: Home) -> None:
    doubted(home)
    exchange.import_lines(home, exchange.read_csv("sample,class,annotator\n20,dog,kim\n21,cat,\n"))
    assert doubtful(home) == []
    home.people.invite("lee")
    assert [one.sample for one in doubtful(home)] == [9]
    with home.database.transaction() as db:
        db.execute("UPDATE tokens SET expires_at = 5")
    assert doubtful(home) == [], "a link that nobody used in its day"
    home.people.invite("mia")
    assert [one.sample for one in doubtful(home)] == [9]


@pytest.mark.parametrize("reason", [SKIP, "cannot tell"])
def test_who_skipped_a_sample_is_not_waited_for(home: Home, reason: str) -> None:
    doubted(home)
    ben = home.people.named("ben").id
    ask_again(home, doubtful(home))
    home.inbox.answer(Given(9, None, ben, reason))
    assert panel_of(home).waiting == {}
    assert 9 in panel_of(home).closed


def test_a_home_of_format_3_learns_who_cannot_come(home: Home) -> None:
    doubted(home)
    for name in ("ben", "cleo"):
        home.invite(name, "lead")
    home.revoke("ben", "lead")
    exchange.import_lines(home, exchange.read_csv("sample,class,annotator\n20,dog,kim\n"))
    home.close()
    db = sqlite3.connect(home.path / "inbox.sqlite")
    db.executescript("ALTER TABLE annotators DROP COLUMN away; DROP TABLE looked; PRAGMA user_version = 3;")
    db.close()
    opened = Home(home.path)
    can_come = opened.people.present()
    assert [one.name for one in opened.people.everybody() if one.id in can_come] == ["anna", "cleo"]


# "ask a colleague" is no answer


def test_to_ask_for_a_colleague_is_no_vote_and_no_second_opinion(home: Home) -> None:
    ben, cleo = (home.people.named(name).id for name in ("ben", "cleo"))
    anna = home.people.named("anna").id
    ask(home, [5])
    home.inbox.answer(Given(5, None, ben, SKIP))
    home.inbox.answer(Given(5, 1, anna))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    again(home, 5)
    with home.database.reading() as db:
        asked = db.execute("SELECT votes, wanted FROM questions WHERE strategy = ?", (SECOND_OPINION,)).fetchone()
    assert tuple(asked) == (1, 2), "one person has answered, one more is asked"
    home.inbox.answer(Given(5, None, cleo, SKIP))
    assert panel_of(home).given == 0
    home.inbox.answer(Given(5, 1, home.people.named("dora").id))
    assert panel_of(home).given == 1


def test_to_ask_for_a_colleague_counts_for_nobody_s_goal(home: Home) -> None:
    anna = home.people.named("anna").id
    ask(home, [5, 6, 7])
    home.inbox.answer(Given(5, None, anna, SKIP))
    home.inbox.answer(Given(6, None, anna, "cannot tell"))
    home.inbox.answer(Given(7, 1, anna))
    progress = home.ledger.progress(anna)
    assert (progress["mine"], progress["today"], progress["answered"], progress["skipped"]) == (2, 2, 1, 1)
    (line,) = (one for one in overview(home, anna)["people"] if one["name"] == "anna")
    assert (line["answers"], line["today"]) == (2, 2)


# blind


def test_a_second_opinion_looks_like_any_other_question(home: Home) -> None:
    doubted(home)
    home.policies.change({"reveal": "before"})
    with served(home) as where, browser(where) as page:
        enter(page, home, "ben")
        again(home, 9)
        ask(home, [20], round=4)
        queue = page.post("/api/next", json={"want": 5}).json()["queue"]
        asked, plain = (next(q for q in queue if q["sample"] == sample) for sample in (9, 20))
        keep = ("strategy", "score", "ev", "round", "thoughts")
        assert {name: asked[name] for name in keep} == {name: plain[name] for name in keep}
        page.answer({"sample": 9, "label": 0})
        text = page.get("/api/history").text + page.post("/api/next", json={"want": 5}).text
        assert SECOND_OPINION not in text
        assert "0.93" not in text


def test_gold_before_a_second_opinion_and_labels_from_a_file_do_not_show_it_either(home: Home) -> None:
    exchange.import_lines(home, exchange.read_csv("sample,class,annotator\n20,dog,kim\n"))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    ben = home.people.named("ben").id
    again(home, 20)
    (only,) = home.inbox.next_for(ben, 1)
    assert (only["sample"], only["strategy"], only["score"]) == (20, "", None), "nothing to look like"
    ask(home, range(5, 15))
    home.inbox.expire(list(range(5, 15)))
    set_gold(home, {30: 1, 31: 1, 32: 0})
    home.policies.change({"gold_share": 0.5})
    home.inbox.claims.end(only["id"], ben)
    shown = home.inbox.next_for(home.people.named("cleo").id, 2)
    assert {q["sample"] for q in shown} & {30, 31, 32}, "gold is mixed in"
    assert {(q["strategy"], q["score"]) for q in shown} == {("chase", 4.0)}


def test_who_saw_the_answers_of_others_is_not_asked_as_an_annotator(home: Home) -> None:
    home.policies.change({"answers_per_sample": 2})
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    ask(home, [5, 6])
    with served(home) as where, browser(where) as eva:
        home.people.set_role("eva", "adjudicator")
        enter(eva, home, "eva")
        assert [q["sample"] for q in eva.post("/api/next", json={"want": 5}).json()["queue"]] == [5, 6]
        home.inbox.answer(Given(5, 1, anna))
        home.inbox.answer(Given(5, None, ben, SKIP))
        (shown,) = eva.post("/api/next", json={"want": 5, "conflicts": True}).json()["queue"]
        assert [one["label"] for one in shown["answers"]] == [1, None]
        assert [q["sample"] for q in eva.post("/api/next", json={"want": 5}).json()["queue"]] == [6]
        refused = eva.answer({"sample": 5, "label": 1})["refused"]
        assert [one["kind"] for one in refused] == ["not blind"]
        assert "decide it under Conflicts" in refused[0]["error"]
        assert [a["annotator"] for a in home.ledger.answers() if a["sample"] == 5] == ["anna", "ben"]
        assert eva.answer({"sample": 5, "label": 2, "decide": True})["accepted"]
        assert eva.answer({"sample": 5, "label": 0, "revise": True})["accepted"], (
            "a decision may be corrected by who made it"
        )
        current = home.inbox.current(5)
        assert current is not None
        assert (current["label"], current["rule"], current["by"]) == (0, "decision", "eva")


def test_who_has_looked_is_told_what_is_left_to_do_and_the_log_what_they_saw(home: Home) -> None:
    home.policies.change({"answers_per_sample": 2})
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    ask(home, [5])
    with served(home) as where, browser(where) as eva:
        home.people.set_role("eva", "adjudicator")
        enter(eva, home, "eva")
        eva.given()
        home.inbox.answer(Given(5, 1, anna))
        home.inbox.answer(Given(5, None, ben, SKIP))
        for _ in range(2):
            eva.post("/api/next", json={"want": 5, "conflicts": True})
        lines = [(line["who"], line["sample"], line["detail"]) for line in home.audit.lines() if line["what"] == "look"]
        saw = [{"by": "anna", "label": 1, "reason": ""}, {"by": "ben", "label": None, "reason": SKIP}]
        assert lines == [("eva", 5, {"saw": saw})], "once"

        def why() -> str:
            (refused,) = eva.answer({"sample": 5, "label": 1})["refused"]
            return str(refused["error"])

        assert why().endswith("decide it under Conflicts instead")
        home.people.set_role("eva", "annotator")
        assert why().endswith("only an adjudicator or a lead can decide it now")
        home.people.set_role("eva", "lead")
        home.inbox.answer(Given(5, 2, home.people.named("kim").id, decides=True))
        assert why().endswith("it has a label now, by kim, and only who gave it can correct it")
        home.inbox.undo(home.people.named("kim").id)
        home.inbox.undo(ben)
        assert why().endswith("it waits for an answer of somebody else")


def test_gold_questions_have_a_prediction_where_people_see_it_before_they_answer(home: Home) -> None:
    set_gold(home, {30: 1, 31: 1, 32: 0, 33: 0})
    home.policies.change({"gold_share": 0.5, "reveal": "before"})
    ask(home, range(5, 25))

    def golds(page: Annotator) -> dict[int, list]:
        queue = page.post("/api/next", json={"want": 40, "shown": 40}).json()["queue"]
        assert len(queue) >= 20
        return {q["sample"]: q["thoughts"] for q in queue if q["sample"] >= 30}

    with served(home) as where, browser(where) as ben, browser(where) as cleo, browser(where) as dora:
        home.policies.change({"answers_per_sample": 3})
        ask(home, range(25, 28))
        enter(ben, home, "ben")
        assert golds(ben) == {}, "one without a prediction would be recognised"
        (sentence,) = warnings(home)
        assert sentence.startswith("no gold question is asked of people who see the model's prediction before")
        home.revoke("ben", "x")
        ask(home, [31, 32])
        home.inbox.expire([31, 32])
        enter(cleo, home, "cleo")
        shown = golds(cleo)
        assert sorted(shown) == [31, 32]
        assert all(shown.values())
        assert warnings(home) == []
        home.revoke("cleo", "x")
        home.policies.change({"reveal": "after"})
        enter(dora, home, "dora")
        assert sorted(golds(dora)) == [30, 31, 32, 33]


def test_gold_before_a_question_without_a_prediction_has_none(home: Home) -> None:
    ask(home, [30, 31])
    home.inbox.expire([30, 31])
    set_gold(home, {30: 1, 31: 1, 32: 0})
    home.policies.change({"gold_share": 0.5})
    ask(home, range(5, 25), thoughts=False)
    shown = home.inbox.next_for(home.people.named("ben").id, 30, predicted=True)
    assert {q["sample"] for q in shown} >= {30, 31, 32}
    assert all(not q["thoughts"] for q in shown)


def test_who_saw_only_their_own_answer_may_correct_it(home: Home) -> None:
    ask(home, [5])
    with served(home) as where, browser(where) as lea:
        home.people.set_role("lea", "lead")
        enter(lea, home, "lea")
        lea.given()
        assert lea.answer({"sample": 5, "label": 1, "unsure": True})["accepted"]
        (shown,) = lea.post("/api/next", json={"want": 5, "conflicts": True}).json()["queue"]
        assert [one["by"] for one in shown["answers"]] == ["lea"]
        assert lea.answer({"sample": 5, "label": 2, "revise": True})["accepted"]
        current = home.inbox.current(5)
        assert current is not None
        assert (current["label"], current["rule"]) == (2, "single")


# warnings


def test_conflicts_without_an_adjudicator_are_told_with_what_to_do(home: Home) -> None:
    assert warnings(home) == []
    home.policies.change({"answers_per_sample": 2})
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 1, anna))
    home.inbox.answer(Given(5, 2, ben))
    (sentence,) = warnings(home)
    assert sentence.startswith("1 sample waits for a decision, but there is no adjudicator: `chase label role ")
    assert f"`chase label role {home.path} adjudicator -a NAME`" in run(home, "status").replace("\n", "")
    assert json.loads(run(home, "status", "--json"))["conflicts"] == 1
    home.set_role("lea", "lead", "x")
    assert "a lead can" not in overview(home, 0)["warnings"][0], "she has no link yet"
    home.invite("lea", "x")
    assert f"adjudicator -a NAME` names one, `chase label link {home.path} -a" in overview(home, 0)["warnings"][0]
    assert "a lead can decide under Conflicts, or `chase" in overview(home, 0)["warnings"][0]
    home.set_role("eva", "adjudicator", "x")
    (sentence,) = warnings(home)
    assert "but no adjudicator (eva) has access: a lead can decide" in sentence
    assert f"`chase label link {home.path} -a eva` makes a link" in sentence
    home.invite("eva", "x")
    assert warnings(home) == []
    home.revoke("eva", "x")
    assert len(warnings(home)) == 1, "she cannot come"


def test_questions_that_nobody_can_answer_are_told(home: Home) -> None:
    home.policies.change({"answers_per_sample": 2})
    anna = home.people.named("anna").id
    home.invite("ben", "x")
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 1, anna))
    assert warnings(home) == []
    home.revoke("ben", "x")
    (sentence,) = warnings(home)
    assert sentence.startswith("1 question waits for an answer, but nobody who has access is left")
    assert "ben (annotator, no access): 0 answers" in run(home, "status")
    home.revoke("anna", "x")
    (sentence,) = warnings(home)
    assert sentence.startswith("2 questions wait for an answer, but nobody who has access is left")


def test_a_home_in_which_nobody_has_labelled_yet_warns_of_nothing(home: Home) -> None:
    ask(home, [5, 6])
    assert warnings(home) == []


def test_who_has_a_role_but_no_link_is_not_waited_for(home: Home) -> None:
    doubted(home)
    told = run(home, "role", "adjudicator", "-a", "eva")
    assert told == f"eva: adjudicator, without access so far: chase label link {home.path} -a eva\n"
    assert doubtful(home) == []
    home.invite("eva", "x")
    assert run(home, "role", "adjudicator", "-a", "eva") == "eva: adjudicator\n"
    assert [one.sample for one in doubtful(home)] == [9]
    home.set_role("eva", "annotator", "x")
    assert [one.sample for one in doubtful(home)] == [9], "another role takes nobody's access"


def test_who_answers_at_label_studio_can_come(home: Home) -> None:
    doubted(home)
    home.set_role("eva", "adjudicator", "x")
    lines = exchange.read_csv("sample,class,annotator\n20,dog,eva\n")
    exchange.import_lines(home, lines, merge=True)
    assert [one.sample for one in doubtful(home)] == [9]
    home.revoke("eva", "x")
    exchange.import_lines(home, lines, merge=True)
    assert doubtful(home) == [], "what is known already brings nobody back"


def test_doubtful_labels_that_nobody_else_can_be_asked_about_are_told(home: Home) -> None:
    doubted(home)
    told = run(home, "again")
    assert "no second opinion is needed" not in told
    assert "1 label is doubtful, but nobody else can be asked: make a link for another annotator" in told
    assert f"(chase label link {home.path} -a NAME)" in told
    home.invite("ben", "x")
    assert "1 label is doubtful\n" in run(home, "again", "--dry-run")
    told = run(home, "again")
    assert "1 second opinion asked for" in told
    assert "nobody else" not in told
    assert "no second opinion is needed" in run(home, "again")


# the audit log


def test_lines_of_commands_say_who_and_what_was_before(home: Home, tmp_path: Path) -> None:
    run(home, "role", "adjudicator", "-a", "eva")
    run(home, "role", "lead", "-a", "eva")
    run(home, "policy", "goal=50", "rule=majority")
    gold = tmp_path / "gold.csv"
    for word in ("cat", "dog"):
        gold.write_text(f"sample,class\n7,{word}\n")
        run(home, "gold", str(gold))
    run(home, "link", "-a", "ben")
    run(home, "revoke", "-a", "ben")
    lines = [(line["what"], line["detail"]) for line in home.audit.lines()]
    assert lines == [
        ("role", {"person": "eva", "role": "adjudicator", "role_before": "annotator"}),
        ("role", {"person": "eva", "role": "lead", "role_before": "adjudicator"}),
        ("policy", {"changed": {"goal": [0, 50]}}),
        ("gold", {"samples": 1, "changed": {"7": [None, 0]}}),
        ("gold", {"samples": 1, "changed": {"7": [0, 1]}}),
        ("link", {"person": "ben"}),
        ("revoke", {"person": "ben", "ended": 1}),
    ]
    assert {line["who"] for line in home.audit.lines()} == {operator()}
    assert operator().endswith("(command line)")


def test_a_gold_file_that_is_refused_leaves_no_line(home: Home, tmp_path: Path) -> None:
    gold = tmp_path / "gold.csv"
    gold.write_text(f"sample,label\n7,{len(ANIMALS)}\n")
    with pytest.raises(LabelError, match="classes are 0 to 2"):
        CliRunner().invoke(app, ["label", "gold", str(home.path), str(gold)], catch_exceptions=False)
    assert list(home.audit.lines()) == []


def test_a_file_s_answers_are_lines_of_their_author_and_of_who_imported_them(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("sample,class,annotator\n7,cat,kim\n")
    run(home, "import", str(file))
    (line,) = home.audit.lines()
    assert (line["who"], line["detail"]["imported_by"]) == ("kim", operator())


def test_the_operator_is_who_the_system_says_whatever_the_environment_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    before = operator()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "Dr. Lead")
    assert operator() == before
    assert "Lead" not in before


def test_an_operator_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> str:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert operator() == f"user {os.getuid()} (command line)"
