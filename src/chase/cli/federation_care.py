"""``chase federation health | renew | rollback | metrics``, ``chase site health | accept | recover``: maintenance."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from chase.core.errors import ChaseError, FederationError, LabelError
from chase.core.operator import check_owner
from chase.core.text import quoted

DirArg = Annotated[Path, typer.Argument(help="The federation's directory, at the server.")]
HomeArg = Annotated[Path, typer.Argument(help="The site's directory.")]


def register_federation(group: typer.Typer) -> None:
    """Add the server's commands."""
    group.command("health", epilog="Example: chase federation health fed")(health)
    group.command("renew", epilog="Example: chase federation renew fed")(renew)
    group.command("rollback", epilog="Example: chase federation rollback fed 30")(rollback)
    group.command("metrics", epilog="Example: chase federation metrics fed --port 9464")(metrics)


def register_site(group: typer.Typer) -> None:
    """Add the sites' commands."""
    group.command("health", epilog="Example: chase site health home")(site_health)
    group.command("recover", epilog="Example: chase site recover home")(recover)
    group.command("accept", epilog="Example: chase site accept home")(accept)


def say(problems: list[str]) -> None:
    """Print problems; exit code 1 if there are any."""
    print("\n".join(problems) if problems else "healthy")
    if problems:
        raise typer.Exit(1)


def health(directory: DirArg) -> None:
    """Check processes, rounds, certificates and disk; exit code 0 if there are no problems, 1 otherwise."""
    from chase.federation.health import federation_problems
    from chase.federation.rules import FederationDirectory

    say(federation_problems(FederationDirectory(directory)))


def renew(
    directory: DirArg,
    host: Annotated[list[str] | None, typer.Option(help="One more name of the server; repeatable.")] = None,
) -> None:
    """Make a new server certificate from the federation's own CA; restart `serve` afterwards."""
    from chase.federation.ops import certificates
    from chase.federation.rules import FederationDirectory

    check_owner(directory, FederationError)
    keys = FederationDirectory(directory).path / "keys"
    days = certificates.renew(keys, host or [])
    print(f"server certificate renewed, valid for {days} days; restart `chase federation serve`")
    print(f"fingerprint of the CA, unchanged: {certificates.fingerprint(keys / 'ca.crt')}")


def rollback(
    directory: DirArg, round: Annotated[int, typer.Argument(help="The round to return to; 0 is the start.", min=0)]
) -> None:
    """Return to a saved round: model and record are rolled back; the sites keep all labels."""
    from chase.federation.rollback import roll_back
    from chase.federation.rules import FederationDirectory

    check_owner(directory, FederationError)
    roll_back(FederationDirectory(directory), round)
    print(f"round {round} is the last one now; resume with: chase federation run {quoted(directory)}")


def metrics(
    directory: DirArg,
    port: Annotated[int, typer.Option(help="Loopback port; 0 prints once and ends.", min=0, max=65535)] = 0,
) -> None:
    """Print the state in Prometheus' text format, or serve it on 127.0.0.1."""
    from chase.federation.health import metrics_text
    from chase.federation.ops.launch import refuse_taken
    from chase.federation.rules import FederationDirectory

    federation = FederationDirectory(directory)
    if port == 0:
        print(metrics_text(federation), end="")
        return

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            try:
                status, body = 200, metrics_text(federation).encode()
            except (ChaseError, OSError) as error:  # the monitor is told, and may ask again
                status, body = 500, f"{error}\n".encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    refuse_taken("127.0.0.1", port, "end it, or choose another --port", patience=0.0)
    web = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"metrics on http://127.0.0.1:{port}/", flush=True)
    web.serve_forever()


def site_health(home: HomeArg) -> None:
    """Check connection, samples, disk and proposed settings; exit code 0 if there are no problems, 1 otherwise."""
    from chase.federation.health import disk_problems, site_problems
    from chase.site.place import Site

    try:
        say(site_problems(Site(home)))
    except LabelError as error:
        full = disk_problems(home) if home.is_dir() else []
        if not full:
            raise
        say([*full, str(error)])


def accept(home: HomeArg) -> None:
    """Accept the settings that the server proposes; until then the site does not take part."""
    from chase.site import approval
    from chase.site.place import Site

    check_owner(home, LabelError)
    lines = approval.accept(Site(home).path)
    print("\n".join(f"accepted {line}" for line in lines) if lines else "nothing is proposed")


def recover(home: HomeArg) -> None:
    """Remove saved turns that are damaged and continue from the last good one; every answer is kept."""
    from chase.home.store import ClientStore
    from chase.site.place import Site

    check_owner(home, LabelError)
    site = Site(home)
    with site.locked():
        removed = ClientStore(site.home, site.start()).drop_damaged()
    print(f"{removed} damaged turns removed; all answers are read again in the next turn" if removed else "no damage")
