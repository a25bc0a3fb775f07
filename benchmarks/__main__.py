"""`python -m benchmarks [--quick] [--out FILE]`: one table of ratios, and the figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import rounds, scaling

BARS = (
    ("CHASe against random, 6,000 labels", "at most 2.2", lambda r: r["methods"]["6000"]["chase"]["against_random"]),
    ("EV against random, 6,000 labels", "at most 1.3", lambda r: r["methods"]["6000"]["ev"]["against_random"]),
    ("two workers against one, training", "at least 1.8", lambda r: r["workers"]["ratio"]),
    ("overhead over the bare loop", "at most 0.10", lambda r: r["overhead"]["overhead"]),
    ("typical script against CHASe, 2,000 labels", "at least 10", lambda r: r["typical"]["ratio"]),
    ("fixed ms per client, most clients", "under 2", lambda r: r["clients"][-1]["fixed_ms_a_client"]),
)


def show(result: dict[str, Any]) -> None:
    """The figures as tables."""
    console = Console(highlight=False)
    table = Table(title=f"ratios measured in one run on {result['data']}", title_justify="left")
    for column in ("what", "bar", "measured"):
        table.add_column(column)
    for what, bar, read in BARS:
        table.add_row(what, bar, f"{read(result):.2f}")
    console.print(table)
    for labels, methods in result["methods"].items():
        detail = Table(
            title=f"seconds per round at {labels} labels, phases added up over clients", title_justify="left"
        )
        for column in ("method", "round", *rounds.PHASES, "against random"):
            detail.add_column(column, justify="right")
        for method, row in methods.items():
            cells = [f"{row[key]:.2f}" for key in ("seconds", *rounds.PHASES, "against_random")]
            detail.add_row(method, *cells)
        console.print(detail)
    for title in ("clients", "pools"):
        growth = Table(title=f"growth with {title}", title_justify="left")
        for column in result[title][0]:
            growth.add_column(column, justify="right")
        for row in result[title]:
            growth.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print(growth)
    console.print(
        f"typical script {result['typical']['script']:.1f} s per round, CHASe {result['typical']['chase']:.2f} s; "
        f"bare loop {result['overhead']['bare']:.2f} s, whole round {result['overhead']['chase']:.2f} s; "
        f"one worker {result['workers']['one']:.2f} s, two {result['workers']['two']:.2f} s"
    )


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and sizes")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results") / f"{date.today()}.json")
    arguments = parser.parse_args()
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "date": str(date.today()),
        **rounds.run(arguments.quick),
        **scaling.run(arguments.quick),
    }
    show(result)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
