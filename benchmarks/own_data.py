"""From nothing to a report in one command: `chase run PATH` on 2,000 pictures, 10,000 texts and 5,000 table rows.

    python -m benchmarks.own_data [pictures texts rows]

The data is drawn from a seed and decoded from files, with an empty cache. Wall seconds and processor seconds (all
processes, start-up included) of the whole command; the bar is two minutes each on two cores.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 5


def pictures(root: Path, count: int = 2_000) -> Path:
    """A folder per class: 64 x 64 colour pictures of bars in five directions."""
    draw = np.random.default_rng(0)
    down, across = np.mgrid[:64, :64] - 31.5
    for n in range(count):
        angle = np.pi * (n % CLASSES) / CLASSES + draw.normal(0, 0.1)
        bar = np.abs(down * np.cos(angle) + across * np.sin(angle) + draw.normal(0, 8)) < 5
        noise = draw.normal(90, 40, (64, 64, 3)) + 60 * bar[..., None] * draw.uniform(0.3, 1, 3)
        path = root / "pictures" / f"class {n % CLASSES}" / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8)).save(path)
    return root / "pictures"


def texts(root: Path, count: int = 10_000) -> Path:
    """80 words of 5,000 each; a class prefers some of them."""
    draw = np.random.default_rng(0)
    words = np.array(["".join(draw.choice(list("abcdeilmnorstu"), size)) for size in draw.integers(3, 10, 5_000)])
    usual = 1.0 / np.arange(1, words.size + 1)
    shares = [usual * np.random.default_rng(c).lognormal(0, 0.5, words.size) for c in range(CLASSES)]
    with (root / "texts.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "label"])
        for n in range(count):
            p = shares[n % CLASSES] / shares[n % CLASSES].sum()
            rows.writerow([f"t{n}", " ".join(draw.choice(words, 80, p=p)), f"class {n % CLASSES}"])
    return root / "texts.csv"


def rows(root: Path, count: int = 5_000) -> Path:
    """Eight numbers and two categories; three classes by a curved boundary."""
    draw = np.random.default_rng(0)
    numbers, ward, sex = draw.normal(size=(count, 8)), draw.integers(0, 6, count), draw.integers(0, 2, count)
    score = numbers[:, 0] + numbers[:, 1] * numbers[:, 2] + 0.5 * (ward % 3) + 0.5 * sex + draw.normal(0, 0.3, count)
    label = np.searchsorted(np.quantile(score, [0.33, 0.66]), score)
    with (root / "rows.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["case_id", *(f"value{n}" for n in range(8)), "ward", "sex", "label"])
        for n in range(count):
            cells = [f"{value:.3f}" for value in numbers[n]]
            table.writerow([f"c{n}", *cells, f"ward {ward[n]}", "mf"[sex[n]], f"class {label[n]}"])
    return root / "rows.csv"


MAKERS: dict[str, Callable[[Path], Path]] = {"pictures": pictures, "texts": texts, "rows": rows}


def measure(kind: str) -> dict[str, float | str]:
    """One command on new data."""
    with tempfile.TemporaryDirectory() as place:
        data, out = MAKERS[kind](Path(place)), Path(place) / "run"
        command = [sys.executable, "-m", "chase", "run", str(data), "--out", str(out)]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = os.environ | {"CHASE_CACHE": str(Path(place) / "cache")}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
        assert (out / "report.html").is_file()
    figures = {"rounds": last["round"], "labels": last["labels"], "accuracy": round(100 * last["test_accuracy"], 1)}
    return {"data": kind, "wall": round(wall, 1), "processor": round(processor, 1), **figures}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or list(MAKERS):
        load = os.getloadavg()[0]
        print(json.dumps(measure(wanted) | {"load_before": round(load, 1)}), flush=True)
