from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from homes import ask, image_home

from chase.annotation.annotator import Answer
from chase.core.errors import LabelError
from chase.home import schema
from chase.home.home import Home
from chase.home.inbox import AnswerRefused, Given
from chase.home.schema import Database


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return image_home(tmp_path / "home", initial={0: 1, 1: 2})


@pytest.fixture
def anna(home: Home) -> int:
    return home.people.named("anna").id


@pytest.fixture
def ben(home: Home) -> int:
    return home.people.named("ben").id


def states(home: Home) -> dict[int, str]:
    with home.database.reading() as db:
        return {row["sample"]: row["state"] for row in db.execute("SELECT sample, state FROM questions ORDER BY id")}


def taken(home: Home) -> list[tuple[int, int | None]]:
    """What training gets, and marks as part of its state."""
    found, last = home.inbox.hand_out(home.inbox.mark("taken"))
    home.inbox.set_taken(last)
    return [(a.sample, a.label) for a in found]


def test_a_question_is_waiting_then_shown_then_answered(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    assert states(home) == {5: "waiting", 6: "waiting"}
    first, second = home.inbox.next_for(anna, 2)
    assert (first["sample"], first["round"], first["strategy"], first["ev"], first["score"]) == (5, 2, "chase", 4, 4.0)
    assert states(home) == {5: "shown", 6: "waiting"}
    home.inbox.answer(Given(5, 2, anna, seconds=1.5))
    assert states(home)[5] == "answered"
    assert [q["sample"] for q in home.inbox.next_for(anna, 2)] == [second["sample"]]
    line = home.ledger.labels()[-1]
    assert (line["sample"], line["label"], line["annotator"], line["seconds"]) == (5, 2, "anna", 1.5)
    assert abs(line["answered_at"] - time.time()) < 60


def test_training_gets_each_answer_once_and_initial_labels_never(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 2, anna))
    home.inbox.answer(Given(6, None, anna, "cannot tell"))
    assert home.inbox.hand_out(home.inbox.mark("taken"))[0] == [
        Answer(5, 2, "anna"),
        Answer(6, None, "anna", "cannot tell"),
    ]
    assert taken(home) == [(5, 2), (6, None)], "handed out again until taken"
    assert taken(home) == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"sample": 99, "label": 0}, "unknown sample"),
        ({"sample": 5, "label": 3}, "unknown class"),
        ({"sample": 5, "label": -1}, "unknown class"),
        ({"sample": 5, "label": None}, "unknown reason"),
        ({"sample": 5, "label": None, "reason": "tired"}, "unknown reason"),
        ({"sample": 0, "label": 0}, "already answered"),
    ],
)
def test_the_door_refuses(home: Home, anna: int, given: dict, kind: str) -> None:
    ask(home, [5])
    with pytest.raises(AnswerRefused) as refused:
        home.inbox.answer(Given(annotator=anna, **given))
    assert refused.value.kind == kind
    assert states(home) == {5: "waiting"}
    assert taken(home) == []


def test_an_answer_sent_again_with_its_key_is_one_answer(home: Home, anna: int) -> None:
    ask(home, [5])
    assert home.inbox.answer(Given(5, 2, anna, key="k")) == home.inbox.answer(Given(5, 2, anna, key="k"))
    assert taken(home) == [(5, 2)]


def test_several_answers_are_kept_together_or_not_at_all(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    with pytest.raises(AnswerRefused):
        home.inbox.answer_all([Given(5, 1, anna), Given(6, 7, anna)])
    assert taken(home) == []
    assert states(home) == {5: "waiting", 6: "waiting"}


def test_a_correction_reaches_training_and_the_log_keeps_both(home: Home, anna: int, ben: int) -> None:
    ask(home, [5])
    home.inbox.answer(Given(5, 2, anna))
    assert taken(home) == [(5, 2)]
    with pytest.raises(AnswerRefused, match="anna, and only that person"):
        home.inbox.answer(Given(5, 1, ben, revise=True))
    home.inbox.answer(Given(5, 1, anna, revise=True))
    assert taken(home) == [(5, 1)]
    with home.database.reading() as db:
        assert db.execute("SELECT COUNT(*) FROM answers WHERE sample = 5").fetchone()[0] == 2


def test_undo_before_training_takes_the_answer_back(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 2, anna))
    (back,) = home.inbox.undo(anna)
    assert (back["sample"], back["label"], back["stands"]) == (5, 2, False)
    assert home.inbox.next_for(anna, 1)[0]["sample"] == 5
    assert taken(home) == []
    assert home.inbox.undo(anna) == []


def test_undo_of_what_training_uses_leaves_it_until_it_is_replaced(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 2, anna))
    home.inbox.answer(Given(6, 1, anna))
    home.inbox.hand_out(0)
    (back,) = home.inbox.undo(anna)
    assert (back["sample"], back["stands"]) == (6, True)
    (earlier,) = home.inbox.undo(anna, before=back["answer"])
    assert earlier["sample"] == 5
    assert states(home) == {5: "answered", 6: "answered"}
    home.inbox.answer(Given(6, 0, anna, revise=True))
    assert taken(home) == [(5, 2), (6, 1), (6, 0)]


