"""``chase list``: presets, data sets, strategies, networks and settings."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from chase import settings as settings_room
from chase.acquisition.catalog import METHODS
from chase.core.errors import SettingsError, unknown
from chase.data.sources import SOURCES
from chase.models.catalog import NETS


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
    return {
        "presets": about,
        "data sets": dict(SOURCES),
        "strategies": {name: method.about for name, method in METHODS.items()},
        "models": {name: text for name, (text, _) in NETS.items()},
        "settings": {name: f"{field.description} [{field.default}]" for name, field in fields.items()},
    }


def setting_groups() -> dict[str, dict[str, Any]]:
    """The groups of settings: what each is about, and its settings."""
    return {
        name: {"about": settings_room.about_group(name), "settings": list(group.model_fields)}
        for name, group in settings_room.GROUPS.items()
    }


WhatArg = Annotated[
    str,
    typer.Argument(help="What to list: presets, strategies, settings, ... or a group of settings, e.g. training."),
]


def show_list(what: WhatArg = "", as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List presets, data sets, strategies, models and settings."""
    kinds, groups = catalogue(), setting_groups()
    if as_json:
        print(json.dumps({**kinds, "setting groups": groups}))
        return
    settings = kinds.pop("settings")
    tables = {title: (title, entries) for title, entries in kinds.items()}
    for name, group in groups.items():
        inside = {key: settings[key] for key in group["settings"]}
        tables[f"settings: {name}"] = (f"settings: {name} ({group['about']})", inside)
    console = Console(highlight=False)
    for title, entries in wanted(tables, what):
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, text in entries.items():
            table.add_row(name, text)
        console.print(table)
        console.print()


def wanted(tables: dict[str, tuple[str, dict[str, str]]], what: str) -> list[tuple[str, dict[str, str]]]:
    """The tables of one kind or one group of settings; all of them where nothing is asked for."""
    found = [table for name, table in tables.items() if what in ("", name, *name.split(": "))]
    if not found:
        names = dict.fromkeys(part for name in tables for part in name.split(": "))
        raise SettingsError(unknown("list", what, names))
    return found
