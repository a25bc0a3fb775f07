"""Results to keep: raw metrics compressed, settings, figures, tables, and a page that says what was found first.

``pack`` copies what runs left behind without checkpoints; ``publish`` makes everything else from that alone,
so that every figure can be made again from the raw metrics.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from urllib.parse import quote as url_of

from chase.core.errors import RunDirectoryError
from chase.core.files import read_jsonl, write_atomically
from chase.core.prose import reflow
from chase.report import method_tables
from chase.report.cells import Cell
from chase.report.export import to_markdown
from chase.report.runs import read_json
from chase.report.standalone import standalone
from chase.report.table_files import SUFFIXES, remove_others
from chase.report.tables import ReportTable, versions
from chase.settings import from_mapping, presets, read_file, to_toml
from chase.studies.abstract import abstract, headlines
from chase.studies.field import field_text
from chase.studies.hypothesis_tests import findings_of, groups_of
from chase.studies.overview import CAPTION, SHORTEST, TABLE_NOTE, tables_of, what_holds
from chase.studies.places import run_place
from chase.studies.plan import plans_in
from chase.studies.repeat import commands
from chase.studies.results import StudyResult, is_study, read_studies
from chase.studies.study_page import folded, page_of, read_notes, write_study_page
from chase.studies.why_page import why_page

COPIED = ("model.json", "coverage.json", "confusion.json", "notes.json")
RAW = ("metrics.jsonl", "selections.jsonl")
WHY = "why.md"
Studies = Sequence[tuple[Path, StudyResult]]
"""Studies, each with the directory that it is in."""
NOT_KEPT = ("command", "settings")
"""Parts of environment.json that name places on one machine or repeat settings.toml."""


def pack(directory: Path, out: Path) -> int:
    """Copy the studies of a directory and all runs that have a finished round; how many runs there are."""
    plans = plans_in(directory)
    if not plans:
        raise RunDirectoryError(
            f"{directory} holds no study: `chase study NAME --out {quote(str(directory))}` makes one"
        )
    names = dict.fromkeys(job.name for plan in plans for job in plan.jobs)
    places = {name: run_place(directory, name) for name in names}
    begun = [name for name, place in places.items() if read_jsonl(place / "metrics.jsonl")]
    if not begun:
        raise RunDirectoryError(f"{directory}: no round of its studies is finished yet, so there is nothing to export")
    own = next((place for place in sorted(out.glob("*")) if is_live(place)), None)
    if own is not None:
        raise RunDirectoryError(
            f"{out} holds runs that are no export ({own.name}), which an export would damage: name another directory"
        )
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
        pack_run(places[name], out / name)
    return len(begun)


def is_live(place: Path) -> bool:
    """Whether this is the directory of a run that is no export."""
    packed = (place / "metrics.jsonl.gz").exists() and not (place / "metrics.jsonl").exists()
    return (place / "settings.toml").exists() and not packed


def pack_run(run: Path, out: Path) -> None:
    """One run without its checkpoint; lines compressed without a time stamp, so that the same run packs the same."""
    settings = from_mapping(read_file(run / "settings.toml") | {"data_dir": ""})
    write_atomically(out / "settings.toml", to_toml(settings).encode())
    around = read_json(run / "environment.json")
    kept = {key: value for key, value in around.items() if key not in NOT_KEPT}
    write_atomically(out / "environment.json", (json.dumps(kept, indent=2) + "\n").encode())
    matrices = {file.name for place in (run, out) for file in place.glob("confusion-*.json")}
    for name in (*COPIED, *sorted(matrices)):
        if (run / name).is_file():
            write_atomically(out / name, (run / name).read_bytes())
        else:
            (out / name).unlink(missing_ok=True)
    for name in RAW:
        lines = read_jsonl(run / name)
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        write_atomically(out / f"{name}.gz", gzip.compress(text, 9, mtime=0))


def publish(root: Path) -> Path:
    """``README.md``, ``why.md`` and a page with figures and tables for every packed study in and below a directory."""
    inside = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    places = [place for place in (root, *inside) if is_study(place)]
    if not places:
        command = f"chase study export DIR --out {quote(str(root / 'NAME'))}"
        raise RunDirectoryError(f"{root} holds no packed study: `{command}` makes one")
    studies = [(place, result) for place in places for result in read_studies(place)]
    written: set[Path] = set()
    for place, result in studies:
        write_study_page(result, place, written)
    write_why(studies, root, written)
    out = root / "README.md"
    write_atomically(out, reflow("\n".join(readme(studies, root))).encode())
    remove_others(root / "figures", written, ["why-page-*.svg"])
    for place in places:
        remove_others(place, written, ["*-study.md"])
        for name in (result.study.name for at, result in studies if at == place):
            remove_others(place / "figures", written, [f"{name}-*.svg"])
            remove_others(place / "tables", written, [f"{name}-*{suffix}" for suffix in SUFFIXES])
    return out


def readme(studies: Studies, root: Path) -> list[str]:
    """The results page: what holds and what does not, the tables, where everything else is; the rest on a click."""
    comparisons, lead, notes = in_short(studies, root), lead_text(studies), preface(studies, root)
    table = [to_markdown(comparisons)] if comparisons.rows else []
    none = [] if any(result.done for _, result in studies) else ["No run is finished yet.\n"]
    field = field_text([result for _, result in studies])
    parts = ["# Results\n", *none, *(lead or table), *field, links(studies, root, why=bool(lead))]
    parts += folded("What the columns of the table mean", TABLE_NOTE) if lead else []
    parts += folded("Notes on these results", notes) if notes else []
    parts += folded("What each study runs, and how much of it is finished", to_markdown(pages_table(studies, root)))
    parts += folded("All comparisons", f"{COMPARISONS}\n{table[0]}") if lead and table else []
    parts += folded("How to read these pages", HOW)
    return [*parts, *folded("How to repeat it, and what it ran on", repeat_text(studies, root))]


def lead_text(studies: Studies) -> list[str]:
    """The answer, what holds and the table; nothing where no study that they read has a finished run of some length."""
    results = [result for _, result in studies]
    groups = [group for group in groups_of(results) if group.rounds >= SHORTEST]
    table, others = tables_of(groups)
    if table is None:
        return []
    found = findings_of(groups)
    short = headlines(abstract(found, results))
    parts = [f"**In short** (reasons and figures in [{WHY}]({WHY})):\n\n{short}\n"] if short else []
    parts += [what_holds(found), CAPTION, to_markdown(table)]
    return parts + (folded("Other conditions and data sets", to_markdown(others)) if others else [])


def links(studies: Studies, root: Path, *, why: bool) -> str:
    """Where everything else is."""
    first = f"Hypotheses with verdicts, figures and what is missing: [{WHY}]({WHY}). " if why else ""
    return f"{first}Studies: {', '.join(page_link(*study, root) for study in studies)}.\n"


def page_link(place: Path, result: StudyResult, root: Path) -> str:
    """The name of a study, which leads to its page."""
    name = name_of(result, place, root).replace("[", r"\[").replace("]", r"\]")
    return f"[{name}]({url_of(page_of(result, place).relative_to(root).as_posix())})"


def preface(studies: Studies, root: Path) -> str:
    """``notes.md`` of the whole directory, where the directory itself is no study."""
    inside = all(place != root for place, _ in studies)
    return read_notes(root) if inside else ""


def write_why(studies: Studies, root: Path, written: set[Path]) -> None:
    """``why.md`` and its figures; an old page goes where there is nothing to say."""
    text, figures = why_page(studies, root)
    for file, drawn in figures.items():
        write_atomically(file, standalone(drawn.svg).encode())
        written.add(file)
    if text:
        write_atomically(root / WHY, reflow(text).encode())
    else:
        (root / WHY).unlink(missing_ok=True)


COMPARISONS = """Each study as its own page tells it: accuracy after the last round alone, and the area under the label
curve, tested together within a scene. The hypotheses above and in why.md take the mean of the last five rounds, which
varies less, and test the comparisons of a question together; so a difference near the limit can have another verdict
there, and that one counts.
"""

HOW = """Every figure and table is made from the raw metrics in this directory by one command, given in this directory:

    chase study publish .

