"""Groups of commands whose help shows the sentence of every command in full."""

from __future__ import annotations

import click
from typer.core import TyperGroup

LONGEST = 1_000


class CommandGroup(TyperGroup):
    """A group like any other; sentences that do not fit on a line are wrapped, not cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name and sentence of every command."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(LONGEST)) for name, one in found if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
