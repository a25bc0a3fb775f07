"""A large population stays readable: quantiles, and the ten worst and best clients by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from chase.report.html import render
from chase.report.population import count_quantiles, extremes, population_section, quantile_rows
from chase.report.runs import RunData, by_method

CLIENTS = 120


def run(listed: bool) -> RunData:
    """Client c holds c + 1 samples of class 0 and one of class 1; accuracy is 100 % for class 0 and 0 for class 1."""
    held = [[client + 1, 1] for client in range(CLIENTS)]
    coverage = {"classes": ["a", "b"], "clients": [f"writer {c:03d}" for c in range(CLIENTS)], "held": held}
    lines: list[dict[str, Any]] = []
    for round in (1, 2):
        counts = {str(c): {"labels": float(c * round), "labeled": 2.0} for c in range(CLIENTS)}
        line: dict[str, Any] = {"round": round, "per_class": [1.0, 0.0], "labels": 5, "seconds": 1.0}
        line |= {
            "pools": {"labeled": 2, "dormant": 0, "unlabeled": 3},
            "inferences": 0,
            "inferred_samples": 0.0,
            "test_accuracy": 0.5,
        }
        told = {"labels": [0, 1, 2, 3, 4, 5, 6.0 * round]}
        lines.append(line | ({"clients": counts} if listed else {"clients_seen": 7, "client_quantiles": told}))
    settings = {"clients": CLIENTS, "strategy": "chase", "data": "x", "seed": 0, "rounds": 2}
    return RunData(Path("run"), settings, lines, coverage={**coverage, "labeled": held, "partition": ""})


def test_quantiles_are_those_of_a_line_or_of_its_clients() -> None:
    listed = count_quantiles(run(True).metrics[-1], "labels")
    assert listed is not None
    assert listed.tolist() == np.quantile(2.0 * np.arange(CLIENTS), (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)).tolist()
    told = count_quantiles(run(False).metrics[-1], "labels")
    assert told is not None
    assert told[-1] == 12.0
    assert count_quantiles({}, "labels") is None


def test_ten_worst_and_best_are_named_with_what_they_hold() -> None:
    worst, best = extremes(run(False), "chase")
    assert worst.texts[0] == ["writer 000", "50.0", "2", "2"]
    assert best.texts[0] == ["writer 119", "99.2", "121", "2"]
    assert [len(table.rows) for table in (worst, best)] == [10, 10]
    assert extremes(run(True), "chase")[1].texts[0][-1] == "238"


def test_a_report_of_many_clients_has_no_line_per_client() -> None:
    page = render([run(False)])
    assert "Lowest accuracy by client" in page
    assert "7 of 120 clients have had a turn" in page
    assert "Samples of each class, by client" not in page
    assert "Labels by client:" not in page
    assert "writer 060" not in page
    assert [str(row[0]) for row in quantile_rows(run(False))][:2] == [
        "accuracy, % (own mix of classes)",
        "samples held",
    ]


def test_names_that_begin_alike_stay_apart() -> None:
    alike = run(False)
    for client in range(CLIENTS):
        alike.coverage["clients"][client] = f"THE_TRAGEDY_OF_ROMEO_AND_JULIET_SPEAKER_{client}"
    assert extremes(alike, "chase")[0].texts[1][0] == "THE_TRAGEDY_OF_ROMEO_AND_JULIET_SPEAKER_1"
    alike.coverage["clients"][0] = "A" * 100 + "_0"
    assert extremes(alike, "chase")[0].texts[0][0] == "…" + "A" * 69 + "_0"


def test_clients_that_come_and_go_are_shown() -> None:
    assert "Clients come and go" not in render([run(False)])
    moving = run(False)
    for line in moving.metrics:
        line["clients_here"] = 90
    assert "Clients come and go" in render([moving])


def test_few_clients_are_shown_one_by_one() -> None:
    few = run(True)
    few.settings["clients"] = 10  # type: ignore[index]
    assert population_section(by_method([few])) is None
