"""`python -m benchmarks.federation [--sites 3 6 12 24] [--rounds 3]`: what a real federation costs on one machine.

Every site connects through the proxy, which counts the bytes; memory is proportional set size, so that what
processes share is counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request

from chase.federation.diary import state
from chase.federation.ops import launch
from chase.federation.ops.proxy import FleetProxy, server
from chase.federation.ops.setup import Loopback
from chase.federation.ops.supervisor import Supervisor
from chase.federation.rules import Rules
from chase.run.record import Record
from chase.settings import load

ROLES = ("chase.flower.superlink", "chase.flower.executor", "chase.flower.node", "chase.flower.worker")
LIMIT = 3000.0


class Counting(FleetProxy):
    """Counts what passes."""

    up = down = requests = 0

    async def pass_on(self, request: Request, body: bytes) -> httpx.Response:
        answer = await super().pass_on(request, body)
        self.up += len(body)
        self.down += len(answer.content)
        self.requests += 1
        return answer


def memory(groups: set[int]) -> dict[str, list[int]]:
    """Kilobytes of every process of these groups, by role."""
    found: dict[str, list[int]] = defaultdict(list)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) not in groups:
                continue
            command = (process / "cmdline").read_bytes().decode()
            lines = (process / "smaps_rollup").read_text().splitlines()
        except (OSError, IndexError):
            continue
        size = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        found[next((role for role in ROLES if role in command), "other")].append(size)
    return found


def processor_seconds(groups: set[int]) -> float:
    """Seconds of processor time that these groups have used, ended children included."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) in groups:
            ticks += sum(int(fields[at]) for at in (11, 12, 13, 14))
    return ticks / os.sysconf("SC_CLK_TCK")


class Sampler(threading.Thread):
    """Remembers the most memory seen, in all and by role, and the most clients at once."""

    def __init__(self, groups: set[int]) -> None:
        super().__init__(daemon=True)
        self.groups, self.most, self.one, self.at_once = groups, 0, dict[str, int](), 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(1.0):
            now = memory(self.groups)
            self.most = max(self.most, sum(sum(sizes) for sizes in now.values()))
            self.at_once = max(self.at_once, len(now.get("chase.flower.worker", [])))
            for role, sizes in now.items():
                self.one[role] = max(self.one.get(role, 0), max(sizes))


def measure(sites: int, rounds: int, at_once: int) -> dict[str, Any]:
    """One federation of so many sites."""
    settings = load(
        "digits",
        {
            "clients": sites,
            "rounds": rounds,
            "local_epochs": 2,
            "behaviour": "AbCo",
            "budget": 2,
            "classes_per_client": 5,
        },
    )
    with tempfile.TemporaryDirectory(prefix="chase-scale-") as place:
        began = time.monotonic()
        loopback = Loopback.prepare(
            Path(place) / "fed", settings, Rules(quorum=sites, deadline=LIMIT, poll=0.5, at_once=at_once)
        )
        with Supervisor(loopback.registry) as supervisor:
            loopback.start_server(supervisor)
            keys, trust = loopback.federation.path / "keys", launch.ca(loopback.federation)
            proxy, port = Counting(f"https://{loopback.server}", trust), launch.free_port()
            web = server(proxy, "127.0.0.1", port, keys / "server.pem", keys / "server.key")
            threading.Thread(target=web.run, daemon=True).start()
            launch.wait_for_port("127.0.0.1", port, 60)
            for name, home in loopback.homes.items():
                supervisor.start(launch.site_job(home, name, f"127.0.0.1:{port}", trust))
            groups = {supervisor.pid(name) for name in ("superlink", "server", *loopback.homes)}
            link = {supervisor.pid("superlink")}
            sampler = Sampler(groups)
            sampler.start()
            watch, marks = launch.Watch(loopback.federation, patience=600.0), dict[int, tuple[float, ...]]()
            watch.begin()
            phase = ""
            while phase not in ("finished", "failed") and time.monotonic() - began < LIMIT:
                supervisor.tend()
                phase = watch.look()
                round = int(state(loopback.federation.run).get("round", 0))
                if round not in marks:
                    marks[round] = (
                        proxy.up,
                        proxy.down,
                        proxy.requests,
                        processor_seconds(groups),
                        processor_seconds(link),
                    )
                time.sleep(0.2)
            sampler.over.set()
            marks[rounds + 1] = (
                proxy.up,
                proxy.down,
                proxy.requests,
                processor_seconds(groups),
                processor_seconds(link),
            )
            web.should_exit = True
        if phase != "finished":
            raise SystemExit(f"{sites} sites: the run did not finish within {LIMIT:.0f} s")
        metrics = Record.open(loopback.federation.run).metrics
    seconds = [line["seconds"] for line in metrics]
    trained = [sum(v for k, v in line["seconds_by_phase"].items() if k in ("train", "track")) for line in metrics]
    a, b = marks[min(r for r in marks if r >= 1)], marks[rounds + 1]
    return {
        "sites": sites,
        "asked_at_once": at_once,
        "rounds": rounds,
        "first_round_s": round_off(seconds[0]),
        "round_s": round_off(statistics.median(seconds[1:] or seconds)),
        "training_s_all_sites": round_off(statistics.median(trained)),
        "up_kb_a_site_and_round": round_off((b[0] - a[0]) / 1024 / sites / rounds),
        "down_kb_a_site_and_round": round_off((b[1] - a[1]) / 1024 / sites / rounds),
        "requests_a_site_and_round": round_off((b[2] - a[2]) / sites / rounds),
        "processor_s_a_site_and_round": round_off((b[3] - a[3]) / sites / rounds),
        "superlink_ms_a_request": round_off(1000 * (b[4] - a[4]) / max(1, b[2] - a[2])),
        "most_memory_mb": sampler.most // 1024,
        "clients_at_once": sampler.at_once,
        "mb_of_one": {role: size // 1024 for role, size in sorted(sampler.one.items())},
        "model_kb": round_off(model_bytes(settings) / 1024),
        "load": round_off(os.getloadavg()[0]),
    }


def model_bytes(settings: Any) -> int:
    """Bytes of the network's weights."""
    from chase.run.experiment import net_spec
    from chase.server.server import new_start
    from chase.simulation.world import load_data

    return sum(a.nbytes for a in new_start(net_spec(settings, load_data(settings)), settings).weights.values())


def round_off(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 6, 12, 24])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=0, help="sites asked at a time; 0 = all")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = []
    for sites in chosen.sites:
        found.append(measure(sites, chosen.rounds, chosen.at_once))
        print(json.dumps(found[-1]), flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
