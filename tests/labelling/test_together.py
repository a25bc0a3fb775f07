"""Several people in front of real browsers: who is there, who decides, who leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from desks import Desk, desk_at, needs_chromium, on_screen, until
from homes import ask, image_home
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from chase.annotation.annotator import SECOND_OPINION, Question
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.team import set_gold

pytestmark = needs_chromium


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = image_home(tmp_path / "home")
    home.people.set_role("eva", "adjudicator")
    home.people.set_role("kim", "lead")
    return home


@pytest.fixture
def desk(home: Home, chromium: Browser, desks: list[Desk]) -> Iterator[Desk]:
    with desk_at(home, chromium, desks) as one:
        yield one


def sit(desk: Desk, name: str, **options: object) -> Page:
    """At a page whose clock can be moved."""
    return desk.sit(name, before=lambda page: page.clock.install(), **options)


def give_to(home: Home, name: str, count: int = 1) -> list[int]:
    """What the others hold has run out; somebody else gets it."""
    with home.database.transaction() as db:
        db.execute("UPDATE claims SET until = 0")
        return [one["sample"] for one in home.inbox.next_for(home.people.named(name).id, count)]


def test_a_person_is_told_before_a_colleague_gets_the_sample(home: Home, desk: Desk) -> None:
    ask(home, range(8))
    page = sit(desk, "anna")
    sample = on_screen(page)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 20)  # else what a busy machine takes counts as idle too
    page.mouse.move(100, 100)
    page.clock.run_for(239_000)
    expect(page.locator("#banner")).to_be_hidden()
    page.clock.run_for(3_000)
    expect(page.locator("#banner")).to_contain_text("goes to a colleague in a minute")
    assert page.title() == "Are you still there?"
    page.mouse.move(300, 300)
    page.clock.run_for(1_000)
    expect(page.locator("#banner")).to_be_hidden()
    assert page.title() == "Labelling: clinic"
    page.clock.resume()
    assert give_to(home, "ben") == [sample]
    page.clock.run_for(31_000)
    expect(page.locator("#banner")).to_contain_text("given to a colleague")
    page.clock.run_for(1_000)
    assert on_screen(page) != sample


def test_tiles_that_went_to_a_colleague_are_marked(home: Home, desk: Desk) -> None:
    ask(home, range(8))
    page = sit(desk, "anna")
    page.click("#view-grid")
    expect(page.locator(".tile:not(.loading)")).to_have_count(8)
    page.clock.run_for(242_000)
    expect(page.locator("#banner")).to_contain_text("Are you still there?")
    page.mouse.move(300, 300)
    assert give_to(home, "ben", 2) == [0, 1]
    page.clock.run_for(31_000)
    expect(page.locator(".tile .badge")).to_have_text(["with a colleague"] * 2)
    page.clock.run_for(1_000)
    page.click("#select-all")
    page.keyboard.press("1")
    assert set(desk.wait_for(6, page)) == set(range(2, 8))


@pytest.mark.parametrize("view", ["one", "grid", "conflicts", "team"])
def test_an_idle_page_is_locked_in_every_view(home: Home, desk: Desk, view: str) -> None:
    home.policies.change({"idle_minutes": 1, "answers_per_sample": 2})
    ask(home, range(8))
    for name, label in (("anna", 0), ("ben", 1)):
        home.inbox.answer(Given(0, label, home.people.named(name).id))
    page = sit(desk, "kim")
    on_screen(page)
    page.click(f"#view-{view}")
    expect(
        page.locator("#team table" if view == "team" else ".tile" if view == "grid" else "#image").first
    ).to_be_visible()
    for _ in range(4):  # who moves stays, however long it takes
        page.clock.run_for(31_000)
        page.mouse.move(200, 200)
        page.mouse.move(210, 210)
    expect(page.locator("#message")).to_be_hidden()
    page.clock.run_for(62_000)
    expect(page.locator("#message")).to_contain_text("The page was locked")
    expect(page.locator("#message")).to_contain_text("Ask whoever runs this page for a new link")
    assert page.locator("#image[src], .tile, #team table").count() == 0, "nothing stays in view"
    page.wait_for_function("() => fetch('/api/me').then((reply) => reply.status === 401)")
    desk.troubles = [one for one in desk.troubles if "401" not in one]


def test_a_pinch_zooms_and_one_finger_moves(home: Home, desk: Desk) -> None:
    ask(home, range(3))
    page = desk.sit("anna", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    on_screen(page)
    box = page.locator("#viewer").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": px, "y": py, "id": number} for number, (px, py) in enumerate(points)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    touch("touchStart", (x - 20, y), (x + 20, y))
    for apart in (30, 40, 50, 60):
        touch("touchMove", (x - apart, y), (x + apart, y))
    touch("touchEnd")
    page.wait_for_function("() => /scale\\((2[.][5-9]|3)/.test(image.style.transform)")
    before = page.evaluate("image.style.transform")
    touch("touchStart", (x, y))
    touch("touchMove", (x + 30, y + 10))
    touch("touchEnd")
    assert page.evaluate("image.style.transform") != before
    assert page.evaluate("visualViewport.scale") == 1, "the page itself stays as it is"


def test_an_adjudicator_sees_all_answers_and_decides(home: Home, desk: Desk) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(6))
    home.inbox.answer(Given(3, 0, home.people.named("anna").id, comment="ears"))
    home.inbox.answer(Given(3, 1, home.people.named("ben").id, unsure=True))
    assert home.inbox.current(3) is None
    page = desk.sit("eva")
    page.click("#view-conflicts")
    assert on_screen(page) == 3
    for words in ("anna", "cat", "ears", "ben", "dog", "not sure"):
        expect(page.locator("#opinions")).to_contain_text(words)
    page.keyboard.press("3")
    expect(page.locator("#message")).to_contain_text("No conflict waits")
    current = home.inbox.current(3)
    assert current is not None
    assert (current["label"], current["rule"], current["by"]) == (2, "decision", "eva")
    assert [line["what"] for line in home.audit.lines()][-1] == "decide"
    annotator = desk.sit("anna")
    expect(annotator.locator("#view-conflicts")).to_be_hidden()
    expect(annotator.locator("#view-team")).to_be_hidden()


def test_the_lead_sees_everybody_and_sets_the_policy(home: Home, desk: Desk) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(6))
    for sample in range(4):
        home.inbox.answer(Given(sample, sample % 2, home.people.named("anna").id, seconds=3.0))
        home.inbox.answer(Given(sample, 1, home.people.named("ben").id, seconds=5.0))
    page = desk.sit("kim")
    page.click("#view-team")
    expect(page.get_by_role("row", name="anna annotator 4 4 3.0")).to_be_visible()
    expect(page.locator("#team")).to_contain_text("2 in conflict")
    expect(page.get_by_role("row", name="anna and ben 4 50 %")).to_be_visible()
    expect(page.get_by_role("row", name="dog 4 ")).to_be_visible()
    page.get_by_label("When people see the model's prediction").select_option("never")
    page.get_by_label("End a session after this many idle minutes").fill("15")
    page.get_by_role("button", name="Save the policy").click()
    expect(page.locator("#banner")).to_contain_text("The policy is saved")
    assert (home.policies.read().reveal, home.policies.read().idle_minutes) == ("never", 15)
    line = list(home.audit.lines())[-1]
    assert (line["who"], line["what"]) == ("kim", "policy")
    assert line["detail"]["changed"] == {"idle_minutes": [0, 15], "reveal": ["own", "never"]}
    page.click("#open-settings")
    expect(page.locator("#reveal-policy")).to_be_visible()
    expect(page.locator("input[name=reveal]").first).to_be_disabled()


def test_nothing_on_the_page_tells_that_a_sample_has_an_answer(home: Home, desk: Desk) -> None:
    ask(home, range(3))
    home.inbox.answer(Given(1, 0, home.people.named("anna").id))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    home.inbox.file([Question(1, 2, 1, SECOND_OPINION, 0, 0.93, again=True)])
    page, shown = desk.sit("ben"), {}
    for _ in range(3):
        sample = on_screen(page)
        shown[sample] = page.inner_text("#why")
        page.keyboard.press("1")
        if len(shown) < 3:
            expect(page.locator("#sample-name")).not_to_have_text(f"sample {sample}")
    assert len(set(shown.values())) == 1, "as all others"
    assert shown[1] == "Asked in round 2 by chase; its prediction changed 4 times in training (EV 4)"


def test_who_saw_the_answers_of_others_decides_and_is_not_asked(home: Home, desk: Desk) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, [5, 6])
    page = desk.sit("eva")
    assert on_screen(page) == 5, "she is asked as an annotator, and has not answered"
    home.inbox.answer(Given(5, 1, home.people.named("anna").id))
    home.inbox.answer(Given(5, None, home.people.named("ben").id, "ask a colleague"))
    page.click("#view-conflicts")
    assert on_screen(page) == 5
    expect(page.locator("#opinions")).to_contain_text("dog")
    page.click("#view-one")
    assert on_screen(page) == 6
    page.keyboard.press("1")
    expect(page.locator("#message")).to_contain_text("All done for now")
    assert [a["annotator"] for a in home.ledger.answers() if a["sample"] == 5] == ["anna", "ben"]


def test_the_lead_is_told_that_nobody_decides(home: Home, desk: Desk) -> None:
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(6))
    for name, label in (("anna", 0), ("ben", 1)):
        home.inbox.answer(Given(2, label, home.people.named(name).id))
    home.revoke("eva", "kim")
    page = desk.sit("kim")
    page.click("#view-team")
    expect(page.locator("#team p.warn")).to_contain_text(
        "1 sample waits for a decision, but no adjudicator (eva) has access"
    )
    expect(page.get_by_role("row", name="eva adjudicator 0 0 – – – 0 New link for eva no access")).to_be_visible()


def test_the_lead_lets_people_in_and_out(home: Home, desk: Desk, chromium: Browser) -> None:
    ask(home, range(30))
    page = desk.sit("kim")
    page.click("#view-team")
    page.get_by_label("A link for somebody new").fill("zoe")
    page.get_by_role("button", name="Make a link").click()
    expect(page.locator(".new-link")).to_contain_text("It is shown only now")
    link = page.input_value("#new-link")
    assert link.startswith(f"{desk.where}/#token=")
    theirs = chromium.new_context()
    desk.contexts.append(theirs)
    zoe = theirs.new_page()
    zoe.goto(link)
    on_screen(zoe)
    expect(zoe.locator(".who")).to_contain_text("zoe")
    page.click("#view-one")
    page.click("#view-team")
    expect(page.get_by_role("row", name="zoe annotator")).to_be_visible()
    assert link not in page.content(), "shown once"
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="End access of zoe").click()
    expect(page.locator("#banner")).to_contain_text("zoe needs a new link")
    zoe.wait_for_function("() => fetch('/api/me').then((reply) => reply.status === 401)")
    page.get_by_role("button", name="New link for zoe").click()
    expect(page.get_by_role("textbox", name="Link for zoe")).to_be_visible()
    back = page.input_value("#new-link")
    assert back != link
    zoe.goto("about:blank")
    zoe.goto(back)
    on_screen(zoe)
    expect(page.get_by_role("button", name="End access of kim")).to_have_count(0)
    lines = [(line["who"], line["what"], line["detail"].get("person")) for line in home.audit.lines()]
    made = [line for line in lines if line[1] in ("link", "revoke") and line[2] == "zoe"]
    assert made == [("kim", "link", "zoe"), ("kim", "revoke", "zoe"), ("kim", "link", "zoe")]
    assert all(url.rpartition("=")[2] not in str(list(home.audit.lines())) for url in (link, back))


def test_not_sure_a_comment_and_a_colleague(home: Home, desk: Desk) -> None:
    ask(home, range(6))
    page = desk.sit("anna")
    first = on_screen(page)
    page.keyboard.press("Shift+N")
    page.keyboard.press("Shift+C")
    page.fill("#comment-text", "blurred on the left")
    page.click("#comment-keep")
    expect(page.locator("#pending")).to_contain_text("blurred on the left")
    page.keyboard.press("2")
    desk.wait_for(1, page)
    second = on_screen(page)
    assert second != first
    expect(page.locator("#pending")).to_be_hidden()
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    expect(page.locator("#sample-name")).not_to_have_text(f"sample {second}")
    until(page, lambda: len(home.inbox.verdicts.reviews()), 2)
    reviews = {one["sample"]: one for one in home.inbox.verdicts.reviews()}
    assert (reviews[first]["why"], reviews[first]["answers"][0]["comment"]) == ("not sure", "blurred on the left")
    assert reviews[second]["why"] == "colleague"
    ben = home.people.named("ben").id
    assert second in [one["sample"] for one in home.inbox.next_for(ben, 6)], "somebody else is asked"
    assert second not in [one["sample"] for one in home.inbox.next_for(home.people.named("anna").id, 6)]


def test_who_is_often_wrong_on_gold_questions_is_warned(home: Home, desk: Desk) -> None:
    home.policies.change({"gold_share": 0.5, "gold_warning": 0.9})
    set_gold(home, dict.fromkeys(range(30, 40), 2))
    ask(home, range(20))
    page = desk.sit("anna")
    for _ in range(16):
        on_screen(page)
        page.keyboard.press("1")
        page.wait_for_timeout(60)
        if page.locator("#banner").is_visible():
            break
    expect(page.locator("#banner")).to_contain_text("of your answers that were checked are right, fewer than 90%")


def test_guidelines_stand_beside_the_task_with_example_pictures(home: Home, desk: Desk) -> None:
    (home.path / "guidelines.md").write_text("# All\nLook **twice**.\n\n## dog\n- barks\n")
    folder = home.path / "guidelines" / "dog"
    folder.mkdir(parents=True)
    Image.fromarray(np.full((20, 30, 3), 90, np.uint8)).save(folder / "a b.png")
    Image.fromarray((np.arange(600, dtype=np.uint16) * 100).reshape(20, 30)).save(folder / "deep.tif")
    ask(home, range(6))
    page = desk.sit("anna", viewport={"width": 1280, "height": 800})
    sample = on_screen(page)
    page.keyboard.press("Shift+G")
    expect(page.locator("#guide-dialog")).to_contain_text("barks")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#guide img')].filter((i) => i.naturalWidth === 30).length === 2"
    )
    dialog, picture = page.locator("#guide-dialog").bounding_box(), page.locator("#viewer").bounding_box()
    assert dialog is not None
    assert picture is not None
    apart = picture["x"] + picture["width"] <= dialog["x"] or dialog["x"] + dialog["width"] <= picture["x"]
    assert apart, "beside the sample, not over it"
    page.keyboard.press("2")
    assert desk.wait_for(1, page) == {sample: (1, "anna")}, "labelling works while it is open"
