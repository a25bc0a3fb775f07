"""axe-core in a real browser: no violation in any view, at three widths, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from desks import Desk, desk_at, needs_chromium, on_screen
from homes import ask, image_home, originals_home, served, text_home
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from chase.home.inbox import Given

pytestmark = needs_chromium
WIDTHS = (1280, 320)
FOUND = {"resultTypes": ["violations"]}
SCHEMES = {"light": FOUND, "dark": {**FOUND, "runOnly": ["color-contrast"]}}
"""In dark only what colours can change is looked at again."""


def violations(page: Page) -> list[str]:
    """What axe finds, in light and in dark colours."""
    found = []
    for scheme, options in SCHEMES.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for one in Axe().run(page, options=options).response["violations"]:
            found += [f"{scheme}, {one['id']}: {node['html'][:90]}" for node in one["nodes"]]
    return found


def look(width: int) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 780}, "reduced_motion": "reduce"}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_of_pictures(tmp_path: Path, chromium: Browser, desks: list[Desk], width: int) -> None:
    home = image_home(tmp_path / "home", initial={0: 1})
    (home.path / "guidelines.md").write_text("# All\nLook twice.\n\n## dog\n- barks\n")
    (home.path / "guidelines" / "dog").mkdir(parents=True)
    Image.new("L", (20, 20), 90).save(home.path / "guidelines" / "dog" / "a.png")
    home.people.set_role("lead", "lead")
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(4, 30))
    home.inbox.describe({7: {"ward": "B2"}})
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    for sample in (4, 5, 6):
        home.inbox.answer(Given(sample, 1, anna, comment="see there"))
        home.inbox.answer(Given(sample, sample % 3, ben, unsure=True))
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit("lead", **look(width))
        on_screen(page)
        assert violations(page) == []
        page.click("#adjust-open")
        assert violations(page) == [], "brightness"
        page.click("#adjust-open")
        page.keyboard.press("1")
        on_screen(page)
        for opener, dialog in (("#open-history", "history"), ("#open-settings", "settings"), ("#open-guide", "guide")):
            page.click(opener)
            expect(page.locator(f"#{dialog}-dialog")).to_be_visible()
            if dialog == "settings":
                page.click(".keys summary")
            assert violations(page) == [], dialog
            page.click(f"#{dialog}-dialog [data-close]")
        page.keyboard.press("Escape")
        assert violations(page) == [], "skip"
        page.keyboard.press("Escape")
        page.click("#comment")
        assert violations(page) == [], "comment"
        page.click("#comment-dialog [data-close]")
        page.click("#view-grid")
        expect(page.locator(".tile img").first).to_be_visible()
        assert violations(page) == [], "grid"
        page.click("#view-conflicts")
        expect(page.locator("#opinions")).to_be_visible()
        assert violations(page) == [], "conflicts"
        page.click("#view-team")
        expect(page.locator("#team table").first).to_be_visible()
        page.get_by_role("button", name="New link for anna").click()
        expect(page.locator("#new-link")).to_be_visible()
        assert violations(page) == [], "team"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"


@pytest.mark.parametrize("width", WIDTHS)
def test_broken_pictures_and_a_locked_page(tmp_path: Path, chromium: Browser, desks: list[Desk], width: int) -> None:
    home = originals_home(tmp_path, {"a.png": b"nonsense", "b.png": b"nonsense"})
    home.policies.change({"idle_minutes": 1})
    ask(home, [0, 1])
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        page = desk.sit("anna", before=lambda page: page.clock.install(), **look(width))
        expect(page.locator("#figure")).to_have_attribute("data-state", "broken")
        assert violations(page) == [], "broken"
        page.click("#view-grid")
        expect(page.locator(".tile.unreadable")).to_have_count(2)
        assert violations(page) == [], "grid"
        page.clock.run_for(62_000)
        expect(page.locator("#message")).to_contain_text("The page was locked")
        assert violations(page) == [], "locked"
        page.context.close()
        desk.contexts.clear()
    desk.troubles = [one for one in desk.troubles if "422" not in one and "401" not in one]


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_many_classes_and_the_end(tmp_path: Path, chromium: Browser, desks: list[Desk], width: int) -> None:
    names = tuple(f"{a} bird {i:02d}" for a in ("red", "sea") for i in range(25))
    home = text_home(tmp_path / "home", ["word " * 900, "short"], names)
    ask(home, [0])
    with desk_at(home, chromium, desks) as desk:  # closes the page before its server ends
        page = desk.sit("anna", **look(width))
        expect(page.locator("#figure")).to_have_attribute("data-state", "ready")
        assert violations(page) == []
        page.fill("#filter", "sea bird 07")
        page.keyboard.press("Enter")
        expect(page.locator("#message")).to_contain_text("All done for now")
        assert violations(page) == [], "message"
