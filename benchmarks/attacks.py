"""`python -m benchmarks.attacks [STEP ...]`: a federation of real processes is attacked row by row; prints a table.

Four sites on loopback. ``site-b`` misbehaves in a way of its own in every round (a ``sitecustomize`` in its processes),
processes are killed, another user tries the doors, answers are replayed, copies are restored, bits are flipped. A row
holds when the fault was told of under the right name, the rounds went on with the others, and no label was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request

from chase.core.files import held_by
from chase.federation.diary import events, state
from chase.federation.ops import launch
from chase.federation.ops.proxy import FleetProxy, server
from chase.federation.ops.setup import Loopback
from chase.federation.ops.supervisor import Supervisor
from chase.federation.rollback import roll_back
from chase.federation.rules import Rules
from chase.home.store import ClientStore
from chase.run.record import LOCK, Record
from chase.settings import load
from chase.site.place import Site

DEADLINE = 30.0
SETTINGS = {"clients": 4, "rounds": 11, "local_epochs": 2, "behaviour": "AbCo", "budget": 2, "classes_per_client": 5}
BAD = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import time
    import numpy as np
    from dataclasses import replace
    from flwr.app import ConfigRecord
    import chase.site.turn as turn
    import chase.flower.client_app as shell
    import chase.flower.codec as codec
    honest, pack = turn.take_turn, codec.pack_update
    def times(update, factor):
        return replace(update, weights={n: a * np.float32(factor) for n, a in update.weights.items()})
    def bad(*args):
        round, update = args[3].round, honest(*args)
        if round == 2:
            return times(update, "nan")
        if round == 3:
            return times(update, 1000)
        if round == 4:
            lie = {**update.metrics, "pool_labeled": 9999999.0}
            return replace(update, num_labeled=9999999, metrics=lie)
        if round == 8:
            raise type("Nasty\\x1b[31m\\n" + "x" * 5000, (Exception,), {})("text")
        if round == 10:
            time.sleep(DEADLINE + 8)
        return update
    def packed(update, metrics):
        records = pack(update, metrics)
        if update.round == 5:
            head = b'{"w":{"dtype":"F32","shape":[1000000000000000],"data_offsets":[0,64]}}'
            records["weights/0"] = ConfigRecord({"data": len(head).to_bytes(8, "little") + head + bytes(64)})
        return records
    turn.take_turn, codec.pack_update = bad, packed
if "chase.flower.node" in sys.orig_argv:
    import chase.flower.fleet as fleet
    whole = fleet.Fleet.push
    def half(self, message, tree, objects, seconds):
        if message.metadata.group_id == "6" and len(objects) > 2:
            objects = dict(list(objects.items())[:1])
            request = fleet.PushMessagesRequest(node=self._node, messages_list=[message],
                message_object_trees=[tree], clientapp_runtime_list=[seconds])
            self._client.PushMessages(request)
            return
        return whole(self, message, tree, objects, seconds)
    fleet.Fleet.push = half
"""
CLOCK = """
import sys
if "chase.flower.node" in sys.orig_argv:
    import datetime
    import flwr.supernode.node_auth_http_interceptor as auth
    import chase.flower.fleet as fleet
    now = auth.now
    auth.now = lambda: now() + datetime.timedelta(seconds=SKEW)
    clock = fleet.time.time
    class Ahead:
        def __getattr__(self, name):
            return (lambda: clock() + SKEW) if name == "time" else getattr(__import__("time"), name)
    fleet.time = Ahead()
"""


NEWER = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import chase
    chase.__version__ = "9.9.9"
    import chase.flower.codec as codec
    codec.FORMAT += 1
