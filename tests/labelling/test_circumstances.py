"""What goes wrong in a hospital: a full disk, an older backup, an ended access with unsent answers, two tabs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from desks import Desk, desk_at, label_one, needs_chromium, on_screen, until
from homes import ask, image_home, served
from playwright.sync_api import Browser, expect

from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.page.serving import links

pytestmark = needs_chromium


def grow_no_more(home: Home) -> Callable[[], None]:
    """The home's file cannot get larger, as on a full disk; what is returned makes room again."""
    with home.database.reading() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")

    def room() -> None:
        with home.database.reading() as db:
            db.execute("PRAGMA max_page_count = 1000000")

    return room


def kept(home: Home) -> int:
    """Answers that another process would find."""
    db = sqlite3.connect(home.path / "inbox.sqlite")
    try:
        return int(db.execute("SELECT COUNT(*) FROM answers").fetchone()[0])
    finally:
        db.close()


def test_a_full_disk_keeps_nothing_of_an_answer_and_the_error_says_so(tmp_path: Path) -> None:
    home = image_home(tmp_path / "home")
    ask(home, range(30))
    anna = home.people.named("anna").id
    room = grow_no_more(home)

    def answer_all() -> None:
        for sample in range(29):
            home.answer(Given(sample, 1, anna, comment="long " * 199), "anna", "answer")

    with pytest.raises(sqlite3.OperationalError, match="full"):
        answer_all()
    before = kept(home)
    assert before < 29
    room()
    home.answer(Given(29, 1, anna), "anna", "answer")
    assert kept(home) == before + 1, "the next answer is really kept"
    assert home.audit.verify()[0] == before + 1


def test_on_a_full_disk_the_page_says_so_and_loses_no_answer(desk: Desk) -> None:
    page = desk.sit()
    room = grow_no_more(desk.home)
    given: dict[int, int] = {}
    for _ in range(20):
        page.keyboard.press("Shift+C")
        page.fill("#comment-text", "x" * 999)
        page.click("#comment-keep")
        given |= dict([label_one(page)])
        if page.locator("#banner").is_visible():
            break
    expect(page.locator("#banner")).to_contain_text("not saved yet: the page's server cannot save anything (its disk")
    page.reload()
    expect(page.locator("#banner")).to_contain_text("its disk is full")
    room()
    expect(page.locator("#banner")).to_be_hidden(timeout=20_000)
    assert desk.wait_for(len(given), page) == {sample: (label, "anna") for sample, label in given.items()}
    assert kept(desk.home) == len(given)
    desk.troubles = [trouble for trouble in desk.troubles if "503" not in trouble]


def test_after_an_older_backup_the_page_asks_again_without_a_reload(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    path = tmp_path / "home"
    home = image_home(path)
    ask(home, range(5))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        page = desk.sit()
        first = [label_one(page)[0] for _ in range(2)]
        desk.wait_for(2, page)
    home.close()
    shutil.copytree(path, tmp_path / "backup")
    desk.home = Home(path)
    with served(desk.home, port=int(where.rpartition(":")[2])):
        later = [label_one(page)[0] for _ in range(2)]
        last = on_screen(page)
        desk.wait_for(4, page)
    desk.home.close()
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    desk.home = Home(path)
    with served(desk.home, port=int(where.rpartition(":")[2])):
        page.keyboard.press("1")
        for count in (4, 5):
            on_screen(page)
            page.keyboard.press("1")
            desk.wait_for(count, page)
        assert sorted(desk.answers()) == sorted([*first, *later, last])
        assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "navigate", "it was not reloaded"
        desk.contexts[0].close()
    assert all("ERR_CONNECTION" in trouble for trouble in desk.troubles), desk.troubles


def test_unsent_answers_of_somebody_whose_access_ended_come_with_their_next_link(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    home = image_home(tmp_path / "home")
    ask(home, range(12))
    with desk_at(home, chromium, desks) as desk:
        page = desk.sit()
        context = desk.contexts[0]
        context.route("**/api/answer", lambda route: route.abort())
        given = dict(label_one(page) for _ in range(2))
        expect(page.locator("#banner")).to_contain_text("not saved yet")
        home.revoke("anna", "kim")
        context.unroute_all()
        expect(page.locator("#message")).to_contain_text("2 answers not saved yet will be sent when you are back")
        assert page.locator("#image").get_attribute("src") in (None, ""), "nothing stays on the screen"
        assert desk.answers() == {}, "who has no access saves nothing"
        page.goto(links(home, desk.where, ["anna"])["anna"])
        page.wait_for_selector("#work:not([hidden])")
        assert desk.wait_for(2, page) == {sample: (label, "anna") for sample, label in given.items()}
        desk.troubles = [trouble for trouble in desk.troubles if "ERR_FAILED" not in trouble and "401" not in trouble]


def test_two_tabs_of_one_person_never_store_two_answers_to_one_question(desk: Desk) -> None:
    first = desk.sit()
    second = desk.contexts[0].new_page()
    second.goto(desk.where)
    sample = on_screen(second)
    assert on_screen(first) == sample, "it is the same person's sample"
    first.keyboard.press("1")
    desk.wait_for(1, first)
    second.keyboard.press("2")
    expect(second.locator("#banner")).to_contain_text("was answered already, by you")
    on_screen(second)
    assert desk.answers() == {sample: (0, "anna")}
    first.keyboard.press("Backspace")
    expect(first.locator("#sample-name")).to_have_text(f"sample {sample}")
    until(first, desk.answers, {})
