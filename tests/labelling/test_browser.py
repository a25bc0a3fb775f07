"""The page in a real Chromium: what a person at a keyboard, a phone or a screen reader meets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from desks import Desk, desk_at, label_one, needs_chromium, on_screen, until
from homes import ANIMALS, ask, image_home, served, text_home
from playwright.sync_api import Browser, Page, expect

from chase.home.home import Home
from chase.home.page.serving import links

pytestmark = needs_chromium
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}


def test_label_twenty_samples_by_keyboard(desk: Desk) -> None:
    page = desk.sit()
    given = dict(label_one(page) for _ in range(20))
    assert len(given) == 20
    assert desk.wait_for(20, page) == {sample: (label, "anna") for sample, label in given.items()}
    expect(page.locator("#round-text")).to_have_text("Round 2: 20 of 30")
    assert "20 labelled in all" in page.inner_text("#all-text")
    seconds = [line["seconds"] for line in desk.home.ledger.labels()]
    assert all(0 < s < 60 for s in seconds)
    assert "#token" not in page.url


def test_a_held_key_labels_one_sample(desk: Desk) -> None:
    page = desk.sit()
    on_screen(page)
    page.keyboard.down("1")
    for _ in range(5):
        page.keyboard.down("1")
    page.keyboard.up("1")
    desk.wait_for(1, page)
    page.wait_for_timeout(200)
    assert len(desk.answers()) == 1


def test_undo_and_undo_after_a_reload(desk: Desk) -> None:
    page = desk.sit()
    (first, _), (second, _) = label_one(page), label_one(page)
    desk.wait_for(2, page)
    page.keyboard.press("Backspace")
    expect(page.locator("#sample-name")).to_have_text(f"sample {second}")
    assert set(desk.answers()) == {first}
    page.reload()
    assert on_screen(page) == second
    page.keyboard.press("Backspace")
    expect(page.locator("#sample-name")).to_have_text(f"sample {first}")
    assert on_screen(page) == first
    page.keyboard.press("3")
    assert desk.wait_for(1, page) == {first: (2, "anna")}
    expect(page.locator("#sample-name")).to_have_text(f"sample {second}")


def test_what_training_used_stands_until_it_is_replaced(desk: Desk) -> None:
    page = desk.sit()
    sample, _ = label_one(page)
    desk.wait_for(1, page)
    desk.home.inbox.hand_out(0)
    following = on_screen(page)
    page.keyboard.press("Backspace")
    expect(page.locator("#revising")).to_contain_text("It is kept until you choose another")
    assert on_screen(page) == sample
    page.keyboard.press("Escape")
    assert on_screen(page) == following
    page.keyboard.press("Backspace")
    expect(page.locator("#revising")).to_be_visible()
    assert on_screen(page) == sample
    page.keyboard.press("3")
    expect(page.locator("#revising")).to_be_hidden()
    until(page, lambda: desk.answers()[sample], (2, "anna"))


def test_skip_with_a_reason(desk: Desk) -> None:
    page = desk.sit()
    first = on_screen(page)
    page.keyboard.press("Escape")
    expect(page.locator("#skip-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#skip-dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page.locator("#sample-name")).not_to_have_text(f"sample {first}")
    second = on_screen(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    desk.wait_for(2, page)
    reasons = {line["sample"]: line["reason"] for line in desk.home.ledger.labels()}
    assert reasons == {first: "bad sample", second: "cannot tell"}
    expect(page.locator("#all-text")).to_contain_text("2 set aside")


def test_a_reload_in_the_middle_loses_and_repeats_nothing(desk: Desk) -> None:
    page = desk.sit()
    given = dict(label_one(page) for _ in range(5))
    waiting = on_screen(page)
    page.reload()
    assert on_screen(page) == waiting
    given |= dict(label_one(page) for _ in range(5))
    assert desk.wait_for(10, page) == {sample: (label, "anna") for sample, label in given.items()}


def test_two_annotators_at_once_never_get_the_same_sample(desk: Desk) -> None:
    anna, ben = desk.sit("anna"), desk.sit("ben")
    hers, his = {}, {}
    for _ in range(8):
        hers |= dict([label_one(anna)])
        his |= dict([label_one(ben)])
    assert not hers.keys() & his.keys()
    expected = {s: (label, "anna") for s, label in hers.items()} | {s: (label, "ben") for s, label in his.items()}
    assert desk.wait_for(16, anna) == expected


def test_a_server_restart_in_the_middle(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    path = tmp_path / "home"
    home = image_home(path)
    ask(home, range(12))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        page = desk.sit()
        given = dict(label_one(page) for _ in range(3))
        desk.wait_for(3, page)
    home.close()
    given |= dict([label_one(page)])
    expect(page.locator("#banner")).to_contain_text("1 answer not saved yet")
    desk.home = Home(path)
    with served(desk.home, port=int(where.rpartition(":")[2])):
        expect(page.locator("#banner")).to_be_hidden(timeout=20_000)
        given |= dict(label_one(page) for _ in range(3))
        assert desk.wait_for(7, page) == {sample: (label, "anna") for sample, label in given.items()}
        desk.contexts[0].close()
    assert all("ERR_CONNECTION" in trouble for trouble in desk.troubles), desk.troubles


def test_a_wrong_and_a_used_link_open_nothing(desk: Desk, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    for token in ("wrong", ""):
        page.goto(f"{desk.where}/#token={token}")
        expect(page.locator("#message")).to_contain_text(re.compile("link"))
        expect(page.locator("#work")).to_be_hidden()
        page.goto("about:blank")
    link = links(desk.home, desk.where, ["anna"])["anna"]
    page.goto(link)
    page.wait_for_selector("#work:not([hidden])")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#work:not([hidden])")
    other = chromium.new_context()
    elsewhere = other.new_page()
    elsewhere.goto(link)
    expect(elsewhere.locator("#message")).to_contain_text("used already")
    expect(elsewhere.locator("#work")).to_be_hidden()
    context.close()
    other.close()


def test_a_link_pasted_into_an_open_page_is_followed(desk: Desk) -> None:
    page = desk.sit("anna")
    page.evaluate("link => { location.href = link; }", links(desk.home, desk.where, ["ben"])["ben"])
    expect(page.locator("#annotator")).to_have_text("ben")
    assert "token" not in page.url


def test_answers_not_sent_yet_never_reach_another_home(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    first, second = (image_home(tmp_path / name) for name in ("first", "second"))
    for home in (first, second):
        ask(home, range(5))
    with served(first) as where:
        desk = Desk(first, where, chromium)
        desks.append(desk)
        page = desk.sit()
        on_screen(page)
    page.keyboard.press("1")
    expect(page.locator("#banner")).to_contain_text("not saved yet")
    with served(second, int(where.rpartition(":")[2])):
        page.goto("about:blank")
        page.goto(links(second, where, ["anna"])["anna"])
        page.wait_for_selector("#work:not([hidden])")
        on_screen(page)
        page.keyboard.press("2")
        expect(page.locator("#last-label")).to_have_text("dog")
        expect(page.locator("#round-text")).to_have_text("Round 2: 1 of 5")
        until(page, lambda: [line["label"] for line in second.ledger.labels()], [1])
    desk.troubles.clear()  # the server was away


def test_two_hundred_classes_are_found_by_typing(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    names = tuple(f"{a} {b}" for a in ("red", "grey", "wood", "sea") for b in (f"bird {i:02d}" for i in range(50)))
    home = image_home(tmp_path / "home", classes=names)
    ask(home, range(5))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        expect(page.locator("#filter")).to_be_focused()
        assert page.locator("[role=option]").count() == 200
        sample = on_screen(page)
        page.keyboard.type("sea bird 07")
        expect(page.locator("[role=option]")).to_have_count(1)
        page.keyboard.press("Enter")
        assert desk.wait_for(1, page) == {sample: (names.index("sea bird 07"), "anna")}
        expect(page.locator("#filter")).to_have_value("")
        page.keyboard.type("no such")
        expect(page.locator("#no-match")).to_contain_text("no such")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        page.keyboard.type("wood")
        page.keyboard.press("ArrowDown")
        marked = page.inner_text(".marked")
        assert page.get_attribute("#filter", "aria-activedescendant") == page.get_attribute(".marked", "id")
        page.keyboard.press("Enter")
        desk.wait_for(2, page)
        assert sorted(label for label, _ in desk.answers().values())[0] == names.index(marked)
        page.keyboard.press("Backspace")
        expect(page.locator("#round-text")).to_have_text("Round 2: 1 of 5")


def test_a_long_text_shows_the_place_to_predict(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    text = "\n".join(f"line {i}: words of <b>no</b> consequence, again and again" for i in range(300)) + " the en"
    made = text_home(tmp_path / "home", [text], tuple("de \n"))
    made.close()
    card = made.path / "client.json"
    card.write_text(card.read_text().replace('"predicts_next": false', '"predicts_next": true'))
    home = Home(made.path)
    ask(home, [0])
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        slot = page.locator(".slot")
        expect(slot).to_be_in_viewport()
        assert page.inner_text("#text").endswith("the en?")
        assert "<b>no</b>" in page.inner_text("#text")
        page.keyboard.press("d")
        assert desk.wait_for(1, page) == {0: (0, "anna")}
        expect(page.locator("#message")).to_contain_text("All done for now")
        page.keyboard.press("Backspace")
        expect(slot).to_be_visible()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        page.keyboard.press("Enter")
        assert desk.wait_for(1, page) == {0: (3, "anna")}, "Enter is the key of the new line"


def test_many_at_once_in_the_grid_and_undone_together(desk: Desk) -> None:
    page = desk.sit()
    page.click("#view-grid")
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(24)
    for place in range(5):
        expect(tiles.nth(place)).not_to_have_class(re.compile("loading"))
    for place in (1, 3, 4):
        tiles.nth(place).click()
    expect(page.locator("#grid-hint")).to_contain_text("3 selected")
    page.keyboard.press("2")
    assert desk.wait_for(3, page) == dict.fromkeys((1, 3, 4), (1, "anna"))
    expect(page.locator(".tile.done")).to_have_count(3)
    page.keyboard.press("Backspace")
    expect(page.locator(".tile.done")).to_have_count(0)
    assert desk.answers() == {}
    for place in range(5):
        expect(tiles.nth(place)).not_to_have_class(re.compile("loading"))
    tiles.nth(0).focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("3")
    assert desk.wait_for(3, page) == dict.fromkeys((0, 1, 2), (2, "anna"))
    for place in range(0, 24, 4):  # what is below the edge of the screen was not seen and takes no label
        tiles.nth(place).scroll_into_view_if_needed()
    expect(page.locator(".tile.loading")).to_have_count(0)
    page.click("#select-all")
    page.keyboard.press("1")
    desk.wait_for(24, page)
    expect(tiles).to_have_count(6)


def test_history_corrects_an_earlier_answer(desk: Desk) -> None:
    page = desk.sit()
    first, _ = label_one(page)
    label_one(page)
    waiting = on_screen(page)
    page.click("#open-history")
    page.locator("#history button").nth(1).click()
    assert on_screen(page) == first
    expect(page.locator("#revising")).to_contain_text(f"You said {ANIMALS[first % 3]}")
    page.keyboard.press("3")
    expect(page.locator("#last-what")).to_have_text("Corrected to")
    assert on_screen(page) == waiting
    until(page, lambda: desk.answers()[first], (2, "anna"))
    assert len(desk.answers()) == 2


def test_the_model_s_thought_is_hidden_until_after_the_answer(desk: Desk) -> None:
    page = desk.sit()
    expect(page.locator("#why")).to_contain_text("Asked in round 2 by chase; its prediction changed 4 times")
    expect(page.locator("#before")).to_be_hidden()
    assert "63 %" not in page.inner_text("body")
    label_one(page)
    expect(page.locator("#after")).to_contain_text("63 %")
    page.click("#open-settings")
    page.check("[name=reveal][value=before]")
    page.click("#settings-dialog [data-close]")
    expect(page.locator("#before")).to_contain_text("63 %")
    page.reload()
    expect(page.locator("#before")).to_contain_text("63 %")


def test_dark_mode_follows_the_device_and_the_setting(desk: Desk) -> None:
    def brightness(page: Page) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(n) for n in re.findall(r"\d+", colour)[:3])

    page = desk.sit(color_scheme="dark")
    assert brightness(page) < 150
    page.click("#open-settings")
    page.check("[name=theme][value=light]")
    assert brightness(page) > 600
    page.reload()
    assert brightness(page) > 600


def test_everything_can_be_reached_and_is_named_without_a_mouse(desk: Desk) -> None:
    page = desk.sit()
    page.keyboard.press("Tab")
    seen: list[str] = []
    for _ in range(20):
        name = page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        seen.append(name)
        page.keyboard.press("Tab")
    for wanted in ("view-grid", "open-history", "open-settings", "undo", "skip"):
        assert wanted in seen
    snapshot = page.locator("body").aria_snapshot()
    for wanted in ('button "cat"', 'button "Undo"', "progressbar", "img", 'heading "What is this?"', "status"):
        assert wanted in snapshot, snapshot
    sample = on_screen(page)
    page.get_by_role("button", name="dog").focus()
    page.keyboard.press("Enter")
    assert desk.wait_for(1, page) == {sample: (1, "anna")}
    expect(page.locator("#live")).to_contain_text("dog. Next sample.")
    page.click("#open-settings")
    page.uncheck("#keys-on")
    page.click("#settings-dialog [data-close]")
    page.keyboard.press("1")
    page.wait_for_timeout(150)
    assert len(desk.answers()) == 1, "single keys are off"


def test_of_several_words_each_begins_one_of_the_class(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    names = (*(f"{bone} {side}" for bone in ("Femur", "Tibia", "Fibula") for side in ("left", "right")), "Felt hat")
    home = image_home(tmp_path / "home", classes=(*names, *(f"other {i}" for i in range(40))))
    ask(home, range(5))
    with desk_at(home, chromium, desks) as desk:
        page = desk.sit()
        sample = on_screen(page)
        page.keyboard.type("fem l")
        expect(page.locator("[role=option]")).to_have_text(["Femur left"])
        page.keyboard.press("Enter")
        assert desk.wait_for(1, page) == {sample: (0, "anna")}


@pytest.mark.parametrize(
    ("width", "height", "least"),
    [(844, 390, 150), (640, 450, 150), (390, 844, 250)],
    ids=["landscape", "200 %", "phone"],
)
def test_small_windows_keep_the_picture_in_view(desk: Desk, width: int, height: int, least: int) -> None:
    page = desk.sit(viewport={"width": width, "height": height})
    on_screen(page)
    box, place = page.locator("#image").bounding_box(), page.locator("#classes button").first.bounding_box()
    assert box is not None
    assert place is not None
    assert box["y"] >= 0
    assert box["x"] >= 0
    assert box["y"] + box["height"] <= height, "the picture is in view"
    assert box["x"] + box["width"] <= width
    assert min(box["width"], box["height"]) >= least
    assert place["y"] + place["height"] <= height, "beside a class to choose"
    expect(page.locator(".who")).to_be_visible()
    expect(page.locator(".who")).to_contain_text("anna")
    assert page.locator("h1").count() >= 1
    assert "Space" not in page.inner_text("body")


def test_a_phone_fits_and_is_tapped(desk: Desk) -> None:
    page = desk.sit(**PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for button in page.locator("#classes button, .actions button").all():
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["y"] + box["height"] <= 844
    sample = on_screen(page)
    places = [b.bounding_box() for b in page.locator("#classes button").all()]
    page.get_by_role("button", name="horse").tap()
    assert desk.wait_for(1, page) == {sample: (2, "anna")}
    expect(page.locator("#after .row")).to_have_count(2)
    assert [b.bounding_box() for b in page.locator("#classes button").all()] == places, "they stay under the thumb"
    page.locator("#view-grid").tap()
    expect(page.locator(".tile")).to_have_count(24)
    page.get_by_role("button", name="dog").tap()
    expect(page.locator("#banner")).to_contain_text("Select samples first")
    assert len(desk.answers()) == 1, "nobody pointed at a sample"
    page.locator(".tile").nth(2).tap()
    expect(page.locator("#grid-hint")).to_contain_text("1 selected")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_names_are_shown_as_text_never_run(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    evil = '<img src=x onerror="document.title=1">'
    home = image_home(tmp_path / "home", classes=(evil, "b"))
    ask(home, range(3))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit("<b>anna</b>")
        assert evil in page.inner_text("#classes")
        on_screen(page)  # a key that comes earlier is refused
        page.keyboard.press("1")
        expect(page.locator("#last-label")).to_have_text(evil)
        expect(page.locator("#annotator")).to_have_text("<b>anna</b>")
        assert page.title() == "Labelling: clinic"
