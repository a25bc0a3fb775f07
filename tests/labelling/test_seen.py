"""What is seen is what is labelled: no answer for a sample that is not on the screen, and pictures as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from desks import Desk, desk_at, needs_chromium, on_screen, until
from homes import ask, image_home, originals_home, served, text_home
from PIL import Image
from playwright.sync_api import Browser, Page, expect

pytestmark = needs_chromium

WATCH = """
// Which samples were on the screen, found out from the pixels: sample i has brightness 5 * i.
window.drawn = new Set();
window.unseen = [];
window.answered = 0;
const look = (image) => {
  if (!image.isConnected || !image.complete || !image.naturalWidth || image.offsetParent === null) return;
  const canvas = Object.assign(document.createElement('canvas'), { width: 8, height: 8 });
  const pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0, 8, 8);
  window.drawn.add(pen.getImageData(0, 0, 1, 1).data[0] / 5);
};
const watch = () => { document.querySelectorAll('#image, .tile img').forEach(look); requestAnimationFrame(watch); };
requestAnimationFrame(watch);
const fetched = window.fetch;
window.fetch = (path, options) => {
  if (String(path).includes('/api/answer')) {
    for (const one of JSON.parse(options.body).answers) {
      window.answered += 1;
      if (one.label !== null && !window.drawn.has(one.sample)) window.unseen.push(one.sample);
    }
  }
  return fetched(path, options);
};
"""


def test_a_fast_typist_on_a_slow_line_labels_only_what_was_drawn(desk: Desk) -> None:
    page = desk.sit(script=WATCH, route=("**/api/samples/*", 0.15))
    pressed = 0
    while page.evaluate("window.answered") < 12:
        page.evaluate(
            """() => { for (let i = 0; i < 5; i += 1)
              document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '1', bubbles: true })) }"""
        )
        pressed += 5
        page.wait_for_timeout(10)
    assert page.evaluate("window.unseen") == []
    answered = page.evaluate("window.answered")
    assert answered <= pressed / 5, "of five keys at once at most the first is for what is on the screen"
    desk.wait_for(answered, page)


def test_the_frame_is_empty_until_the_next_picture_is_there(desk: Desk) -> None:
    arrived: set[str] = set()
    page = desk.sit(before=lambda page: page.on("requestfinished", lambda one: arrived.add(one.url)))
    first = on_screen(page)
    until(page, lambda: sum("/api/samples/" in url for url in arrived), 6)  # as many as are fetched ahead
    page.route("**/api/samples/*", lambda route: None)  # nothing more arrives

    def press() -> str:  # no answer while the next picture is being drawn
        page.keyboard.press("1")
        return page.inner_text("#round-text")

    until(page, press, "Round 2: 6 of 30")
    expect(page.locator("#figure")).to_have_attribute("data-state", "loading")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator("#loading")).to_be_visible()
    assert first in desk.wait_for(6, page)
    page.keyboard.press("2")
    page.wait_for_timeout(100)
    assert len(desk.answers()) == 6
    expect(page.locator("#round-text")).to_have_text("Round 2: 6 of 30")


def test_select_all_takes_no_tile_that_is_not_loaded(desk: Desk) -> None:
    page = desk.sit()
    on_screen(page)
    page.route("**/api/samples/*", lambda route: None)
    page.click("#view-grid")
    expect(page.locator(".tile")).to_have_count(24)
    page.click("#select-all")
    page.keyboard.press("1")
    page.wait_for_timeout(200)
    # The first seven had been fetched ahead for the other view.
    assert set(desk.answers()) <= set(range(8))
    expect(page.locator(".tile.loading").first).to_be_visible()
    page.locator(".tile.loading").first.click()
    page.keyboard.press("2")
    expect(page.locator("#banner")).to_contain_text("not on the screen yet")


def test_a_broken_picture_is_a_placeholder_and_takes_no_label(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    good = np.full((8, 8), 40, dtype=np.uint8)
    files = {"a.png": good, "b.png": b"\x89PNG\r\n\x1a\n nothing", "c.png": good}
    home = originals_home(tmp_path, files)
    ask(home, range(3))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        expect(page.locator("#file-name")).to_have_text("a.png")
        page.keyboard.press("1")
        expect(page.locator("#broken")).to_be_visible()
        expect(page.locator("#viewer")).to_be_hidden()
        expect(page.locator("#sample-name")).to_have_text("sample 1")
        page.keyboard.press("2")
        expect(page.locator("#banner")).to_contain_text("cannot be labelled")
        assert set(desk.wait_for(1, page)) == {0}
        page.keyboard.press("Enter")
        expect(page.locator("#file-name")).to_have_text("c.png")
        desk.wait_for(2, page)
        assert home.ledger.labels()[1]["reason"] == "bad sample"
        page.click("#view-grid")
        expect(page.locator(".tile")).to_have_count(1)
    desk.troubles = [t for t in desk.troubles if "422" not in t]


def shade(page: Page) -> int:
    """The brightness in the middle of the picture that is on the screen."""
    found: int = page.evaluate(
        """() => {
          const image = document.querySelector('#image');
          const canvas = Object.assign(document.createElement('canvas'), { width: 8, height: 8 });
          const pen = canvas.getContext('2d');
          pen.drawImage(image, 0, 0, 8, 8);
          return pen.getImageData(4, 4, 1, 1).data[0];
        }"""
    )
    return found


@pytest.mark.parametrize("name", ["scan.png", "scan.tif"])
def test_deep_pictures_are_shown_in_a_window_that_can_be_moved(
    tmp_path: Path, chromium: Browser, desks: list[Desk], name: str
) -> None:
    deep = np.zeros((8, 8), dtype=np.uint16)
    deep[:, 4:] = 2048  # 12 bits in 16: black or white where a reader takes 8 of them
    deep[0, 0] = 4095
    home = originals_home(tmp_path, {name: deep})
    ask(home, [0])
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        assert abs(shade(page) - 128) <= 2
        page.click("#adjust-open")
        expect(page.locator("#window-values")).to_have_text("Grey values 0 to 4095 of 0 to 4095")
        page.evaluate("brightness.value = 40; brightness.dispatchEvent(new Event('input'))")
        expect(page.locator("#adjusted")).to_be_visible()
        until(page, lambda: shade(page) > 160, True)
        page.click("#adjust-reset")
        until(page, lambda: abs(shade(page) - 128) <= 2, True)
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        page.keyboard.press("1")
        desk.wait_for(1, page)


def test_exif_rotation_is_as_training_reads_it(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    wide = Image.fromarray(np.zeros((20, 60, 3), dtype=np.uint8))
    exif = wide.getexif()
    exif[0x0112] = 6
    wide.save(folder / "turned.jpg", exif=exif)
    home = originals_home(tmp_path, {}, folder)
    ask(home, [0])
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        assert page.evaluate("[image.naturalWidth, image.naturalHeight]") == [20, 60]


LONG = "The beginning. " + "word " * 3000 + "The end."
PAGE = "The beginning. " + "word " * 700 + "The end."


def test_long_texts_scroll_by_keys_and_can_be_required_to_the_end(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    home = text_home(tmp_path / "home", [LONG, LONG], ("left", "right"))
    ask(home, [0, 1])
    home.policies.change({"read_to_end": True})
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        expect(page.locator("#more-text")).to_contain_text("More text follows")
        assert page.get_attribute("#text", "dir") == "auto"
        page.keyboard.press("1")
        expect(page.locator("#banner")).to_contain_text("Read the text to its end first")
        assert desk.answers() == {}
        page.keyboard.press("PageDown")
        assert page.evaluate("text.scrollTop") > 100
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Space")
        page.keyboard.press("End")
        expect(page.locator("#more-text")).to_be_hidden()
        page.keyboard.press("1")
        desk.wait_for(1, page)
        assert page.evaluate("text.scrollTop") == 0, "the next text begins at its beginning"


def test_grid_and_history_show_the_beginning_of_a_text_and_all_of_it_on_hover(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    home = text_home(tmp_path / "home", [PAGE, PAGE], ("left", "right"))
    ask(home, [0, 1])
    with desk_at(home, chromium, desks) as desk:
        page = desk.sit()
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        page.keyboard.press("1")
        desk.wait_for(1, page)
        page.click("#view-grid")
        snippet = page.locator(".tile .snippet").first
        expect(snippet).to_have_text(re.compile("^The beginning"))
        assert snippet.get_attribute("title") == PAGE
        page.click("#open-history")
        expect(page.locator("#history .snip")).to_have_text(re.compile("^The beginning"))
        assert page.locator("#history button").first.get_attribute("title") == PAGE


def test_text_from_right_to_left_is_set_so_everywhere(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> None:
    home = text_home(tmp_path / "home", ["שלום עולם, זה טקסט.", "plain words here...."], ("left", "right"))
    ask(home, [0, 1])
    with desk_at(home, chromium, desks) as desk:
        page = desk.sit()
        for direction in ("rtl", "ltr"):
            expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
            assert page.evaluate("getComputedStyle(text).direction") == direction
            page.keyboard.press("1")
            desk.wait_for(1 if direction == "rtl" else 2, page)
        page.click("#open-history")
        found = "[...document.querySelectorAll('#history .snip')].map((one) => getComputedStyle(one).direction)"
        expect(page.locator("#history .snip")).to_have_count(2)
        page.wait_for_function(f"() => {found}.join() === 'ltr,rtl'")


def test_zoom_and_pan_by_wheel_keys_and_double_click(desk: Desk) -> None:
    page = desk.sit()
    on_screen(page)

    def transform() -> str:
        return str(page.evaluate("image.style.transform"))

    page.hover("#viewer")
    page.mouse.wheel(0, -100)
    page.wait_for_function("image.style.transform.includes('scale(1.3')")
    page.keyboard.press("Home")
    assert transform() == ""
    page.keyboard.press("+")
    page.keyboard.press("+")
    before = transform()
    page.keyboard.press("ArrowLeft")
    assert transform() != before
    page.dblclick("#viewer")
    assert transform() == ""
    page.dblclick("#viewer")
    assert "scale(3" in transform()
    page.keyboard.press("1")
    on_screen(page)
    assert transform() == "", "the next sample is seen whole"


def test_metadata_stands_beside_the_sample_and_history_is_searched(desk: Desk) -> None:
    desk.home.inbox.describe({0: {"ward": "B2", "age": "71"}})
    page = desk.sit()
    assert on_screen(page) == 0
    expect(page.locator("#about")).to_contain_text("ward")
    expect(page.locator("#about")).to_contain_text("B2")
    for key in "123":
        sample = on_screen(page)
        page.keyboard.press(key)
        desk.wait_for(sample + 1, page)
    page.click("#open-history")
    expect(page.locator("#history button")).to_have_count(3)
    page.fill("#history-search", "horse")
    expect(page.locator("#history button")).to_have_count(1)
    page.fill("#history-search", "sample 1")
    expect(page.locator("#history button")).to_have_count(1)
    page.fill("#history-search", "nothing like it")
    expect(page.locator("#history")).to_contain_text("None of your answers")


def test_an_unsent_answer_of_a_closed_tab_is_sent_by_the_next(
    tmp_path: Path, chromium: Browser, desks: list[Desk]
) -> None:
    home = image_home(tmp_path / "home")
    ask(home, range(12))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        first = desk.sit()
        on_screen(first)
        second = desk.contexts[0].new_page()
        second.goto(where)
        sample = on_screen(second)
        desk.contexts[0].route("**/api/answer", lambda route: route.abort())
        second.keyboard.press("1")
        first.keyboard.press("2")
        expect(second.locator("#banner")).to_contain_text("not saved yet")
        kept = second.evaluate("Object.keys(localStorage).filter((k) => k.startsWith('chase.outbox'))")
        assert len(kept) == 2, "one outbox per tab"
        second.close()
        desk.contexts[0].unroute_all()
        third = desk.contexts[0].new_page()
        third.goto(where)
        desk.wait_for(1, third)
        assert sample in desk.answers()
        desk.contexts.pop().close()  # before its server ends
    desk.troubles = [t for t in desk.troubles if "ERR_FAILED" not in t]


def test_receipts_are_sent_with_answers(desk: Desk) -> None:
    page = desk.sit()
    bodies: list[dict] = []
    page.on("request", lambda r: bodies.append(json.loads(r.post_data or "{}")) if "/api/answer" in r.url else None)
    on_screen(page)
    page.keyboard.press("1")
    desk.wait_for(1, page)
    assert re.fullmatch("[0-9a-f]{16}[.][0-9a-f]{24}", bodies[0]["answers"][0]["seen"])
    with desk.home.database.reading() as db:
        assert db.execute("SELECT seen FROM answers").fetchone()[0] == bodies[0]["answers"][0]["seen"][:16]
