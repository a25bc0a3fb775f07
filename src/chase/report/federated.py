"""The section on a real federation: who took part in each round, and what happened to the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chase.core.files import read_jsonl
from chase.report import tables
from chase.report.markup import Markup, html_table, markup
from chase.report.runs import MethodRuns, RunData
from chase.report.sections import Section

MOST = 200
"""Events shown; a longer history is in the run directory."""
COLUMNS = ("late", "busy", "missing", "absent", "clipped", "refused")


def federation_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Rounds and events of each run that was a real federation; None where no run was."""
    found = [_of(run) for method in methods for run in method.runs if (run.path / "events.jsonl").is_file()]
    return (
        Section("federation", "What happened to the sites", markup("federation", federations=found)) if found else None
    )


def _of(run: RunData) -> tuple[Markup, Markup]:
    lines = [line for line in run.metrics if isinstance(line.get("sites"), Mapping)]
    rounds = tables.ReportTable(
        ("round", "took part", *COLUMNS), [_round(line) for line in lines], text_columns=len(COLUMNS) + 2
    )
    events = read_jsonl(run.path / "events.jsonl", skip_torn=True)
    history = tables.ReportTable(
        ("round", "site", "what", "why"),
        [[str(e.get(key) or "") for key in ("round", "site", "what", "why")] for e in events[-MOST:]],
        text_columns=4,
    )
    note = f"The last {MOST} of {len(events)} events; all are in events.jsonl." if len(events) > MOST else ""
    return html_table(rounds, _privacy(lines)), html_table(history, note)


def _privacy(lines: Sequence[Mapping[str, Any]]) -> str:
    """What differential privacy has spent, where it is on."""
    spent = lines[-1].get("dp_epsilon") if lines else None
    if spent is None:
        return ""
    return f"Differential privacy of sites: epsilon {spent:.2f} spent at delta {lines[-1]['dp_delta']:g}."


def _round(line: Mapping[str, Any]) -> list[str]:
    sites = line["sites"]
    return [str(line["round"]), str(line.get("took_part", "")), *(", ".join(sites.get(name, ())) for name in COLUMNS)]
