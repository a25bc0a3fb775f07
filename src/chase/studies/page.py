"""The page of a study: findings first, then scene by scene, the paper's figures beside ours."""

from __future__ import annotations

from pathlib import Path

from chase.core.files import write_atomically
from chase.report.comparison_section import compared, findings_list
from chase.report.html import page, sections_of
from chase.report.markup import Markup, html_figure, html_table, markup
from chase.report.sections import Section, grid
from chase.report.table_files import plain_tables, write_tables
from chase.studies.figures import FIGURES, across
from chase.studies.findings import NOTHING_FOUND, comparisons, findings
from chase.studies.ranking import NEEDED, labels_needed, ranking, recommendation
from chase.studies.recommend import STUDY as RECOMMEND
from chase.studies.results import SceneResult, StudyResult
from chase.studies.scene_tables import PAPER_MINUTES, minutes_table, paper_notes, paper_table, tables_of, variant_table


def write_study(result: StudyResult, directory: Path) -> Path | None:
    """``NAME.html`` and ``NAME-tables/`` in a directory; None before any round is finished."""
    shown = [scene for scene in result.scenes if scene.methods]
    if not shown:
        return None
    out = directory / f"{result.study.name}.html"
    write_atomically(out, render(result).encode())
    found = {
        f"{scene.key}-{name}": table
        for scene in shown
        for name, table in (plain_tables(scene.methods) | tables_of(scene)).items()
    }
    write_tables(found, directory / f"{result.study.name}-tables", [f"{result.study.name}-*"])
    return out


def render(result: StudyResult) -> str:
    """The whole page."""
    sections = [*recommend_section(result), summary(result), *parts_section(result)]
    links = [(section.key, section.title) for section in sections]
    for scene in result.scenes:
        if scene.methods:
            own = scene_sections(scene, heading=len(result.scenes) > 1)
            links += [(own[0].key, scene.title)] if len(result.scenes) > 1 else [(s.key, s.title) for s in own]
            sections += own
    here = f" Here on {result.scenes[0].title}." if len(result.scenes) == 1 else ""
    lead = f"{result.study.about}.{here} {result.state}."
    return page(f"Study: {result.study.name}", lead[:1].upper() + lead[1:], sections, links)


def summary(result: StudyResult) -> Section:
    """What was found in every scene."""
    scenes = [(scene.title, said) for scene in result.scenes if (said := found_in(scene))]
    return Section(
        "found", "What was found", markup("found", scenes=scenes, nothing=NOTHING_FOUND, note=result.study.note)
    )


def found_in(scene: SceneResult) -> Markup:
    """The sentences of one scene."""
    first, each = comparisons(scene)
    rest = findings(scene)
    return compared(each, first) + (findings_list(rest) if rest else Markup())


def recommend_section(result: StudyResult) -> list[Section]:
    """The ranks over all data sets, the winner and the labels needed, for the study ``recommend``."""
    if result.study.name != RECOMMEND.name:
        return []
    said = recommendation(result)
    body = html_table(ranking(result), said[:1].upper() + said[1:] + ".")
    needed = labels_needed(result)
    return [Section("ranks", "Over all data sets", body + html_table(needed, NEEDED) if needed.rows else body)]


def parts_section(result: StudyResult) -> list[Section]:
    """The accuracy over all parts, where they are steps of one quantity."""
    figures = [html_figure(d.svg, f"{d.title}: {scene}", d.caption) for scene, d in across(result).items()]
    return [Section("across", "Over all parts", grid(figures))] if figures else []


def scene_sections(scene: SceneResult, heading: bool) -> list[Section]:
    """The sections of a scene, keys made its own."""
    made = sections_of(scene.methods, scene.part.against, said=False)  # the page begins with the findings
    first = paper_section(scene)
    drawn = [FIGURES[name](scene.methods) for name in scene.part.figures]
    figures = [html_figure(d.svg, d.title, d.caption) for d in drawn if d is not None]
    extra = ([first] if first else []) + ([Section("study", "In this study", grid(figures))] if figures else [])
    made[1:1] = extra
    made = ([Section("scene", scene.title, Markup())] if heading else []) + made
    return [Section(f"{scene.key}-{s.key}", s.title, s.body) for s in made]


def paper_section(scene: SceneResult) -> Section | None:
    """The paper's figures beside ours."""
    beside, variants, times = paper_table(scene), variant_table(scene), minutes_table(scene)
    body = html_table(beside, " ".join(paper_notes(scene))) if beside is not None else Markup()
    if variants is not None:
        body += html_table(variants, "Paired by seed, with its 95 % interval.")
    if times is not None:
        body += html_table(times, PAPER_MINUTES)
    return Section("paper", "Beside the paper", body) if body else None
