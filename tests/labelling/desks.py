"""A home being served, and real browsers in front of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from homes import served
from playwright.sync_api import Browser, BrowserContext, Page, expect

from chase.home.home import Home
from chase.home.page.serving import links

CHROMIUM = os.environ.get("CHASE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000
"""How long a browser may take to show what a test expects: it has a share of a busy core."""
expect.set_options(timeout=PATIENCE_MS)
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: install chromium or set CHASE_CHROMIUM")


class Desk:
    """A home being served, and the browsers of those who label there."""

    def __init__(self, home: Home, where: str, chromium: Browser) -> None:
        self.home, self.where, self._chromium = home, where, chromium
        self.contexts: list[BrowserContext] = []
        self.requests: list[str] = []
        self.troubles: list[str] = []

    def sit(
        self,
        name: str = "anna",
        script: str = "",
        route: tuple[str, float] | None = None,
        before: Callable[[Page], None] = lambda page: None,
        **options: Any,
    ) -> Page:
        """Open the annotator's link and wait for the first sample; ``route`` makes some requests late by seconds."""
        context = self._chromium.new_context(**{"viewport": {"width": 1100, "height": 720}, **options})
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        before(page)
        if script:
            page.add_init_script(script)
        if route is not None:
            self._delay(page, *route)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda line: self.troubles.append(line.text) if line.type == "error" else None)
        page.goto(links(self.home, self.where, [name])[name])
        page.wait_for_selector("#work:not([hidden])")
        return page

    def _delay(self, page: Page, path: str, seconds: float) -> None:
        # In the browser: the driver has one thread, and a wait in it would hold up keys as well.
        pattern = path.strip("*").removesuffix("/")
        page.add_init_script(
            f"""const plain = window.fetch;
            window.fetch = async (path, options) => {{
              if (String(path).includes({pattern!r})) await new Promise((go) => setTimeout(go, {seconds * 1000}));
              return plain(path, options);
            }};"""
        )

    def answers(self) -> dict[int, tuple[int | None, str]]:
        return {line["sample"]: (line["label"], line["annotator"]) for line in self.home.ledger.labels()}

    def wait_for(self, count: int, page: Page) -> dict[int, tuple[int | None, str]]:
        """Until so many answers have arrived."""
        until(page, lambda: len(self.answers()), count)
        return self.answers()


def until(page: Page, found: Callable[[], Any], expected: Any) -> None:
    """Until ``found()`` is what is expected; the page shows an answer before its server has it."""
    for _ in range(PATIENCE_MS // 30):
        if found() == expected:
            return
        page.wait_for_timeout(30)
    assert found() == expected


def on_screen(page: Page) -> int:
    """The sample in view: its picture must be as bright as the caption says it should be."""
    page.wait_for_function(
        """() => {
          const image = document.querySelector('#image');
          if (document.querySelector('#figure').dataset.state !== 'ready') return false;
          if (!image.complete || !image.naturalWidth) return false;
          const canvas = Object.assign(document.createElement('canvas'), { width: 8, height: 8 });
          const pen = canvas.getContext('2d');
          pen.drawImage(image, 0, 0, 8, 8);
          const sample = Number(document.querySelector('#sample-name').textContent.replace('sample ', ''));
          return pen.getImageData(0, 0, 1, 1).data[0] === (5 * sample) % 256;
        }"""
    )
    return int(page.inner_text("#sample-name").removeprefix("sample "))


def label_one(page: Page) -> tuple[int, int]:
    sample = on_screen(page)
    page.keyboard.press("123"[sample % 3])
    expect(page.locator("#sample-name")).not_to_have_text(f"sample {sample}")
    return sample, sample % 3


@contextmanager
def desk_at(home: Home, chromium: Browser, desks: list[Desk]) -> Iterator[Desk]:
    """A desk at the page of a home, noted among ``desks``."""
    with served(home) as where:
        desk = Desk(home, where, chromium)
        desks.append(desk)
        yield desk
        for context in desk.contexts:
            context.close()
        desk.contexts.clear()
