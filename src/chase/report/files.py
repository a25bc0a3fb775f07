"""The tables of a report as files beside its page: CSV for programs, LaTeX for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chase.report import tables, versus
from chase.report.export import write_table
from chase.report.runs import Method, RunData, alike, by_method, clock
from chase.report.statistics import last_shared_round
from chase.report.tables import Table

SUFFIXES = (".csv", ".tex")


def report_tables(methods: Sequence[Method], named: str = "") -> dict[str, Table]:
    """The tables of a page by a name for their files; comparisons only where methods can be compared."""
    runs = [run for method in methods for run in method.runs]
    found: dict[str, Table | None] = {
        "summary": tables.summary(methods, clock(methods)),
        "accuracy": tables.accuracy_at(methods, tables.some_rounds(methods)),
    }
    if len(methods) > 1 and alike(methods) and last_shared_round(methods):
        found |= comparison_tables(methods, named)
        found["settings-that-differ"] = tables.settings_that_differ(methods)
    found |= {"settings": tables.all_settings(methods), "versions": tables.versions(runs)}
    return {name: table for name, table in found.items() if table is not None and table.rows}


def comparison_tables(methods: Sequence[Method], named: str = "") -> dict[str, Table | None]:
    """Methods against each other."""
    return {
        "results": versus.results(methods, named),
        "by-round": versus.by_round(methods, named),
        "cost": versus.cost(methods, named),
        "to-reach": versus.to_reach(methods, versus.targets(methods)),
    }


def write_tables(found: Mapping[str, Table], directory: Path) -> Path:
    """Every table as NAME.csv and NAME.tex, and no file of tables that are no more."""
    written = {path for name, table in found.items() for path in write_table(table, directory / f"{name}.csv")}
    remove_others(directory, written, SUFFIXES)
    return directory


def remove_others(directory: Path, kept: set[Path], suffixes: Sequence[str]) -> None:
    """Remove what was made there earlier and is not made any more."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.suffix in suffixes and path not in kept:
            path.unlink()


def write_report_tables(runs: Sequence[RunData], page: Path) -> Path:
    """``report-tables/`` beside ``report.html``."""
    methods = by_method([run for run in runs if run.metrics])
    return write_tables(report_tables(methods), page.with_name(f"{page.stem}-tables"))
