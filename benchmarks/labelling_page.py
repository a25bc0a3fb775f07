"""How the page holds up: a typist faster than the line, and five people with a server that is killed twice.

    python benchmarks/labelling_page.py typist --answers 1000    no answer to a sample not on the screen
    python benchmarks/labelling_page.py speed --answers 200      from a key to the next picture, already loaded
    python benchmarks/labelling_page.py team --answers 1000      none lost, none doubled, agreement as from the raw

The first two need Chromium (``chromium`` on the path, or CHASE_CHROMIUM). Each ends with an error if a bar is missed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "labelling")]

from homes import ask, image_home  # noqa: E402

from chase.home.annotator_agreement import agreement  # noqa: E402
from chase.home.home import Home  # noqa: E402
from chase.home.page.serving import Address, bind  # noqa: E402

PEOPLE = ("anna", "ben", "cleo", "dan", "eva")


def big_home(path: Path, count: int) -> Home:
    """Samples that a script can tell apart by two grey values."""
    home = image_home(path, count)
    ask(home, range(count))
    return home


def browse(answers: int, delay: float, pause: float) -> tuple[int, int, list[float]]:
    """Type as fast as possible; answers given, answers to samples never drawn, and milliseconds from key to picture."""
    from desks import CHROMIUM, FLAGS, Desk
    from homes import served
    from playwright.sync_api import sync_playwright

    watch = """
    window.drawn = new Set(); window.unseen = 0; window.answered = 0; window.times = []; let pressed = 0;
    document.addEventListener('keydown', () => { pressed = performance.now(); }, true);
    addEventListener('DOMContentLoaded', () => {
      new MutationObserver(() => {
        const ready = figure.dataset.state === 'ready';
        if (!ready) return;
        window.drawn.add(document.querySelector('#sample-name').textContent + document.querySelector('#image').src);
        if (pressed) { window.times.push(performance.now() - pressed); pressed = 0; }
      }).observe(figure, { attributes: true, attributeFilter: ['data-state'] });
    });
    const before = window.fetch;
    window.fetch = (path, options) => {
      if (String(path).includes('/api/answer')) for (const one of JSON.parse(options.body).answers) {
        window.answered += 1;
        if (![...window.drawn].some((d) => d.startsWith(`sample ${one.sample}blob:`))) window.unseen += 1;
      }
      return before(path, options);
    };"""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        home = big_home(Path(place) / "home", answers + 20)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with served(home) as where:
            desk = Desk(home, where, browser)
            page = desk.sit(script=watch, route=("/api/samples", delay) if delay else None)
            page.wait_for_selector("#figure[data-state=ready]")
            while (done := page.evaluate("window.answered")) < answers:
                if pause:
                    page.wait_for_selector("#figure[data-state=ready]")
                    page.wait_for_timeout(pause * 1000)
                page.keyboard.press("123"[done % 3])
            page.wait_for_timeout(500)
            found = page.evaluate("[window.answered, window.unseen, window.times]")
        browser.close()
    return found[0], found[1], found[2]


class Line:
    """One person's page, as far as a server sees it: it sends what it has until it has a receipt."""

    def __init__(self, port: int, home: Home, name: str) -> None:
        self.port, self.cookie = port, ""
        while not self.cookie:  # a reply that was lost has used its link up
            self.post("/api/enter", {"token": home.people.invite(name)})

    def request(self, method: str, path: str, body: dict | None = None) -> tuple[dict, bytes]:
        headers = {"origin": f"http://127.0.0.1:{self.port}", "content-type": "application/json"}
        if self.cookie:
            headers["cookie"] = self.cookie
        while True:
            try:
                line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                line.request(method, path, None if body is None else json.dumps(body), headers)
                reply = line.getresponse()
                content, found = reply.read(), dict(reply.getheaders())
                line.close()
                if "set-cookie" in found:
                    self.cookie = found["set-cookie"].partition(";")[0]
                return found, content
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)

    def post(self, path: str, body: dict) -> dict:
        found: dict = json.loads(self.request("POST", path, body)[1])
        return found


def label(name: str, line: Line, target: int, raw: dict, lock: threading.Lock) -> None:
    draw = random.Random(name)
    while True:
        with lock:
            if len(raw) >= target:
                return
        queue = line.post("/api/next", {"want": 4, "shown": 1})["queue"]
        if not queue:
            return
        for question in queue:
            seen = line.request("GET", f"/api/samples/{question['sample']}")[0].get("x-chase-seen", "")
            right = question["sample"] % 3
            said = right if draw.random() < 0.85 else draw.randrange(3)
            one = {"sample": question["sample"], "question": question["id"], "label": said, "seen": seen}
            one["key"] = f"{draw.random()}"
            reply = line.post("/api/answer", {"answers": [one], "want": 1})
            if reply["accepted"]:
                with lock:
                    raw[(question["sample"], name)] = said


def team(answers: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        home = image_home(Path(place) / "home", answers)
        home.policies.change({"answers_per_sample": 2, "overlap": 0.2})
        ask(home, range(answers))
        with bind(Address(port=0)) as free:
            port = int(free.getsockname()[1])

        def start() -> subprocess.Popen:
            command = [sys.executable, "-m", "chase", "label", str(home.path), "--port", str(port), "-a", "nobody"]
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        server, raw, lock = start(), {}, threading.Lock()
        lines = {name: Line(port, home, name) for name in PEOPLE}
        threads = [threading.Thread(target=label, args=(n, line, answers, raw, lock)) for n, line in lines.items()]
        for thread in threads:
            thread.start()
        for part in (1, 2):
            while len(raw) < part * answers // 3:
                time.sleep(0.05)
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = start()
        for thread in threads:
            thread.join()
        server.kill()
        server.wait()
        kept = {(s, who): c for s, who, c in home.ledger.votes()}
        with home.database.reading() as db:
            rows = db.execute("SELECT COUNT(*) FROM answers WHERE retracted_at IS NULL").fetchone()[0]
        lost = len(set(raw) - set(kept)) + sum(kept[key] != said for key, said in raw.items() if key in kept)
        print(f"{len(raw)} answers with a receipt, {rows} kept, {lost} lost or changed, {rows - len(kept)} doubled")
        ours = agreement(home.ledger.votes(), home.card.classes)
        plain = agreement([(s, who, said) for (s, who), said in sorted(raw.items())], home.card.classes)
        print(f"alpha {ours.alpha.value:.4f} from the inbox, {plain.alpha.value:.4f} from the raw answers")
        print(f"audit log: {home.audit.verify()[0]} lines, chain whole")
        if lost or rows != len(kept) or ours.alpha.value != plain.alpha.value:
            raise SystemExit("a bar is missed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("typist", "speed", "team"))
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds by which pictures are late, for typist")
    args = parser.parse_args()
    if args.what == "team":
        team(args.answers)
        return
    done, unseen, times = browse(
        args.answers, args.delay if args.what == "typist" else 0, 0.05 * (args.what == "speed")
    )
    print(f"{done} answers, {unseen} to samples that were not on the screen")
    if args.what == "speed":
        p50, p95 = np.percentile(times, [50, 95])
        print(f"from key to the next picture on the screen: median {p50:.0f} ms, 95th percentile {p95:.0f} ms")
        if p95 > 150:
            raise SystemExit("a bar is missed")
    if unseen:
        raise SystemExit("a bar is missed")


if __name__ == "__main__":
    main()
