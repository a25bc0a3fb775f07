"""The page of one exported study: what was found, then figures and tables scene by scene, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chase.core.errors import RunDirectoryError
from chase.core.files import write_atomically
from chase.core.prose import reflow
from chase.report import charts, method_tables, plots
from chase.report.comparison_section import difference_curves
from chase.report.export import to_markdown, write_table
from chase.report.notes import run_notes
from chase.report.runs import Quantity, accuracy, clock, metric
from chase.report.sections import round_numbers
from chase.report.standalone import standalone
from chase.report.tables import ReportTable
from chase.studies.figures import FIGURES, Drawing, across
from chase.studies.findings import NOTHING_FOUND, comparisons, findings, unfinished
from chase.studies.ranking import NEEDED, labels_needed, ranking, recommendation
from chase.studies.recommend import STUDY as RECOMMEND
from chase.studies.results import SceneResult, StudyResult, key_of
from chase.studies.scene_tables import PAPER_MINUTES, paper_notes, tables_of

NOTES = "notes.md"


def page_of(result: StudyResult, place: Path) -> Path:
    """Where the page of a study stands."""
    return place / f"{result.study.name}-study.md"


def write_study_page(result: StudyResult, place: Path, written: set[Path]) -> None:
    """The page, its figures and its tables; all files are named in ``written``."""
    about = result.study.about
    lines = [f"# Study {result.study.name}\n", f"{about[:1].upper()}{about[1:]}. {result.state.capitalize()}.\n"]
    lines += [f"{result.study.note}\n"] if result.study.note else []
    lines += [*recommend_text(result, place, written), "## What was found\n", found_text(result)]
    lines += [*notes_text(place), *across_text(result, place, written)]
    lines += [scene_text(scene, place, written) for scene in result.scenes if scene.methods]
    file = page_of(result, place)
    write_atomically(file, reflow("\n".join(lines)).encode())
    written.add(file)


def notes_text(place: Path) -> list[str]:
    """What the people who ran the studies wrote down about them, in ``notes.md`` beside the runs."""
    text = read_notes(place)
    return ["## Notes on these runs\n", text.strip() + "\n"] if text else []


def read_notes(place: Path) -> str:
    """``notes.md`` of a directory; empty where there is none."""
    file = place / NOTES
    if not file.is_file():
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RunDirectoryError(f"{file} is not text in UTF-8: save it as UTF-8") from None


def scene_figures(scene: SceneResult) -> dict[str, Drawing]:
    """The figures of a scene for the results page, by a name for their files."""
    methods, found = scene.methods, {}
    axis = "test accuracy (%)"

    def draw(name: str, title: str, xlabel: str, x: Quantity, merge: float = 0.0) -> None:
        curves = [plots.curve(m, x, accuracy, merge=merge) for m in methods]
        if any(c is not None for c in curves):
            found[name] = Drawing(title, plots.lines(title, xlabel, axis, curves))

    draw("accuracy", "Accuracy over rounds", "round", round_numbers)
    draw("labels", "Accuracy over labels", "labels given on request", metric("labels"), merge=0.005)
    time = clock(methods)
    draw("time", "Accuracy over time", f"{time.name} since the start", time.elapsed)
    base = method_tables.baseline(methods, scene.part.against)
    curves = difference_curves(methods, base) if base is not None else []
    if base is not None and any(c is not None for c in curves):
        title = f"Accuracy minus that of {base.label}"
        found["difference"] = Drawing(title, charts.differences(title, f"points above {base.label}", curves))
    for name in dict.fromkeys((*scene.part.figures, "inference-cost")):
        drawn = FIGURES[name](methods)
        if drawn is not None:
            found[name] = drawn
    return found


def folded(title: str, text: str) -> list[str]:
    """A part that opens on a click."""
    return [f"<details><summary>{title}</summary>\n", text, "</details>\n"]


def listed(sentences: Sequence[str]) -> str:
    """Sentences as a list."""
    return "\n".join(f"- {text}" for text in sentences) + "\n"


def found_text(result: StudyResult) -> str:
    """What a study found, plainly."""
    lines = []
    for scene in result.scenes:
        (first, each), rest = comparisons(scene), findings(scene)
        if each or rest:
            shown = [first, *rest] if first else [*each, *rest]
            lines += [f"**{scene.title}**\n", listed(shown)]
            lines += folded("Each comparison in a sentence", listed(each)) if first else []
    return "\n".join(lines) or f"{NOTHING_FOUND}\n"


def recommend_text(result: StudyResult, place: Path, written: set[Path]) -> list[str]:
    """What the study ``recommend`` found over all data sets: the ranks, the winner and the labels needed."""
    if result.study.name != RECOMMEND.name or not any(scene.methods for scene in result.scenes):
        return []
    lines, said = ["## Over all data sets\n"], recommendation(result)
    for name, table, note in (
        ("ranks", ranking(result), f"{said[:1].upper()}{said[1:]}."),
        ("labels-needed", labels_needed(result), NEEDED),
    ):
        if table.rows:
            written.update(write_table(table, place / "tables" / f"{result.study.name}-{name}.csv"))
            lines += [f"**{table.title}**\n", to_markdown(table), f"{note}\n"]
    return lines


def across_text(result: StudyResult, place: Path, written: set[Path]) -> list[str]:
    """The figures over all parts of a study; their files are written, and named in ``written``."""
    lines = []
    for scene, drawn in across(result).items():
        file = place / "figures" / f"{key_of(result.study.name, scene)}-across.svg"
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
        lines += [f"## {scene}, all parts\n"]
        lines += [f"![{drawn.title}, {scene}]({file.relative_to(place).as_posix()})\n", f"{drawn.caption}\n"]
    return lines


def scene_text(scene: SceneResult, place: Path, written: set[Path]) -> str:
    """Figures and tables of a scene; their files are written, and named in ``written``."""
    lines = [f"## {scene.title}\n", *unfinished(scene), ""]
    shown, captions = [], []
    for name, drawn in scene_figures(scene).items():
        file = place / "figures" / f"{scene.key}-{name}.svg"
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
        shown.append((drawn.title, f"![{drawn.title}, {scene.title}]({file.relative_to(place).as_posix()})"))
        captions += [f"{drawn.title}: {drawn.caption}"] if drawn.caption else []
    for pair in (shown[i : i + 2] for i in range(0, len(shown), 2)):  # side by side
        lines.append(
            to_markdown(ReportTable([title for title, _ in pair], [[image for _, image in pair]], text_columns=2))
        )
    lines += [" ".join(captions), ""] if captions else []
    for name, table in tables_of(scene).items():
        written.update(write_table(table, place / "tables" / f"{scene.key}-{name}.csv"))
        lines += [f"**{table.title}**\n", to_markdown(table)]
        lines += [note, ""] if (note := table_note(name, scene)) else []
    lines += [f"- {note}" for note in run_notes(scene.methods)]
    return "\n".join(lines)


def table_note(name: str, scene: SceneResult) -> str:
    """What must be said below a table, by its name."""
    notes = {
        "cost": clock(scene.methods).note,
        "by-round": method_tables.BY_ROUND,
        "to-reach": method_tables.REACHED,
        "paper": " ".join(paper_notes(scene)),
        "time-paper": PAPER_MINUTES,
    }
    return notes.get(name, "")