def test_undo_of_a_correction_brings_the_earlier_answer_back(home: Home, anna: int) -> None:
    ask(home, [5])
    home.inbox.answer(Given(5, 2, anna))
    taken(home)
    home.inbox.answer(Given(5, 1, anna, revise=True))
    (back,) = home.inbox.undo(anna)
    assert back["stands"]
    current = home.inbox.current(5)
    assert current is not None
    assert current["label"] == 2
    assert states(home) == {5: "answered"}


def test_a_stroke_over_many_is_undone_as_one(home: Home, anna: int) -> None:
    ask(home, range(5, 9))
    home.inbox.answer_all([Given(s, 1, anna, batch="b") for s in (5, 6, 7)])
    assert [b["sample"] for b in home.inbox.undo(anna)] == [5, 6, 7]
    assert [q["sample"] for q in home.inbox.next_for(anna, 9, shown=9)] == [5, 6, 7, 8]


def test_expired_questions_are_closed_and_a_late_answer_is_welcome(home: Home, anna: int) -> None:
    ask(home, [5, 6])
    home.inbox.next_for(anna, 1)
    home.inbox.expire([5, 6])
    assert states(home) == {5: "expired", 6: "expired"}
    assert home.inbox.next_for(anna, 5) == []
    home.inbox.answer(Given(5, 1, anna))
    assert taken(home) == [(5, 1)]
    ask(home, [6], round=3)
    assert home.inbox.next_for(anna, 5)[0]["round"] == 3


def test_a_question_is_filed_once_and_not_while_its_answer_waits_for_training(home: Home, anna: int) -> None:
    ask(home, [5])
    ask(home, [5], round=3)
    assert home.ledger.open_questions()[0]["round"] == 2
    home.inbox.answer(Given(5, 1, anna))
    ask(home, [5], round=4)
    assert home.ledger.open_questions() == []


def test_two_annotators_get_different_questions(home: Home, anna: int, ben: int) -> None:
    ask(home, range(5, 12))
    hers = {q["sample"] for q in home.inbox.next_for(anna, 3)}
    his = {q["sample"] for q in home.inbox.next_for(ben, 3)}
    assert len(hers | his) == 6
    assert {q["sample"] for q in home.inbox.next_for(anna, 3)} == hers


