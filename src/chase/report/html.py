"""``report.html``: one file that needs nothing from outside, for a screen, a phone and paper."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from chase import __version__
from chase.core.files import write_atomically
from chase.report.agreement_section import agreement_section
from chase.report.comparison_section import comparison_section
from chase.report.coverage_section import coverage_section
from chase.report.federated import federation_section
from chase.report.gallery import gallery_section
from chase.report.holdings import holdings_section
from chase.report.markup import Markup, markup
from chase.report.population import population_section
from chase.report.quality import quality_section
from chase.report.requests_section import requests_section
from chase.report.runs import MethodRuns, RunData, alike, by_method, read_run
from chase.report.sections import SECTIONS, Section
from chase.report.table_files import tables_beside, write_report_tables


def page(title: str, lead: str, sections: Sequence[Section], links: Sequence[tuple[str, str]] = ()) -> str:
    """The whole page; ``links`` (key, text) stand at its top instead of all sections."""
    style = Markup(files("chase.report").joinpath("report.css").read_text(encoding="utf-8"))
    named = links or [(s.key, s.title) for s in sections]
    body = markup("page", title=title, lead=lead, links=named, sections=sections, style=style, version=__version__)
    return f"{body}\n"


def data_name(data: str) -> str:
    """Data as a reader knows it: of a path the last part, for a report is passed on and folders are private."""
    return data if data.startswith("hub:") else data.rstrip("/").rpartition("/")[2] or data


def title_of(methods: Sequence[MethodRuns]) -> str:
    """Which methods on which data."""
    data = list(dict.fromkeys(data_name(str(method.first.settings.get("data", "?"))) for method in methods))
    names = list(dict.fromkeys(str(method.first.settings.get("strategy", "?")) for method in methods))
    if len(names) > 4:
        return f"{len(names)} methods on {', '.join(data)}"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} on {', '.join(data)}"
        if len(names) > 1
        else (f"{names[0]} on {', '.join(data)}")
    )


BEHAVIOURS = {
    "ReCo": "ReCo (relative cooperation: some annotators label little and rarely, some much and often)",
    "AbCo": "AbCo (absolute cooperation: every client labels in every turn)",
    "free": "clients that label at intervals of their own",
}
"""What the settings of ``behaviour`` mean."""


def lead_of(methods: Sequence[MethodRuns]) -> str:
    """The setting of the comparison in one line."""
    runs = [run for method in methods for run in method.runs]

    def said(key: str) -> str:
        return " or ".join(dict.fromkeys(str(run.settings.get(key, "?")) for run in runs))

    seeds = sorted({run.seed for run in runs})
    learners = dict.fromkeys(
        "closed-form learner" if run.settings.get("learner") == "closed-form" else str(run.settings.get("net", "?"))
        for run in runs
    )
    behaviour = " or ".join(dict.fromkeys(BEHAVIOURS.get(part, part) for part in said("behaviour").split(" or ")))
    share = {"classes": f"{said('classes_per_client')} classes per client", "dirichlet": f"Dirichlet({said('alpha')})"}
    divided = share.get(said("partition"), said("partition"))
    clients = "1 client" if said("clients") == "1" else f"{said('clients')} clients"
    return (
        f"{clients}, {divided}, {behaviour}, {' or '.join(learners)}, "
        f"{max(len(run.metrics) for run in runs)} rounds, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}."
    )


def render(runs: Sequence[RunData]) -> str:
    """The report of one run or the comparison of many."""
    methods = by_method([run for run in runs if run.metrics])
    return page(title_of(methods), lead_of(methods), sections_of(methods))


def sections_of(methods: Sequence[MethodRuns], against: str = "", said: bool = True) -> list[Section]:
    """All sections that the methods have something for; ``said`` puts findings into the comparison."""
    comparison = comparison_section(methods, against, said) if alike(methods) else None
    made = [maker(methods) for maker in SECTIONS]
    made[1:1] = [comparison]
    more = (
        quality_section,
        requests_section,
        agreement_section,
        coverage_section,
        population_section,
        holdings_section,
        gallery_section,
        federation_section,
    )
    made[-1:-1] = [maker(methods) for maker in more]
    return [section for section in made if section is not None]


def write_report(runs: Sequence[RunData], out: Path) -> Path:
    """Write the report to a file, whole or not at all."""
    write_atomically(out, render(runs).encode())
    return out


def report_run(path: Path) -> Path | None:
    """``report.html`` within a run directory; None before its first round."""
    run = read_run(path)
    if not run.metrics:
        return None
    page = write_report([run], path / "report.html")
    if tables_beside(page).is_dir():  # somebody asked for them before
        write_report_tables([run], page)
    return page
