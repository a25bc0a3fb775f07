"""Results to keep: raw metrics compressed, settings, figures, tables, and a page that says what was found first.

``pack`` copies what runs left behind without checkpoints; ``publish`` makes everything else from that alone,
so that every figure can be made again from the raw metrics.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from chase.core.errors import RunDirectoryError
from chase.core.files import read_jsonl, write_atomically
from chase.report import charts, method_tables, plots
from chase.report.comparison_section import difference_curves
from chase.report.export import to_markdown, write_table
from chase.report.notes import run_notes
from chase.report.runs import Quantity, accuracy, clock, metric
from chase.report.sections import round_numbers
from chase.report.standalone import standalone
from chase.report.table_files import SUFFIXES, remove_others
from chase.report.tables import ReportTable, versions
from chase.settings import from_mapping, presets, read_file, to_toml
from chase.studies.figures import FIGURES, Drawing, across
from chase.studies.findings import findings, unfinished
from chase.studies.hypotheses import groups_of
from chase.studies.plan import plans_in
from chase.studies.repeat import commands
from chase.studies.results import SceneResult, StudyResult, is_study, key_of, read_studies
from chase.studies.tables import paper_notes, tables_of
from chase.studies.why_page import why_page

COPIED = ("model.json", "coverage.json", "confusion.json", "notes.json")
RAW = ("metrics.jsonl", "selections.jsonl")
NOTES = "notes.md"
WHY = "why.md"
NOT_KEPT = ("command", "settings")
"""Parts of environment.json that name places on one machine or repeat settings.toml."""


def pack(directory: Path, out: Path) -> int:
    """Copy the studies of a directory and all runs that have a finished round; how many runs there are."""
    plans = plans_in(directory)
    if not plans:
        raise RunDirectoryError(f"{directory} holds no study: `chase study NAME --out {directory}` makes one")
    names = dict.fromkeys(job.name for plan in plans for job in plan.jobs)
    begun = [name for name in names if read_jsonl(directory / name / "metrics.jsonl")]
    if not begun:
        raise RunDirectoryError(f"{directory}: no round of its studies is finished yet, so there is nothing to export")
    for plan in plans:
        body = json.loads(plan.path.read_text(encoding="utf-8"))
        for entry in body["jobs"]:
            entry["settings"].pop("data_dir", None)
            file = Path(entry.get("preset", ""))
            if file.name not in presets() and file.is_file():
                write_atomically(out / file.name, file.read_bytes())
                entry["preset"] = file.name
        write_atomically(out / plan.path.name, (json.dumps(body, indent=1) + "\n").encode())
    for name in begun:
        pack_run(directory / name, out / name)
    return len(begun)


def pack_run(run: Path, out: Path) -> None:
    """One run without its checkpoint; lines compressed without a time stamp, so that the same run packs the same."""
    settings = from_mapping(read_file(run / "settings.toml") | {"data_dir": ""})
    write_atomically(out / "settings.toml", to_toml(settings).encode())
    around = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in around.items() if key not in NOT_KEPT}
    write_atomically(out / "environment.json", (json.dumps(kept, indent=2) + "\n").encode())
    for name in COPIED:
        if (run / name).is_file():
            write_atomically(out / name, (run / name).read_bytes())
    for name in RAW:
        lines = read_jsonl(run / name)
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        write_atomically(out / f"{name}.gz", gzip.compress(text, 9, mtime=0))


def scene_figures(scene: SceneResult) -> dict[str, Drawing]:
    """The figures of a scene for the results page, by a name for their files."""
    methods, found = scene.methods, {}
    axis = "test accuracy (%)"

    def draw(name: str, title: str, xlabel: str, x: Quantity, merge: float = 0.0) -> None:
        curves = [plots.curve(m, x, accuracy, merge=merge) for m in methods]
        if any(c is not None for c in curves):
            found[name] = Drawing(title, plots.lines(title, xlabel, axis, curves))

    draw("accuracy", "Accuracy over rounds", "round", round_numbers)
    draw("labels", "Accuracy over labels", "labels given by people", metric("labels"), merge=0.005)
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


def publish(root: Path) -> Path:
    """``README.md``, figures and tables for all packed studies in and below a directory."""
    inside = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    places = [place for place in (root, *inside) if is_study(place)]
    if not places:
        raise RunDirectoryError(f"{root} holds no packed study: `chase study export DIR --out {root}/NAME` makes one")
    studies = [(place, result) for place in places for result in read_studies(place)]
    written: set[Path] = set()
    parts = [HEAD, *preface(places, root), *why_link(studies), in_short(studies, root), "## What was found\n"]
    parts += [found_text(name_of(result, place, root), result) for place, result in studies]
    parts += notes_text(places, root)
    for place, result in studies:
        parts += across_text(result, place, root, written)
        parts += [study_text(scene, place, root, written) for scene in result.scenes if scene.methods]
    parts.append(repeat_text(studies, root))
    write_why(studies, root, written)
    out = root / "README.md"
    write_atomically(out, "\n".join(parts).encode())
    for place in places:
        for name in (result.study.name for at, result in studies if at == place):
            remove_others(place / "figures", written, [f"{name}-*.svg"])
            remove_others(place / "tables", written, [f"{name}-*{suffix}" for suffix in SUFFIXES])
    return out


def preface(places: list[Path], root: Path) -> list[str]:
    """``notes.md`` of the whole directory stands first, where the directory itself is no study."""
    return [(root / NOTES).read_text(encoding="utf-8")] if root not in places and (root / NOTES).is_file() else []


def why_link(studies: list[tuple[Path, StudyResult]]) -> list[str]:
    """Where the reasons are told, if any of their runs is finished."""
    return [f"Why strategies win or lose here: [{WHY}]({WHY}).\n"] if groups_of([r for _, r in studies]) else []


def write_why(studies: list[tuple[Path, StudyResult]], root: Path, written: set[Path]) -> None:
    """``why.md`` and its figures; an old page goes where there is nothing to say."""
    text, figures = why_page(studies, root)
    for file, drawn in figures.items():
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
    if text:
        write_atomically(root / WHY, text.encode())
    else:
        (root / WHY).unlink(missing_ok=True)


HEAD = """# Results