def test_the_last_unseen_question_goes_to_who_has_time(
    home: Home, anna: int, ben: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(home, [5, 6])
    assert len(home.inbox.next_for(anna, 5)) == 2
    assert home.inbox.next_for(ben, 5) == [], "anna is at work: what she holds is hers"
    later = time.time() + 90
    monkeypatch.setattr(time, "time", lambda: later)
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [6]
    assert [q["sample"] for q in home.inbox.next_for(anna, 5)] == [5]


def test_a_question_left_on_the_screen_is_given_to_another(
    home: Home, anna: int, ben: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(home, [5])
    home.inbox.next_for(anna, 1)
    assert home.inbox.next_for(ben, 1) == []
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert home.inbox.next_for(ben, 1)[0]["sample"] == 5
    assert home.inbox.next_for(anna, 1) == []


def test_progress_counts_this_round_and_all(home: Home, anna: int, ben: int) -> None:
    ask(home, [5, 6, 7], round=2)
    ask(home, [8, 9], round=3)
    home.inbox.answer(Given(5, 1, anna))
    home.inbox.answer(Given(8, None, anna, "bad sample"))
    home.inbox.answer(Given(6, 1, ben))
    home.inbox.expire([7])
    seen = home.ledger.progress(anna)
    assert seen == {
        "round": 3,
        "round_done": 1,
        "round_asked": 2,
        "open": 1,
        "answered": 2,
        "skipped": 1,
        "expired": 1,
        "mine": 2,
        "today": 2,
    }


def test_sessions_outlive_the_process_and_tokens_are_good_once(home: Home) -> None:
    token = home.people.invite("anna")
    session = home.people.enter(token)
    with pytest.raises(LabelError, match="used already"):
        home.people.enter(token)
    with pytest.raises(LabelError, match="is unknown"):
        home.people.enter("guess")
    path = home.path
    home.close()
    again = Home(path)
    person = again.people.whose(session)
    assert person is not None
    assert person.name == "anna"
    secrets = [token, session]
    assert not any(secret.encode() in file.read_bytes() for file in path.iterdir() for secret in secrets)
    again.people.leave(session)
    assert again.people.whose(session) is None


def test_old_tokens_and_sessions_end(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    token, session = home.people.invite("anna"), home.people.enter(home.people.invite("ben"))
    later = time.time() + 40 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(LabelError, match="has expired"):
        home.people.enter(token)
    assert home.people.whose(session) is None


def test_a_revoked_annotator_is_out_and_the_answers_stay(home: Home, anna: int, ben: int) -> None:
    ask(home, [5, 6])
    session, link = home.people.enter(home.people.invite("anna")), home.people.invite("anna")
    bens = home.people.enter(home.people.invite("ben"))
    (first,) = home.inbox.next_for(anna, 1)
    home.inbox.answer(Given(first["sample"], 1, anna))
    home.inbox.next_for(anna, 1)
    assert home.people.revoke(" anna ") == 2
    assert home.people.whose(session) is None
    with pytest.raises(LabelError, match="is unknown"):
        home.people.enter(link)
    assert home.people.whose(bens) is not None
    assert home.inbox.current(first["sample"]) is not None
    assert len(home.inbox.next_for(ben, 1)) == 1  # what was on anna's screen
    assert home.people.revoke("anna") == 0
    with pytest.raises(LabelError, match="there is no annotator 'carol'; annotators: anna, ben"):
        home.people.revoke("carol")


def delete_questions(home: Home, samples: list[int]) -> None:
    with home.database.transaction() as db:
        db.executemany("DELETE FROM questions WHERE sample = ?", [(sample,) for sample in samples])


def test_a_deleted_question_is_counted_out(home: Home) -> None:
    ask(home, [5, 6, 7])
    delete_questions(home, [5, 6])
    assert home.ledger.open_count() == 1


def old_home(path: Path, version: int) -> None:
    """A home as an earlier version of the tables left it: an answer of anna's taken by training, one on the way."""
    image_home(path).close()
    for file in path.glob("inbox.sqlite*"):
        file.unlink()
    db = sqlite3.connect(path / "inbox.sqlite")
    db.executescript(schema.TABLES)
    for before in range(1, version):
        db.executescript(schema.UPGRADES[before])
    db.executescript(
        f"""
        PRAGMA user_version = {version};
        INSERT INTO meta VALUES ('taken', 1), ('handed', 1), ('home', 77);
        INSERT INTO annotators VALUES (1, 'anna', 'after', 0);
        INSERT INTO sessions VALUES ('x', 1, 5);
        """
    )
    db.executemany("INSERT INTO samples VALUES (?, ?)", [(i, f"image-{i}") for i in range(40)])
    asked = [(5, "answered", None), (6, "answered", None), (7, "shown", 1), (8, "waiting", 1), (9, "waiting", None)]
    db.executemany(
        "INSERT INTO questions (sample, round, turn, strategy, ev, state, asked_at, held_by, held_until)"
        " VALUES (?, 2, 1, 'chase', 4, ?, 0, ?, 1e12)",
        asked,
    )
    db.executemany(
        "INSERT INTO answers (sample, question, was, label, annotator, answered_at, source)"
        " VALUES (?, ?, 'shown', ?, 1, 3, 'page')",
        [(5, 1, 2), (6, 2, 1)],
    )
    db.commit()
    db.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_home_of_an_earlier_format_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    old_home(tmp_path / "old", version)
    home = Home(tmp_path / "old")
    anna = home.people.named("anna")
    assert anna.role == "annotator"
    assert home.database.identity == format(77, "013x")
    assert [(line["sample"], line["label"], line["annotator"]) for line in home.ledger.labels()] == [
        (5, 2, "anna"),
        (6, 1, "anna"),
    ]
    assert [q["sample"] for q in home.inbox.next_for(anna.id, 2)] == [7, 8], "what she held is hers still"
    assert taken(home) == [(6, 1)], "what training has is not handed out again"
    home.inbox.answer(Given(7, 0, anna.id))
    assert taken(home) == [(7, 0)]
    assert home.ledger.open_count() == 2
    with home.database.reading() as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    home.close()
    assert Home(tmp_path / "old").ledger.open_count() == 2


def test_a_home_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_home(tmp_path / "new").close()
    monkeypatch.setattr(schema, "FORMAT", 1)
    with pytest.raises(LabelError, match="has format 4, this version of chase reads 1"):
        Home(tmp_path / "new")


def test_a_home_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    image_home(tmp_path / "home")
    image_home(tmp_path / "run" / "home")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("home", "run/home")] == [0o700, 0o700]


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "a\x07b"])
def test_names_that_do_not_fit_are_refused(home: Home, name: str) -> None:
    with pytest.raises(LabelError, match="name"):
        home.people.named(name)


def test_homes_that_are_none_or_damaged_are_refused(tmp_path: Path, home: Home) -> None:
    with pytest.raises(LabelError, match=r"no client.json"):
        Home(tmp_path)
    with pytest.raises(LabelError, match="already"):
        image_home(home.path)
    (tmp_path / "inbox.sqlite").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(LabelError, match="cannot be read"):
        Database(tmp_path / "inbox.sqlite")
    (home.path / "client.json").write_text("{")
    with pytest.raises(LabelError, match="damaged"):
        Home(home.path)
