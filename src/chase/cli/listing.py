"""``chase list``: presets, data sets, strategies, networks, ..., with those of other packages, and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chase import settings as settings_room
from chase.acquisition.catalog import METHODS
from chase.closed_form.catalog import MAPS
from chase.core import plugins
from chase.core.errors import SettingsError, unknown
from chase.data.sources import SOURCES
from chase.models.catalog import NETS
from chase.report.export import to_markdown
from chase.report.tables import ReportTable
from chase.server.aggregation import SERVERS
from chase.studies.catalog import STUDIES


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", epilog="Example: chase list training")(show_list)


def catalogue() -> dict[str, dict[str, str]]:
    """Everything that can be named, with a line about it."""
    about = {
        name: path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        for name, path in settings_room.presets().items()
    }
    fields = settings_room.Settings.model_fields
    named = {
        "preset": ("presets", about),
        "data": ("data sets", SOURCES),
        "partition": ("partitions", settings_room.PARTITIONS),
        "net": ("models", {name: text for name, (text, _) in NETS.items()}),
        "features": ("feature maps", {name: text for name, (text, _) in MAPS.items()}),
        "loss": ("losses", settings_room.LOSSES),
        "strategy": ("strategies", recommended() | {name: method.about for name, method in METHODS.items()}),
        "annotator": ("annotators", settings_room.ANNOTATORS),
        "server": ("server rules", {name: kind.about for name, kind in SERVERS.items()}),
        "study": ("studies", {name: study.about for name, study in STUDIES.items()}),
    }
    return {
        **{title: plugins.about_offered(kind) | dict(entries) for kind, (title, entries) in named.items()},
        "settings": {name: f"{field.description} [{field.default}]" for name, field in fields.items()},
    }


def recommended() -> dict[str, str]:
    """The name that stands for what is recommended, and what that is now."""
    stands_for = ", ".join(f"{key} = {value}" for key, value in settings_room.RECOMMENDATION.items())
    return {settings_room.RECOMMENDED: f"what the study `recommend` found best: {stands_for}"}


def setting_groups() -> dict[str, dict[str, Any]]:
    """The groups of settings: what each is about, and its settings."""
    return {
        name: {"about": settings_room.about_group(name), "settings": list(group.model_fields)}
        for name, group in settings_room.GROUPS.items()
    }


PAGE = """# Settings

All settings, in groups. `chase list training` shows one group, `--set lr=0.1` changes a setting of a run.
A TOML file may hold flat keys or groups:

```toml
rounds = 100

[training]
lr = 0.1
```

This page is made by `chase list --markdown > docs/settings.md`.
"""


def settings_page() -> str:
    """docs/settings.md: a table per group."""
    fields, parts = settings_room.Settings.model_fields, [PAGE]
    for name, group in setting_groups().items():
        about = f"{group['about'][0].upper()}{group['about'][1:]}."
        rows = [[f"`{key}`", _default(fields[key].default), str(fields[key].description)] for key in group["settings"]]
        table = to_markdown(ReportTable(("setting", "default", "meaning"), rows, text_columns=3))
        parts.append(f"## {name}\n\n{about}\n\n{table}")
    return "\n".join(parts)


def _default(value: Any) -> str:
    return "unset" if value is None else f"`{json.dumps(value)}`"


WhatArg = Annotated[
    str,
    typer.Argument(
        help="What to list: presets, strategies, settings, ... a group of settings (training) or one of them (lr)."
    ),
]


def show_list(
    what: WhatArg = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page of all settings.")] = False,
) -> None:
    """List presets, data sets, strategies, models and settings."""
    if markdown:
        print(settings_page(), end="")
        return
    kinds, groups = catalogue(), setting_groups()
    if as_json:
        print(json.dumps({**kinds, "setting groups": groups}))
        return
    settings = kinds.pop("settings")
    if what in settings:
        show_setting(what)
        return
    tables = {title: (title, entries) for title, entries in kinds.items()}
    for name, group in groups.items():
        inside = {key: settings[key] for key in group["settings"]}
        tables[f"settings: {name}"] = (f"settings: {name} ({group['about']})", inside)
    console = Console(highlight=False)
    for title, entries in wanted(tables, what):
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, text in entries.items():
            table.add_row(escape(name), escape(text))
        console.print(table)
        console.print()


def show_setting(name: str) -> None:
    """One setting: what it is for, its default and what it may be."""
    field = settings_room.Settings.model_fields[name]
    group = next((title for title, kind in settings_room.GROUPS.items() if name in kind.model_fields), "")
    print(f"{name}: {field.description}")
    print(f"group:   {group}")
    print(f"default: {shown_default(field.default)}")
    print(f"allowed: {allowed(field.annotation, field.metadata)}")
    print(f"set it:  chase run ... --set {name}={example(field.annotation, field.default)}")


def shown_default(value: Any) -> str:
    """A default as it is written in a TOML file."""
    return "unset" if value is None else json.dumps(value)


def allowed(kind: Any, limits: Sequence[Any]) -> str:
    """The values that a setting takes, in words."""
    choices = [
        part for part in (get_args(kind) if get_origin(kind) is not Literal else (kind,)) if part is not type(None)
    ]
    if get_origin(kind) is Literal:
        return ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is list:
        return "a list of texts"
    if choices:
        return " or ".join(allowed(part, limits) for part in choices) + ", or unset"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
    signs = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    said = [
        f"{text} {getattr(limit, sign)}" for limit in limits for sign, text in signs.items() if hasattr(limit, sign)
    ]
    return ", ".join([words, *said])


def example(kind: Any, default: Any) -> str:
    """A value to show how it is written."""
    if default not in (None, "", []):
        return str(default).lower() if isinstance(default, bool) else str(default)
    return "true" if bool in (kind, *get_args(kind)) else "VALUE"


def wanted(tables: dict[str, tuple[str, dict[str, str]]], what: str) -> list[tuple[str, dict[str, str]]]:
    """The tables of one kind or one group of settings; all of them where nothing is asked for."""
    found = [table for name, table in tables.items() if what in ("", name, *name.split(": "))]
    if not found:
        names = dict.fromkeys(part for name in tables for part in name.split(": "))
        raise SettingsError(unknown("list", what, [*names, *settings_room.Settings.model_fields]))
    return found
