"""The tables of a report as files beside its page: CSV for programs, LaTeX for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chase.report import labels_saved, method_tables, tables
from chase.report.export import write_table
from chase.report.runs import MethodRuns, RunData, alike, by_method, clock
from chase.report.statistics import last_shared_round
from chase.report.tables import ReportTable

SUFFIXES = (".csv", ".tex")


def plain_tables(methods: Sequence[MethodRuns]) -> dict[str, ReportTable]:
    """The tables that every page has, by a name for their files."""
    runs = [run for method in methods for run in method.runs]
    found = {
        "summary": tables.summary(methods, clock(methods)),
        "accuracy": tables.accuracy_at(methods, tables.some_rounds(methods)),
        "settings-that-differ": tables.settings_that_differ(methods),
        "settings": tables.all_settings(methods),
        "versions": tables.versions(runs),
    }
    return {name: table for name, table in found.items() if table is not None and table.rows}


def comparison_tables(methods: Sequence[MethodRuns], named: str = "") -> dict[str, ReportTable]:
    """Methods against each other, by a name for their files; none before a round that all runs evaluated."""
    if not last_shared_round(methods):
        return {}
    found = {
        "labels-saved": labels_saved.saved_table(methods, named),
        "results": method_tables.results(methods, named),
        "by-round": method_tables.by_round(methods, named),
        "cost": method_tables.cost(methods, named),
        "to-reach": method_tables.to_reach(methods, method_tables.targets(methods)),
    }
    return {name: table for name, table in found.items() if table is not None and table.rows}


NAMES = (
    "summary",
    "accuracy",
    "settings-that-differ",
    "settings",
    "versions",
    "labels-saved",
    "results",
    "by-round",
    "cost",
    "to-reach",
)


def write_tables(found: Mapping[str, ReportTable], directory: Path, names: Sequence[str]) -> Path:
    """Every table as NAME.csv and NAME.tex; of what has these names or patterns, files of no table are removed."""
    written = {path for name, table in found.items() for path in write_table(table, directory / f"{name}.csv")}
    remove_others(directory, written, [f"{name}{suffix}" for name in names for suffix in SUFFIXES])
    return directory


def remove_others(directory: Path, kept: set[Path], patterns: Sequence[str]) -> None:
    """Remove what was made there earlier and is not made any more."""
    for path in {path for pattern in patterns for path in directory.glob(pattern)} - kept:
        path.unlink(missing_ok=True)


def write_report_tables(runs: Sequence[RunData], page: Path) -> Path:
    """``report-tables/`` beside ``report.html``."""
    methods = by_method([run for run in runs if run.metrics])
    found = plain_tables(methods)
    if len(methods) > 1 and alike(methods):
        found |= comparison_tables(methods)
    return write_tables(found, tables_beside(page), NAMES)


def tables_beside(page: Path) -> Path:
    """Where the tables of a page are."""
    return page.with_name(f"{page.stem}-tables")