"""


class Copying(FleetProxy):
    """A proxy that keeps the requests with which sites send answers."""

    kept: list[tuple[str, list[tuple[str, str]], bytes]]

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        if "push-" in request.url.path:
            self.kept.append((request.url.path, list(request.headers.items()), body))
        return await super().pass_on(request, body)


class Drill:
    """A running federation and the table that grows."""

    def __init__(self, place: Path, only: Sequence[str] = ()) -> None:
        self.only = only
        rules, settings = Rules(quorum=3, deadline=DEADLINE, join=120.0), SETTINGS | ({"rounds": 2} if only else {})
        self.loopback = Loopback.prepare(place / "fed", load("digits", settings), rules)
        self.federation = self.loopback.federation
        self.place, self.rows = place, list[tuple[str, str, str]]()
        self.labels: dict[str, int] = {}
        self.mounted: list[Path] = []

    def until(self, what: Callable[[dict[str, Any]], bool], limit: float = 400.0) -> None:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            self.supervisor.tend()
            self.watch.look()
            if what(state(self.federation.run)):
                return
            time.sleep(0.2)
        raise TimeoutError(str(state(self.federation.run)))

    def told(self, what: str, site: str = "") -> str:
        found = [e["why"] or what for e in events(self.federation.run) if e["what"] == what and site in e["site"]]
        return found[-1] if found else ""

    def line(self, round: int) -> dict[str, Any]:
        return Record.open(self.federation.run).metrics[round - 1]

    def row(self, name: str, detected: str, survived: bool) -> None:
        lost = self.lost()
        outcome = "yes" if survived and not lost else f"NO {lost and 'lost: ' + lost}"
        self.rows.append((name, detected or "NOT DETECTED", outcome))
        print(f"| {name} | {detected or 'NOT DETECTED'} | {self.rows[-1][2]} |", flush=True)

    def lost(self) -> str:
        """Sites that have fewer labels than before."""
        found = []
        for name, home in self.loopback.homes.items():
            site = Site(home)
            now = ClientStore(site.home, site.start()).load()
            site.close()
            now.pools.check()
            if now.labels_spent < self.labels.get(name, 0):
                found.append(name)
            self.labels[name] = now.labels_spent
        return ", ".join(found)

    def connect(self, name: str, code: str = "") -> None:
        where = self.place / f"custom-{name}"
        job = launch.site_job(self.loopback.homes[name], name, self.at, launch.ca(self.federation))
        if code:  # also for a node that is started again
            where.mkdir(exist_ok=True)
            (where / "sitecustomize.py").write_text(code.replace("DEADLINE", str(DEADLINE)))
            path = f"{where}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            job = replace(job, env={**job.env, "PYTHONPATH": path})
        self.supervisor.start(job)

    def run(self) -> None:
        with Supervisor(self.loopback.registry) as self.supervisor:
            self.loopback.start_server(self.supervisor)
            keys, port = self.federation.path / "keys", launch.free_port()
            self.proxy = Copying(f"https://{self.loopback.server}", launch.ca(self.federation))
            self.proxy.kept = []
            web = server(self.proxy, "127.0.0.1", port, keys / "server.pem", keys / "server.key")
            threading.Thread(target=web.run, daemon=True).start()
            launch.wait_for_port("127.0.0.1", port, 60)
            self.at = f"127.0.0.1:{port}"
            for name in self.loopback.homes:
                self.connect(name, BAD if name == "site-b" and not self.only else "")
            self.watch = launch.Watch(self.federation)
            self.watch.begin()
            try:
                if self.only:
                    self.until(lambda s: s.get("phase") == "finished")
                    self.steps(self.only)
                else:
                    self.rounds()
                    self.afterwards()
            finally:
                web.should_exit = True
        self.unmount()

    def unmount(self) -> None:
        for path in self.mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)

    def rounds(self) -> None:
        self.until(lambda s: s.get("round", 0) >= 1 and s.get("phase") in ("round", "saved"))
        self.foreign_user()
        self.until(lambda s: len(Record.open(self.federation.run).metrics) >= 2)
        self.copy_site("site-d")
        self.replay()
        self.until(lambda s: len(Record.open(self.federation.run).metrics) >= 11)
        bad = {r: self.line(r)["sites"] for r in range(2, 12)}
        for round, name in ((2, "NaN"), (3, "an update times 1,000"), (4, "label lie"), (5, "malformed array")):
            why = bad[round]["refused"].get("site-b", "")
            self.row(name, f"refused: {why}" if why else "", self.line(round)["took_part"] == 3)
        half = bad[6]["refused"].get("site-b") or bad[7]["refused"].get("site-b", "")
        took = f"the round took {self.line(6)['seconds']:.0f} s at a deadline of {DEADLINE:.0f}"
        self.row("half-sent answer", f"refused: {half}; {took}" if half else "", self.line(6)["took_part"] == 3)
        said = [e["why"] for e in events(self.federation.run) if e["what"] == "failed" and e["round"] == 8]
        clean = bool(said) and all("\x1b" not in w and len(w) <= 300 for w in said)
        goes_on = self.line(8)["took_part"] >= 3
        self.row("control characters in texts", f"failed: {said[0][:60]}..." if clean else "", goes_on)
        seen = bad[10]["missing"] == bad[11]["late"] == ["site-b"]
        told = "missing in round 10, its late answer used in round 11" if seen else ""
        self.row("slow site", told, [self.line(r)["took_part"] for r in (10, 11)] == [3, 4])

    def extend(self, rounds: int) -> None:
        record = Record.open(self.federation.run)
        record.keep(record.changed({"rounds": rounds}))
        self.watch = launch.Watch(self.federation)
        self.watch.begin()

    def afterwards(self) -> None:
        self.until(lambda s: s.get("phase") == "finished")
        self.supervisor.stop("site-b")
        self.extend(14)
        self.until(lambda s: s.get("phase") == "round")
        os.kill(held_by(self.federation.run / LOCK).pid, signal.SIGKILL)
        self.until(lambda s: len(Record.open(self.federation.run).metrics) >= 13)
        self.row("kill -9 of the server", self.told("server gone"), self.line(13)["took_part"] == 3)
        os.kill(self.supervisor.pid("site-c"), signal.SIGKILL)
        self.until(lambda s: s.get("phase") == "finished")
        restarts = self.supervisor.restarts.get("site-c", 0)
        self.row("kill -9 of a node", f"restarted {restarts} time(s), the site came back" if restarts else "",
                 self.line(14)["took_part"] >= 3)  # fmt: skip
        self.steps()

    def steps(self, only: Sequence[str] = ()) -> None:
        """The rows after the rounds, or some of them."""
        for step in (
            self.restored_site,
            self.flipped_bits,
            self.flipped_checkpoint,
            self.full_disk_at_a_site,
            self.full_disk_at_the_server,
            self.restored_server,
            self.other_version,
            partial(self.wrong_clock, 3600, "clock an hour ahead"),
            partial(self.wrong_clock, -600, "clock ten minutes behind"),
        ):
            if only and getattr(step, "__name__", "wrong_clock") not in only:
                continue
            try:
                step()
            except Exception as error:  # a row that breaks the drill itself does not hold, and the others are tried
                self.row(getattr(step, "__name__", "clock"), "", False)
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def copy_site(self, name: str) -> None:
        """A backup of a running site, as docs/deploy.md says: the inbox by SQLite, then the other files."""
        home, copy = self.loopback.homes[name], self.place / f"copy-of-{name}"
        with site_lock(home):
            copy.mkdir()
            with (
                closing(sqlite3.connect(home / "inbox.sqlite")) as now,
                closing(sqlite3.connect(copy / "inbox.sqlite")) as kept,
            ):
                now.backup(kept)
            shutil.copytree(home / "state", copy / "state")

    def restored_site(self) -> None:
        self.supervisor.stop("site-d")
        home = self.loopback.homes["site-d"]
        for name in ("inbox.sqlite", "state"):
            target = home / name
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            source = self.place / "copy-of-site-d" / name
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        for left in home.glob("inbox.sqlite-*"):
            left.unlink()
        self.labels.pop("site-d", None)  # the copy is older: its labels were lost with the disk, and are asked again
        self.connect("site-d")
        self.extend(15)
        self.until(lambda s: s.get("phase") == "finished")
        self.row(
            "site restored from an older copy", self.told("rolled back", "site-d"), self.line(15)["took_part"] >= 3
        )

    def flipped_bits(self) -> None:
        self.supervisor.stop("site-c")
        site = Site(self.loopback.homes["site-c"])
        arrays = site.read("samples")
        inputs = arrays["inputs"].copy()
        inputs.reshape(inputs.shape[0], -1)[0, 0] ^= 1
        site.write("samples", {**arrays, "inputs": inputs})
        site.close()
        self.connect("site-c")
        self.connect("site-b")
        self.extend(16)
        self.until(lambda s: s.get("phase") == "finished")
        self.row("flipped bit in a sample", self.told("refused", "site-c"), self.line(16)["took_part"] == 3)
        self.supervisor.stop("site-c")
        site = Site(self.loopback.homes["site-c"])
        site.write("samples", arrays)  # from the backup
        site.close()
        self.connect("site-c")

    def rounds_done(self) -> int:
        return len(Record.open(self.federation.run).metrics)

    def one_more(self, rounds: int = 1) -> dict[str, Any]:
        """Run more rounds to their end; the last line."""
        self.until(lambda s: not launch.server_lives(self.federation.run))
        self.extend(self.rounds_done() + rounds)
        self.until(lambda s: s.get("phase") == "finished")
        return self.line(self.rounds_done())

    def flipped_checkpoint(self) -> None:
        self.until(lambda s: not launch.server_lives(self.federation.run))
        files = [p for p in (self.federation.run / "checkpoint").rglob("*") if p.is_file() and p.suffix != ".json"]
        newest = max(files, key=lambda p: (p.stat().st_mtime_ns, p.stat().st_size))
        raw = bytearray(newest.read_bytes())
        raw[len(raw) // 2] ^= 1
        newest.write_bytes(raw)
        before, line = self.rounds_done(), self.one_more()
        said = self.told("resumed")
        self.row("flipped bit in the server's checkpoint", said if "checksum" in said or "damaged" in said else "",
                 self.rounds_done() == before + 1 and line["took_part"] >= 3)  # fmt: skip

    def small_disk(self, path: Path, mb: int) -> None:
        """Move a directory to a small disk of its own."""
        aside = self.place / f"aside-{path.name}"
        path.rename(aside)
        path.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mb}m,mode=700", "tmpfs", str(path)], check=True)
        self.mounted.append(path)
        shutil.copytree(aside, path, dirs_exist_ok=True, symlinks=True)

    @staticmethod
    def fill(path: Path) -> Path:
        """Take all space that is left."""
        filler = path / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return filler

    def full_disk_at_a_site(self) -> None:
        name = "site-a"
        if os.getuid() != 0:
            self.row("full disk at a site", "not tried: needs root", True)
            return
        self.supervisor.stop(name)
        home = self.loopback.homes[name]
        self.small_disk(home, 64)
        filler = self.fill(home)
        self.connect(name)
        before = len(events(self.federation.run))
        line = self.one_more()
        said = [e for e in events(self.federation.run)[before:] if e["site"] == name]
        told = [f"{e['what']}: {e['why']}" for e in said if e["what"] in ("failed", "refused")]
        log = (home / "logs" / "node.log").read_text()
        why = "; ".join([*told[:1], *(["its log: no space is left"] if "o space" in log else [])])
        held = line["took_part"] >= 2
        filler.unlink()
        again = self.one_more()
        self.row("full disk at a site", why, held and name not in missing(again))

    def full_disk_at_the_server(self) -> None:
        if os.getuid() != 0:
            self.row("full disk at the server", "not tried: needs root", True)
            return
        self.until(lambda s: not launch.server_lives(self.federation.run))
        run, before = self.federation.run, self.rounds_done()
        self.small_disk(run, 96)
        record = Record.open(run)
        record.keep(record.changed({"rounds": before + 1}))
        self.watch = launch.Watch(self.federation)
        self.watch.begin()
        filler = self.fill(run)
        log, end, said = self.federation.path / "logs" / "server.log", time.monotonic() + 120, ""
        offset = log.stat().st_size
        try:
            while time.monotonic() < end and "o space" not in said:
                self.supervisor.tend()
                self.watch.look()
                said = log.read_text()[offset:]
                time.sleep(0.2)
        finally:
            filler.unlink()
        self.until(lambda s: s.get("phase") in ("finished", "failed"))
        if self.rounds_done() == before:
            self.extend(before + 1)
            self.until(lambda s: s.get("phase") == "finished")
        found = next((line.partition("ERROR ")[2] or line for line in said.splitlines() if "o space" in line), "")
        held = self.rounds_done() == before + 1
        self.row("full disk at the server", found and f"logs/server.log: {found.strip()}", held)

    def restored_server(self) -> None:
        """Four rounds back: more than sites can answer again from what they kept."""
        self.until(lambda s: not launch.server_lives(self.federation.run))
        copy, done = self.place / "copy-of-run", self.rounds_done()
        shutil.copytree(self.federation.run, copy)
        self.one_more(4)
        self.until(lambda s: not launch.server_lives(self.federation.run))
        for path in self.federation.run.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(copy, self.federation.run, dirs_exist_ok=True)
        self.extend(done + 1)
        self.until(lambda s: s.get("phase") == "failed")
        said = self.told("stopped")
        roll_back(self.federation, done)
        line = self.one_more()
        self.row("server restored from an older copy", said, line["took_part"] >= 3)

    def other_version(self) -> None:
        self.supervisor.stop("site-d")
        self.connect("site-d", NEWER)
        line = self.one_more()
        self.row("site with another version", self.told("refused", "site-d"), line["took_part"] >= 2)

    def wrong_clock(self, skew: int, name: str) -> None:
        self.supervisor.stop("site-d")
        time.sleep(35)
        log = self.loopback.homes["site-d"] / "logs" / "node.log"
        offset = log.stat().st_size
        self.connect("site-d", CLOCK.replace("SKEW", str(skew)))
        end, said = time.monotonic() + 60, ""
        while time.monotonic() < end and "the clock of this" not in said:
            said = log.read_text()[offset:]
            time.sleep(0.5)
        told = next((line for line in said.splitlines() if "the clock of this" in line), "")
        self.federation.keep_rules(self.federation.changed({"join": 20.0}))  # nobody waits long for it
        line = self.one_more()
        self.row(name, told.partition("ERROR ")[2], line["took_part"] == 3 and "site-d" in missing(line))

    def foreign_user(self) -> None:
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            self.rows.append(("another Unix user", "not tried: needs root and setpriv", "-"))
            return
        public = Path(tempfile.mkdtemp()) / "ca.crt"
        shutil.copy(launch.ca(self.federation), public)
        public.parent.chmod(0o755)
        public.chmod(0o644)
        code = (
            "import ssl,sys,urllib.request as u,urllib.error as e\n"
            "for p in sys.argv[3:]:\n"
            "    r=u.Request(sys.argv[1]+p,data=b'',method='POST',headers={'content-type':'application/protobuf'})\n"
            "    try: print(u.urlopen(r,timeout=30,context=ssl.create_default_context(cafile=sys.argv[2])).status)\n"
            "    except e.HTTPError as x: print(x.code)\n"
        )
        paths = ["control/start-run", "control/register-node", "runtime/acquire-task", "fleet/pull-messages"]
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", code]
        done = subprocess.run(
            [*command, f"https://{self.loopback.server}/v1/", str(public), *paths], capture_output=True, text=True
        )
        codes = done.stdout.split()
        refused = len(codes) == len(paths) and all(c in ("401", "403") for c in codes)
        self.row("another Unix user", f"control, runtime, fleet: {', '.join(codes)}" if refused else "", True)

    def replay(self) -> None:
        kept, before = list(self.proxy.kept), len(events(self.federation.run))
        with httpx.Client(verify=str(launch.ca(self.federation))) as client:
            skip = {"host", "content-length", "connection", "accept-encoding"}
            codes = [
                client.post(f"https://{self.at}{path}", content=body, headers=[h for h in head if h[0] not in skip])
                for path, head, body in kept[:20]
            ]
        names = sorted({str(c.status_code) for c in codes})
        odd = [e for e in events(self.federation.run)[before:] if e["what"] in ("dropped",)]
        self.row("replayed answers", f"{len(codes)} sent again (HTTP {', '.join(names)}), none counted", not odd)


@contextmanager
def site_lock(home: Path) -> Iterator[None]:
    """No turn is taken meanwhile."""
    site = Site(home)
    try:
        with site.locked():
            yield
    finally:
        site.close()


def missing(line: dict[str, Any]) -> set[str]:
    """Sites that did not take part in a round."""
    sites = line["sites"]
    return {name for what in ("missing", "absent", "busy", "refused") for name in sites[what]}


def main() -> None:
    """Run all rows; exit code 1 if one does not hold."""
    began = time.monotonic()
    print("| fault or attack | detected and named | survived, nothing lost |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="chase-attacks-") as place:
        drill = Drill(Path(place), sys.argv[1:])
        try:
            drill.run()
        finally:
            drill.unmount()
    bad = [name for name, detected, survived in drill.rows if detected == "NOT DETECTED" or survived.startswith("NO")]
    print(json.dumps({"rows": len(drill.rows), "failed": bad, "seconds": round(time.monotonic() - began)}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