Means are over seeds; intervals and bands are 95 % (Student's t); differences are paired by seed. From six seeds on a
paired t-test with Holm's correction decides; below, nothing is tested: the verdict is whether the interval holds zero
("within noise") or lies above or below it, without correction for several methods: of twenty such intervals about one
misses by chance. Nothing is shown that was not measured; figures of the paper are marked as such.
"""


def pages_table(studies: Studies, root: Path) -> ReportTable:
    """One row per study: its page, what it runs, and how much of it is there."""
    rows: list[list[Cell]] = []
    for place, result in studies:
        rows.append([page_link(place, result, root), result.study.about, result.state])
    return ReportTable(("study", "what it runs", "state"), rows, text_columns=3)


def in_short(studies: Studies, root: Path) -> ReportTable:
    """Every comparison as a row: its difference at the end, its area, and what both are worth."""
    rows: list[list[Cell]] = []
    for place, result in studies:
        for scene in result.scenes:
            base = method_tables.baseline(scene.methods, scene.part.against) if scene.methods else None
            if base is not None and scene.finished:
                for row in method_tables.brief(scene.methods, base):
                    rows.append([name_of(result, place, root), scene.title, *row])
    columns = ("study", "data", "method", "against", "rounds", "points", "verdict", "area, points", "verdict on it")
    return ReportTable(columns, rows, text_columns=4, words=frozenset({6, 8}))


def name_of(result: StudyResult, place: Path, root: Path) -> str:
    """A study and, where it is in a directory of its own, that."""
    where = place.relative_to(root).as_posix()
    return result.study.name if where in (".", result.study.name) else f"{result.study.name} ({where})"


def repeat_text(studies: Studies, root: Path) -> str:
    """How to run the studies again, and what they ran on."""
    lines = []
    for place, result in studies:
        name = place.relative_to(root).as_posix()
        lines += [f"    {command}" for command in commands(result, "studies" if name == "." else name)]
    lines += [
        "",
        "Then, for each of these directories, `chase study export DIR --out` a directory of its name here, and",
    ]
    lines += ["`chase study publish` as above.\n", "It ran on:\n"]
    runs = [run for _, result in studies for scene in result.scenes for m in scene.methods for run in m.runs]
    return "\n".join([*lines, to_markdown(versions(runs))])
