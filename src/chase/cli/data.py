"""``chase data list | get | inspect``: what data there is, and what is in it before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chase import settings as settings_room
from chase.cli.groups_help import CommandGroup
from chase.cli.terminal import plain_console
from chase.core.text import counted
from chase.data import hub, sources
from chase.data.known import KNOWN
from chase.data.oddities import oddities
from chase.data.resident import DataSet
from chase.data.texts import tokens_of
from chase.simulation.recommended import reading_values

NameArg = Annotated[str, typer.Argument(help="A name (see `chase data list`), hub:owner/set, or a path.")]
DirOpt = Annotated[
    str, typer.Option("--data-dir", help="Directory of data sets, NAME/train.parquet (else the variable CHASE_DATA).")
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Say how to read it, e.g. text_column=comment; repeatable. `chase list data` shows these settings.",
    ),
]

SHOWN = 30
"""Rows of a table of classes or owners before it is cut."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(
        cls=CommandGroup,
        help="Data sets: list, fetch and inspect them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    data.command("list", epilog="Example: chase data list --data-dir data")(show_names)
    data.command("get", epilog="Example: chase data get cifar10 --data-dir data")(get)
    data.command("inspect", epilog="Example: chase data inspect reviews.csv --set text_column=comment")(inspect)
    app.add_typer(data, name="data")


def show_names(data_dir: DirOpt = "", as_json: JsonOpt = False) -> None:
    """List the data sets that are known by name and where a local copy is."""
    rows = []
    for name, about in sources.SOURCES.items():
        local = "built in" if name == "digits" else str(sources.find_local(name, data_dir) or "")
        rows.append({"name": name, "about": about, "hub": KNOWN[name].hub if name in KNOWN else "", "local": local})
    if as_json:
        print(json.dumps(rows))
        return
    console = plain_console(soft_wrap=True)
    for row in rows:
        places = [f"hub: {row['hub']}"] if row["hub"] else []
        places.append(f"local copy: {row['local'] or 'none'}" if row["hub"] else row["local"])
        console.print(f"{row['name']:15}{row['about']}")
        console.print(" " * 15 + ", ".join(places), style="dim")
    console.print("\nYour own: a folder of images, a CSV or a parquet file by path; any hub data set as hub:owner/set.")


def get(name: NameArg, data_dir: DirOpt = "") -> None:
    """Fetch a data set from the Hugging Face hub into NAME/train.parquet and NAME/test.parquet."""
    if name == "digits":
        print("digits is built in; there is nothing to fetch")
        return
    sources.check_name(name)
    found = sources.find_local(name, data_dir)
    if found is not None:
        print(f"{name} is already at {found}")
        return
    print(f"{name} is now at {hub.get(name, sources.data_dirs(data_dir)[0])}")


def inspect(name: NameArg, data_dir: DirOpt = "", change: SetOpt = None, as_json: JsonOpt = False) -> None:
    """Show classes, sizes and problems of a data set before anything runs."""
    changes = settings_room.parse_changes(change or [])
    own: dict[str, Any] = {}
    if sources.looks_like_path(name) and Path(name).exists():  # read as `chase run PATH` reads it
        own = {"strategy": settings_room.RECOMMENDED, **reading_values(name, changes), "bad_images": "skip"}
    chosen = settings_room.from_mapping({"data": name, "data_dir": data_dir, **own, **changes})
    found = describe(sources.load(chosen.data, chosen.data_dir, chosen.data_options))
    found["resized"] = own.get("image_size", 0)
    if own and "bad_images" not in changes and any(p.startswith("cannot read image") for p in found["problems"]):
        found["problems"].append("a run refuses unreadable pictures: repair or remove them, or set bad_images=skip")
    if as_json:
        print(json.dumps(found))
    else:
        show(found)


def describe(data: DataSet) -> dict[str, Any]:
    """What is in a data set, as plain values."""
    counts = {
        "train": np.bincount(data.train_labels[data.train_labels >= 0], minlength=data.num_classes),
        "test": np.bincount(data.test_labels, minlength=data.num_classes),
    }
    owners: dict[str, int] = {}
    if data.groups is not None:
        sizes = np.bincount(data.groups, minlength=len(data.group_names))
        owners = {data.group_names[n]: int(sizes[n]) for n in np.argsort(-sizes, kind="stable")}
    return {
        "name": data.name,
        "kind": data.train.kind,
        "shape": list(data.train.shape),
        "train": len(data.train),
        "test": len(data.test),
        "unlabeled": int((data.train_labels < 0).sum()),
        "vocabulary": data.train.vocabulary,
        "columns": {column.name: column.kind for column in data.train.columns},
        "range": list(data.train.scale),
        "names": [] if data.train_names is None else data.train_names[:3],
        "mean": list(data.train.mean),
        "std": list(data.train.std),
        "classes": {name: [int(counts["train"][c]), int(counts["test"][c])] for c, name in enumerate(data.classes)},
        "owners": owners,
        "problems": [*data.problems, *class_problems(data, counts["train"], counts["test"]), *oddities(data)],
    }


def class_problems(data: DataSet, train: Any, test: Any) -> list[str]:
    """Classes without samples in one of the parts."""
    names = np.array(data.classes)
    if not train.any() and not test.any():
        return []  # nothing is labelled yet, which is said once
    found = []
    for part, counts in (("training", train), ("test", test)):
        missing = names[counts == 0].tolist()
        if missing:
            listed = ", ".join(repr(n) if not n.strip() else n for n in missing[:10])
            found.append(f"{counted(len(missing), 'class has', 'classes have')} no labelled {part} sample: {listed}")
    return found


def show(found: dict[str, Any]) -> None:
    """The description as a person reads it."""
    console = plain_console(soft_wrap=True)
    what = "x".join(str(n) for n in found["shape"])
    kind = {
        "image": f"images of {what} (channels x height x width)",
        "text": f"texts of up to {what} {tokens_of(found['vocabulary'])}",
        "vectors": f"vectors of {what} numbers",
        "table": f"rows of {counted(len(found['columns']), 'column')} ({', '.join(found['columns'])})",
    }[found["kind"]]
    console.print(f"{found['name']}: {kind}, {counted(len(found['classes']), 'class', 'classes')}")
    if found["resized"]:
        console.print("the pictures were resized (they differ in size, are not square or are large): set image_size")
    low, high = found["range"]
    if found["kind"] == "image" and (low, high) != (0, 255):
        console.print(f"values of the pictures go from {low:.10g} to {high:.10g}: set pixel_range for another range")
    console.print(f"training {found['train']} ({found['unlabeled']} without a label), test {found['test']}")
    _print_table(console, ("class", "training", "test"), [(n or "''", *c) for n, c in found["classes"].items()])
    if found["owners"]:
        _print_table(console, ("owner", "training"), list(found["owners"].items()))
    for problem in found["problems"]:
        console.print(f"warning: {problem}")
    if not found["problems"]:
        console.print("no problems found")


def _print_table(console: Console, titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    table = Table(box=None, padding=(0, 2))
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right")
    for name, *values in rows[:SHOWN]:
        shown = str(name) if str(name).strip() else repr(name)
        table.add_row(Text(shown), *(str(v) for v in values))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"  ... and {len(rows) - SHOWN} more")
