"""``chase label sync``: a home and a project of a running Label Studio server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from chase.core.errors import LabelError
from chase.home.home import Home
from chase.home.sync import connected, sync
from chase.home.views import HomeView


def sync_labels(
    home: Annotated[Path, typer.Argument(help="A client's home: the directory with its questions and answers.")],
    url: Annotated[str, typer.Option("--url", help="Address of the server.")] = "http://localhost:8080",
    project: Annotated[
        str, typer.Option("--project", help="Title of the project; the home's own name unless given.")
    ] = "",
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="File with the access token; else LABEL_STUDIO_API_KEY.")
    ] = None,
) -> None:
    """Pull answers from a Label Studio server and push the open questions to it; repeat as often as you like."""
    opened = Home(home)
    with connected(url, _key(key_file)) as client:
        done = sync(opened, HomeView(opened), client, url, project)
    print(f"project '{done.title}' ({'new' if done.created else f'number {done.project}'}) at {url}")
    for refused in (*done.pulled.refused, *done.unreadable):
        print(f"refused: {refused}")
    print(
        f"{done.pulled.accepted} answers pulled, {done.pulled.unchanged} known already, "
        f"{done.pushed} questions pushed, {done.removed} closed ones removed"
    )


def _key(file: Path | None) -> str:
    if file is None:
        return os.environ.get("LABEL_STUDIO_API_KEY", "").strip()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(f"cannot read {file}: {error}") from None
