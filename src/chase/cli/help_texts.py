"""The help of every command as text, so that ``chase COMMAND --help`` need not load what runs need.

``python -m chase.cli.help_texts`` writes it anew; a test compares it with the commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import typer.main

from chase.brief import HELP
from chase.core.files import write_atomically

COLUMNS = 80


def help_texts(app: typer.Typer) -> dict[str, str]:
    """What ``chase COMMAND --help`` says, by command."""
    root = typer.main.get_command(app)
    return {" ".join(path): context.get_help() for path, context in _walk(root, click.Context(root, info_name="chase"))}


def _walk(command: click.Command, context: click.Context) -> Iterator[tuple[tuple[str, ...], click.Context]]:
    context.terminal_width = COLUMNS
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        if found is None or found.hidden:
            continue
        below = click.Context(found, info_name=name, parent=context)
        yield from (((name, *path), each) for path, each in [((), below), *_walk(found, below)])


def main() -> None:
    """Write the file."""
    from chase.cli.main import app

    write_atomically(HELP, (json.dumps(help_texts(app), indent=1, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main()
