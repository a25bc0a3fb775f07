"""``chase list``: presets, data sets, strategies, networks and settings."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chase import settings as settings_room
from chase.acquisition.catalog import METHODS
from chase.data.sources import SOURCES
from chase.models.catalog import NETS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", epilog="Example: chase list --json")(show_list)


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


def show_list(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List presets, data sets, strategies, models and settings."""
    groups = catalogue()
    if as_json:
        print(json.dumps(groups))
        return
    console = Console(highlight=False)
    for title, entries in groups.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, text in entries.items():
            table.add_row(name, text)
        console.print(table)
        console.print()
