"""The ``chase`` command: its subcommands live in the modules beside this one."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click
import typer
import typer.core
import typer.main
from click.utils import PacifyFlushWrapper

from chase import __version__
from chase.core.errors import ChaseError

typer.core.HAS_RICH = False  # else help texts show "\[default: 30]": typer escapes for rich even when it is off

RENAMED = {"--agreement": "--contract"}
"""Options that had another name."""

MODULES = {
    "run": "running",
    "resume": "running",
    "show": "reporting",
    "report": "reporting",
    "export": "using",
    "predict": "using",
    "evaluate": "using",
    "demo": "demo",
    "list": "listing",
    "label": "labelling",
    "data": "data",
    "study": "studying",
    "watch": "watching",
    "site": "site",
    "federation": "federation",
}
"""Every command and the module beside this one that has it. Some of them take seconds to import."""


def commands(first: str | None = None) -> typer.Typer:
    """The command line with this command alone; with every command if it is none of them."""
    app = typer.Typer(
        name="chase",
        help="Federated active learning: CHASe, other methods to compare it with, and a labelling page.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    for module in [MODULES[first]] if first in MODULES else dict.fromkeys(MODULES.values()):
        import_module(f"chase.cli.{module}").register(app)
    app.callback()(_root)
    return app


def __getattr__(name: str) -> Any:
    """``app``, the command line with every command, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = app = commands()
    return app


def _version(show: bool) -> None:
    if show:
        print(f"chase {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Federated active learning, from settings to report."""


def _usage(error: click.UsageError) -> str:
    help_of = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
    return f"chase: {error.format_message().rstrip('.')}{help_of}"


class _Path(click.Path):
    """A path that is not empty: Python takes "" for the current directory, and "$UNSET" in a shell gives it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; give a name, or . for the current directory", param, ctx)
        return super().convert(value, param, ctx)


def _refuse_empty_paths(command: click.Command) -> None:
    for param in command.params:
        if isinstance(param.type, click.Path):
            checked = _Path()
            vars(checked).update(vars(param.type))
            param.type = checked
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _refuse_empty_paths(inner)


def main() -> None:
    """Entry point of the console script."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    if isinstance(sys.stdout, TextIOWrapper):  # a character that the terminal does not have is shown as "?"
        sys.stdout.reconfigure(errors="replace")
    command = typer.main.get_command(commands(next(iter(sys.argv[1:]), None)))
    _refuse_empty_paths(command)
    try:
        code = command(prog_name="chase", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.NoSuchOption as error:
        named = RENAMED.get(error.option_name)
        print(f"chase: {error.option_name} is now called {named}" if named else _usage(error), file=sys.stderr)
        sys.exit(2)
    except click.UsageError as error:  # a number out of its range, a missing argument
        print(_usage(error), file=sys.stderr)
        sys.exit(2)
    except click.Abort:
        sys.exit(1)
    except ChaseError as error:
        print(f"chase: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
    except SystemExit:
        if isinstance(sys.stdout, PacifyFlushWrapper):  # click has seen that nobody reads on
            sys.exit(141)
        raise
    except OSError as error:  # a name too long, a directory that may not be entered, a disk that fails
        where = f": {error.filename}" if error.filename else ""
        print(f"chase: {error.strerror or error}{where}", file=sys.stderr)
        sys.exit(2)