Every figure and table here is made from the raw metrics in this directory by one command, given in this directory:

    chase study publish .

Means are over seeds; intervals and bands are 95 % (Student's t); differences are paired by seed. From six seeds on a
paired t-test with Holm's correction decides; below, nothing is tested: the verdict is whether the interval holds zero
("within noise") or lies above or below it, without correction for several methods: of twenty such intervals about one
misses by chance. Nothing is shown that was not measured; figures of the paper are marked as such.
"""


def in_short(studies: list[tuple[Path, StudyResult]], root: Path) -> str:
    """Every comparison as a row of one table: its difference at the end, its area, and what both are worth."""
    rows = []
    for place, result in studies:
        for scene in result.scenes:
            base = method_tables.baseline(scene.methods, scene.part.against) if scene.methods else None
            if base is not None:
                for row in method_tables.brief(scene.methods, base):
                    rows.append([name_of(result, place, root), scene.scene, *row])
    columns = ("study", "data", "method", "against", "rounds", "points", "verdict", "area, points", "verdict on it")
    table = ReportTable(columns, rows, text_columns=4, words=frozenset({6, 8}))
    return "## In short\n\n" + to_markdown(table) if rows else ""


def name_of(result: StudyResult, place: Path, root: Path) -> str:
    """A study and, where it is in a directory of its own, that."""
    where = place.relative_to(root).as_posix()
    return result.study.name if where == "." else f"{result.study.name} ({where})"


def found_text(name: str, result: StudyResult) -> str:
    """What a study found, plainly."""
    lines = [f"### {name}: {result.state}\n"]
    for scene in result.scenes:
        said = findings(scene)
        if said:
            lines.append(f"**{scene.title}**\n")
            lines += [f"- {text}" for text in said]
            lines.append("")
    return "\n".join(lines)


def notes_text(places: list[Path], root: Path) -> list[str]:
    """What the people who ran the studies wrote down about them, in ``notes.md`` beside the runs."""
    texts = []
    for place in places:
        if (place / NOTES).is_file():
            text, where = (place / NOTES).read_text(encoding="utf-8").strip(), place.relative_to(root).as_posix()
            texts.append((text if where == "." else f"### {where}\n\n{text}") + "\n")
    return ["## Notes on these runs\n", *texts] if texts else []


def across_text(result: StudyResult, place: Path, root: Path, written: set[Path]) -> list[str]:
    """The figures over all parts of a study; their files are written, and named in ``written``."""
    lines = []
    for scene, drawn in across(result).items():
        file = place / "figures" / f"{key_of(result.study.name, scene)}-across.svg"
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
        lines += [f"## {name_of(result, place, root)}: {scene}, all parts\n"]
        lines += [f"![{drawn.title}, {scene}]({file.relative_to(root).as_posix()})\n", f"{drawn.caption}\n"]
    return lines


def study_text(scene: SceneResult, place: Path, root: Path, written: set[Path]) -> str:
    """Figures and tables of a scene; their files are written, and named in ``written``."""
    where = place.relative_to(root).as_posix()
    lines = [f"## {scene.study.name}{'' if where == '.' else f' ({where})'}: {scene.title}\n", *unfinished(scene), ""]
    shown, captions = [], []
    for name, drawn in scene_figures(scene).items():
        file = place / "figures" / f"{scene.key}-{name}.svg"
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
        shown.append((drawn.title, f"![{drawn.title}, {scene.title}]({file.relative_to(root).as_posix()})"))
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
    if scene.study.note:
        lines += [scene.study.note, ""]
    lines += [f"- {note}" for note in run_notes(scene.methods)]
    return "\n".join(lines)


def table_note(name: str, scene: SceneResult) -> str:
    """What must be said below a table, by its name."""
    notes = {
        "cost": clock(scene.methods).note,
        "by-round": method_tables.BY_ROUND,
        "to-reach": method_tables.REACHED,
        "paper": " ".join(paper_notes(scene)),
        "time-paper": "The paper's minutes are of its authors' GPU: compare the ratios.",
    }
    return notes.get(name, "")


def repeat_text(studies: list[tuple[Path, StudyResult]], root: Path) -> str:
    """How to run the studies again, and what they ran on."""
    lines = ["## How to repeat it\n"]
    for place, result in studies:
        name = place.relative_to(root).as_posix()
        lines += [f"    {command}" for command in commands(result, "studies" if name == "." else name)]
    lines += [
        "",
        "Then, for each of these directories, `chase study export DIR --out` a directory of its name here, and",
    ]
    lines += ["`chase study publish` as above.\n", "## What it ran on\n"]
    runs = [run for _, result in studies for scene in result.scenes for m in scene.methods for run in m.runs]
    return "\n".join([*lines, to_markdown(versions(runs))])
