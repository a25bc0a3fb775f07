"""Growth with the number of clients and with the size of the pools, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import generated, measure, settled

CLIENTS = (10, 100, 1000)
POOLS = (5_000, 20_000, 50_000, 100_000)


def clients(count: int) -> dict[str, float]:
    """Tiny clients of 50 samples, 10 labelled, in one process: what a client costs beyond its training steps."""
    data = generated("digits", 50 * count, (1, 8, 8))
    tiny = {"clients": count, "initial_labels": 0.2, "local_epochs": 2, "rounds": 4, "eval_every": 4}
    rounds = settled(measure("digits", data, strategy="random", engine="inprocess", **tiny))
    total, train = min(
        (m["seconds"] - m["seconds_by_phase"]["evaluate"], m["seconds_by_phase"]["train"]) for m in rounds
    )
    return {"clients": count, "seconds": total, "train": train, "fixed_ms_a_client": 1000 * (total - train) / count}


def peak_memory() -> float:
    """The most memory that this process has held, in MB (`getrusage` would start from its parent's)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def pool(size: int) -> dict[str, float]:
    """One client with ``size`` unlabelled samples: its first turn (all watched), a later one, and peak memory."""
    data = generated("mnist", size, (1, 28, 28))
    before = peak_memory()
    alone = {"clients": 1, "classes_per_client": 10, "initial_labels": 200 / size, "rounds": 3, "eval_every": 3}
    found = measure("mnist", data, strategy="chase", engine="inprocess", **alone)
    peak = peak_memory()
    return {
        "pool": size,
        "first_turn": found[0]["seconds"],
        "later_turn": found[-1]["seconds"] - found[-1]["seconds_by_phase"]["evaluate"],
        "peak_mb": peak,
        "beyond_data_mb": peak - before,
    }


def apart(kind: str, size: int) -> dict[str, Any]:
    """One measurement in a process of its own, so that peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.scaling", kind, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(quick: bool) -> dict[str, Any]:
    """All sizes."""
    return {
        "clients": [apart("clients", n) for n in (CLIENTS[:2] if quick else CLIENTS)],
        "pools": [apart("pool", n) for n in (POOLS[:2] if quick else POOLS)],
    }


if __name__ == "__main__":
    print(json.dumps({"clients": clients, "pool": pool}[sys.argv[1]](int(sys.argv[2]))))
