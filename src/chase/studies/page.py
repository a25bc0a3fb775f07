"""The page of a study: findings first, then scene by scene, the paper's figures beside ours."""

from __future__ import annotations

from html import escape
from pathlib import Path

from chase.record import write_atomically
from chase.report.comparing import findings_list
from chase.report.export import write_table
from chase.report.html import page, sections_of
from chase.report.sections import Section, grid, html_table
from chase.studies.figures import FIGURES
from chase.studies.results import SceneResult, StudyResult, findings, minutes_table, paper_notes, paper_table, tables_of


def write_study(result: StudyResult, directory: Path) -> Path | None:
    """``NAME.html`` and ``NAME-tables/`` in a directory; None before any round is finished."""
    shown = [scene for scene in result.scenes if scene.methods]
    if not shown:
        return None
    out = directory / f"{result.study.name}.html"
    write_atomically(out, render(result).encode())
    for scene in shown:
        for name, table in tables_of(scene).items():
            write_table(table, directory / f"{result.study.name}-tables" / f"{scene.key}-{name}.csv")
    return out


def render(result: StudyResult) -> str:
    """The whole page."""
    sections = [summary(result)]
    links = [(sections[0].key, sections[0].title)]
    for scene in result.scenes:
        if scene.methods:
            own = scene_sections(scene, heading=len(result.scenes) > 1)
            links += [(own[0].key, scene.title)] if len(result.scenes) > 1 else [(s.key, s.title) for s in own]
            sections += own
    return page(f"Study: {result.study.name}", f"{result.study.about}. {result.state}.", sections, links)


def summary(result: StudyResult) -> Section:
    """What was found in every scene."""
    body = ""
    for scene in result.scenes:
        said = findings(scene)
        if said:
            body += f"<h3>{escape(scene.title)}</h3>" + findings_list(said)
    note = f'<p class="note">{escape(result.study.note)}</p>' if result.study.note else ""
    return Section("found", "What was found", (body or "<p>Nothing yet.</p>") + note)


def scene_sections(scene: SceneResult, heading: bool) -> list[Section]:
    """The sections of a scene, keys made its own."""
    made = sections_of(scene.methods, scene.part.against)
    first = paper_section(scene)
    figures = [figure for name in scene.part.figures if (figure := FIGURES[name](scene.methods))]
    extra = ([first] if first else []) + ([Section("study", "In this study", grid(figures))] if figures else [])
    made[1:1] = extra
    named = f"{scene.title}: " if heading else ""
    return [Section(f"{scene.key}-{s.key}", f"{named}{s.title}", s.body) for s in made]


def paper_section(scene: SceneResult) -> Section | None:
    """The paper's figures beside ours."""
    beside, times = paper_table(scene), minutes_table(scene)
    body = html_table(beside, " ".join(paper_notes(scene))) if beside is not None else ""
    if times is not None:
        body += html_table(times, "The paper's minutes are of its authors' GPU: compare the ratios.")
    return Section("paper", "Beside the paper", body) if body else None
