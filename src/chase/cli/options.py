"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from chase.settings import GROUPS

SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"Change a setting; repeatable. `chase list settings` shows all, in groups: {', '.join(GROUPS)}.",
    ),
]
