"""``chase label``: the labelling page of a client's home, new links, and labels as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import click
import typer

from chase.cli import team
from chase.cli.groups_help import CommandGroup
from chase.cli.label_sync import sync_labels
from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.home import exchange, label_studio
from chase.home.home import Home, write_durably
from chase.home.page import serving
from chase.home.team import warnings
from chase.home.views import HomeView

HomeArg = Annotated[
    Path,
    typer.Argument(help="A client's home (its questions and answers), e.g. RUN/home of `chase run --annotator page`."),
]
AnnotatorOpt = Annotated[
    list[str] | None, typer.Option("--annotator", "-a", help="Who labels; one link each; repeatable.")
]


class PageByDefault(CommandGroup):
    """``chase label HOME`` serves the page; ``chase label export HOME`` and the like are commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``serve`` before anything that is no command."""
        if args and args[0] not in self.commands and args[0] not in ("--help",):
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: Any) -> None:
        """Show the short form."""
        formatter.write_usage("chase label", "HOME [OPTIONS] | COMMAND HOME ...")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=PageByDefault, no_args_is_help=True, rich_markup_mode=None)
    group.command("serve", epilog="Example: chase label runs/demo/home -a anna -a ben")(serve)
    group.command("export", epilog="Example: chase label export runs/demo/home -o labels.csv")(export)
    group.command("import", epilog="Example: chase label import runs/demo/home labels.csv --revise")(import_labels)
    group.command("sync", epilog="Example: chase label sync runs/demo/home --url http://localhost:8080")(sync_labels)
    group.command("link", epilog="Example: chase label link runs/demo/home -a ben")(link)
    group.command("revoke", epilog="Example: chase label revoke runs/demo/home -a ben")(revoke)
    team.register(group)
    app.add_typer(group, name="label", help="Serve the labelling page of a client's home; export and import labels.")


def serve(
    home: HomeArg,
    annotator: AnnotatorOpt = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = serving.PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than this machine alone (127.0.0.1) needs TLS.")
    ] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="The host name in the links, if it is not the address.")] = "",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    adjudicator: Annotated[
        list[str] | None, typer.Option("--adjudicator", help="Who decides where answers differ; repeatable.")
    ] = None,
    lead: Annotated[list[str] | None, typer.Option("--lead", help="Who sees the team and sets the policy.")] = None,
) -> None:
    """Serve the labelling page on this machine until Ctrl-C (`chase label HOME` is enough)."""
    opened = Home(home)
    address = serving.Address(host, port, name, tls_cert, tls_key)

    def announce(where: str) -> None:
        for role, names in (("adjudicator", adjudicator or []), ("lead", lead or [])):
            for name in names:
                opened.set_role(name, role, operator())
        everybody = [*(annotator or []), *(adjudicator or []), *(lead or [])]
        for who, url in serving.links(opened, where, everybody or ["annotator"]).items():
            print(f"{who}: {url}", flush=True)
        print("Each link opens the page once, on one device. Stop with Ctrl-C.", flush=True)
        for sentence in warnings(opened):
            print(f"warning: {sentence}", flush=True)

    serving.serve(opened, address, announce)


def link(
    home: HomeArg,
    annotator: Annotated[list[str], typer.Option("--annotator", "-a", help="Who labels; repeatable.")],
    at: Annotated[str, typer.Option(help="The page's address.")] = f"http://127.0.0.1:{serving.PORT}",
) -> None:
    """Print a new link to a page that is being served, for another annotator or another device."""
    for who, url in serving.links(Home(home), at.rstrip("/"), annotator).items():
        print(f"{who}: {url}")


def revoke(
    home: HomeArg,
    annotator: Annotated[list[str], typer.Option("--annotator", "-a", help="Annotator whose access ends; repeatable.")],
) -> None:
    """End the sessions and the unused links of annotators; what they answered stays."""
    opened = Home(home)
    for name in annotator:
        print(f"{name}: {opened.revoke(name, operator())} sessions and links ended")


def export(
    home: HomeArg,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: standard output).")] = None,
    form: Annotated[
        Literal["csv", "json", "label-studio", "label-studio-config"],
        typer.Option("--format", "-f", help="CSV, JSON, Label Studio tasks, or the Label Studio interface for them."),
    ] = "csv",
    waiting: Annotated[bool, typer.Option("--waiting", help="Write open questions instead of labels.")] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="Write the answer of every person instead of labels.")
    ] = False,
) -> None:
    """Write all labels, all answers or all waiting questions, as CSV, JSON or Label Studio tasks with annotations."""
    if waiting and answers:
        raise LabelError("--waiting writes open questions and --answers what people answered: give one of them")
    opened = Home(home)
    if form == "csv":
        text = exchange.to_csv(opened, waiting, answers)
    elif form == "json":
        text = exchange.to_json(opened, waiting, answers)
    elif form == "label-studio":
        text = label_studio.to_label_studio(opened, HomeView(opened), waiting, answers)
    else:
        text = label_studio.label_studio_config(opened)
    if out is None:
        print(text, end="")
    else:
        write_durably(out, text.encode())


def import_labels(
    home: HomeArg,
    file: Annotated[Path, typer.Argument(help="A CSV, or JSON (by its ending .json): ours, or a Label Studio export.")],
    annotator: Annotated[
        str, typer.Option("--annotator", "-a", help="Who labelled; replaces the names in the file.")
    ] = "",
    revise: Annotated[bool, typer.Option("--revise", help="Correct samples that were answered already.")] = False,
    keep_good: Annotated[
        bool, typer.Option("--keep-good", help="Import the valid lines and skip the invalid ones.")
    ] = False,
) -> None:
    """Import labels from a file, with the same checks as on the page."""
    opened = Home(home)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(f"cannot read {file}: {error}") from None
    lines = label_studio.read_any_json(text) if file.suffix.lower() == ".json" else exchange.read_csv(text)
    outcome = exchange.import_lines(opened, lines, annotator, revise, keep_good, by=operator())
    for refused in outcome.refused:
        print(f"refused: {refused}")
    print(f"{outcome.accepted} imported, {outcome.unchanged} unchanged, {len(outcome.refused)} refused")
