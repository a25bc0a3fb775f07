"""Browsers for the tests of labelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desks import CHROMIUM, FLAGS, Desk, desk_at
from homes import ask, image_home
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def desks(chromium: Browser) -> Iterator[list[Desk]]:
    """Everything opened in a test, closed at its end; nothing may have come from outside or gone wrong."""
    opened: list[Desk] = []
    yield opened
    for desk in opened:
        for context in desk.contexts:
            context.close()
        outside = [url for url in desk.requests if not url.startswith((desk.where, "blob:" + desk.where))]
        assert outside == []
        assert desk.troubles == []


@pytest.fixture
def desk(tmp_path: Path, chromium: Browser, desks: list[Desk]) -> Iterator[Desk]:
    home = image_home(tmp_path / "home")
    ask(home, range(30))
    with desk_at(home, chromium, desks) as one:
        yield one
