"""``chase federation``: found one, let sites in, serve it, run it; and all of it on one machine to try it out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from chase import settings as settings_room
from chase.cli.federation_care import register_federation
from chase.cli.federation_say import close, say_gathering, say_rounds
from chase.cli.groups_help import CommandGroup
from chase.cli.options import SetOpt
from chase.cli.terminal import plain_console
from chase.core.address import host_port
from chase.core.errors import FederationError
from chase.core.operator import check_owner
from chase.core.text import quoted

if TYPE_CHECKING:
    from chase.federation.ops.setup import Loopback
    from chase.federation.ops.supervisor import ProcessSpec, Supervisor
    from chase.federation.rules import FederationDirectory, Rules

DirArg = Annotated[Path, typer.Argument(help="The federation's directory, at the server.")]
RuleOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="KEY=VALUE",
        help="Change a rule of the rounds, e.g. quorum=2; repeatable. `chase list rules` shows all.",
    ),
]
RULE = "--rule quorum=3"
InsecureOpt = Annotated[bool, typer.Option("--insecure", help="No encryption, no authentication. For tests only.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PresetOpt = Annotated[str, typer.Option("--preset", "-p", help="Preset or TOML file of settings.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)
    group.command("up", epilog="Example: chase federation up --sites 3 --set rounds=5")(up)
    group.command("down", epilog="Example: chase federation down federation")(down)
    group.command("status", epilog="Example: chase federation status federation")(status)
    group.command("init", epilog="Example: chase federation init fed --host fed.example.org --set clients=3")(init)
    group.command("admit", epilog="Example: chase federation admit fed site-a --key site-a.pub")(admit)
    group.command("dismiss", epilog="Example: chase federation dismiss fed site-a")(dismiss)
    group.command("serve", epilog="Example: chase federation serve fed")(serve)
    group.command("proxy", epilog="Example: chase federation proxy fed --host 0.0.0.0 --port 8443")(proxy)
    group.command("run", epilog="Example: chase federation run fed")(run)
    register_federation(group)
    app.add_typer(
        group, name="federation", help="Create a federation of sites, serve it and run it; or try it on one machine."
    )


def need_flower() -> None:
    """Stop where Flower is not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise FederationError("a federation needs Flower: install it with `pip install 'chase-fal[flower]'`")


def warn_insecure() -> None:
    """Loud, and on stderr."""
    print(
        "WARNING: --insecure: nothing is encrypted and nobody is authenticated. Whoever reaches the port can read "
        "and change the model and pass as a site. Use this on loopback only.",
        file=sys.stderr,
    )


def make_rules(pairs: list[str] | None) -> Rules:
    """The rules that the options give."""
    from chase.federation.rules import make_rules as make

    return make(settings_room.parse_changes(pairs or [], RULE))


def init(
    directory: DirArg,
    preset: PresetOpt = "digits",
    change: SetOpt = None,
    rule: RuleOpt = None,
    host: Annotated[list[str] | None, typer.Option(help="Name by which sites reach the server; repeatable.")] = None,
    port: Annotated[
        int,
        typer.Option(
            help="Port of the SuperLink (Flower's server) on this machine; 0 takes a free one.", min=0, max=65535
        ),
    ] = 0,
    contract: Annotated[
        Path | None, typer.Option(help="contract.json of a site (`chase site contract`), where the server has no data.")
    ] = None,
    insecure: InsecureOpt = False,
) -> None:
    """Create a federation in a new directory: rules, contract, run directory and certificates."""
    need_flower()
    from chase.federation.ops.setup import found
    from chase.site.contract import Contract

    if insecure:
        warn_insecure()
    rules = make_rules(rule)
    agreed = None
    if contract is not None:
        if rules.at_server:
            raise FederationError("with --contract the server has no test set: add --rule evaluate=sites")
        try:
            agreed = Contract.from_json(contract.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise FederationError(f"cannot read {contract}: {error}") from None
    chosen = settings_room.load(preset, settings_room.parse_changes(change or []))
    federation = found(directory, chosen, rules, secure=not insecure, hosts=host or [], port=port, contract=agreed)
    print(f"federation in {directory}, SuperLink on {federation.address[0]}:{federation.address[1]}")
    if not insecure:
        say_fingerprint(federation)
    print(f"give every site {directory / 'contract.json'}" + ("" if insecure else f" and {directory / 'keys/ca.crt'}"))


def say_fingerprint(federation: FederationDirectory) -> None:
    """Print what two people compare by phone."""
    from chase.federation.ops.certificates import fingerprint

    print(f"fingerprint of keys/ca.crt, to compare by phone: {fingerprint(federation.path / 'keys' / 'ca.crt')}")


def admit(
    directory: DirArg,
    name: Annotated[str, typer.Argument(help="The site's name.")],
    key: Annotated[Path | None, typer.Option(help="The site's node.key.pub.")] = None,
) -> None:
    """Admit a site: add it to the list and register its key (while `serve` runs)."""
    need_flower()
    from chase.federation.ops import setup
    from chase.federation.rules import FederationDirectory

    check_owner(directory, FederationError)
    setup.admit(FederationDirectory(directory), name, key)
    print(f"{name} may connect")


def dismiss(directory: DirArg, name: Annotated[str, typer.Argument(help="The site's name.")]) -> None:
    """Remove a site: its key is no longer accepted, and rounds continue without it (while `serve` runs)."""
    need_flower()
    from chase.federation.ops import setup
    from chase.federation.rules import FederationDirectory

    check_owner(directory, FederationError)
    setup.dismiss(FederationDirectory(directory), name)
    print(f"{name} is removed; admit it with a new key to add it again")


def keep_going(
    registry: Path, jobs: Sequence[ProcessSpec], message: str, check: Callable[[], None] = lambda: None
) -> None:
    """Keep processes going until a signal comes, then end them all; ``check`` is made when no earlier ones are left."""
    from chase.federation.ops.supervisor import Ended, Supervisor, end_on_signals

    end_on_signals()
    try:
        with Supervisor(registry) as supervisor:
            check()
            for job in jobs:
                supervisor.start(job)
            print(message, flush=True)
            while True:
                for line in supervisor.tend():
                    print(f"{line}; starting it again", file=sys.stderr, flush=True)
                time.sleep(0.5)
    except Ended:
        print("stopped", flush=True)


def serve(
    directory: DirArg,
    proxy_at: Annotated[
        str, typer.Option("--proxy", metavar="HOST:PORT", help="Also accept sites at this address, over TLS.")
    ] = "",
) -> None:
    """Serve a federation until Ctrl-C or SIGTERM: Flower's SuperLink, where sites connect, and the rounds."""
    need_flower()
    from chase.federation.ops.launch import other_port, proxy_job, refuse_taken, server_jobs
    from chase.federation.rules import FederationDirectory

    federation = FederationDirectory(directory)
    if not federation.secure:
        warn_insecure()
    else:
        say_fingerprint(federation)
    jobs = server_jobs(federation)
    message = "serving on {}:{}".format(*federation.address)
    place = host_port(proxy_at) if proxy_at else None
    if place is not None:
        jobs.append(proxy_job(federation, *place))
        message += f", for sites on {proxy_at}"
    elif proxy_at:
        raise FederationError(f"--proxy takes HOST:PORT, such as 0.0.0.0:8443, not '{proxy_at}'")

    def check() -> None:
        refuse_taken(*federation.address, other_port(federation))
        if place is not None:
            refuse_taken(*place, "end it, or give another address with --proxy")

    keep_going(directory / "processes.json", jobs, f"{message}; logs: {directory / 'logs'}", check)


def proxy(
    directory: DirArg,
    host: Annotated[str, typer.Option(help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port that the sites reach.", min=1, max=65535)] = 8443,
) -> None:
    """Forward requests of sites on other machines to the SuperLink over TLS, and refuse all others (403)."""
    need_flower()
    from chase.federation.ops.keys import check_private
    from chase.federation.ops.launch import ca
    from chase.federation.ops.proxy import FleetProxy, server
    from chase.federation.rules import FederationDirectory

    federation = FederationDirectory(directory)
    if not federation.secure:
        raise FederationError("an insecure federation stays on loopback: create it again without --insecure")
    keys = directory / "keys"
    check_private(keys / "server.key")
    inner = "{}:{}".format(*federation.address)
    print(f"sites may connect to {host}:{port}; only /v1/fleet/ is passed on to {inner}", flush=True)
    server(FleetProxy(f"https://{inner}", ca(federation)), host, port, keys / "server.pem", keys / "server.key").run()


def run(directory: DirArg, change: SetOpt = None, rule: RuleOpt = None) -> None:
    """Run the rounds that are left, resuming where the last run stopped; `--set rounds=50` makes it longer."""
    need_flower()
    from chase.federation.ops.launch import Watch
    from chase.federation.ops.supervisor import Ended, end_on_signals
    from chase.federation.rules import FederationDirectory

    check_owner(directory, FederationError)
    federation = FederationDirectory(directory)
    if change or rule:
        change_run(federation, change or [], rule or [])
    end_on_signals()
    watch, shown, said = Watch(federation), 0, ""
    try:
        watch.begin()
        while watch.look() not in ("finished", "failed"):
            shown, said = say_rounds(federation, shown), say_gathering(federation, said)
            time.sleep(1.0)
    except Ended:
        check = f"chase federation status {quoted(directory)}"
        print(f"stopped watching; the run continues at the server. Check it with: {check}")
        return
    say_rounds(federation, shown)
    close(federation)


def change_run(federation: FederationDirectory, change: list[str], rule: list[str]) -> None:
    """Change settings and rules between two runs, all or none."""
    from chase.federation.engine import check_privacy
    from chase.run.record import Record

    record = Record.open(federation.run)
    settings = record.changed(settings_room.parse_changes(change))
    rules = federation.changed(settings_room.parse_changes(rule, RULE))
    check_privacy(rules, settings)
    record.keep(settings)
    if rule:
        with record.held():
            federation.keep_rules(rules)


def status(directory: DirArg, as_json: JsonOpt = False) -> None:
    """Show sites, rounds and the last events."""
    need_flower()
    from chase.federation.rules import FederationDirectory
    from chase.federation.status_view import render, snapshot

    federation = FederationDirectory(directory)
    if as_json:
        print(json.dumps(snapshot(federation)))
    else:
        plain_console().print(render(federation, {}))
    if snapshot(federation)["phase"] == "failed":
        raise typer.Exit(1)


def down(directory: Annotated[Path, typer.Argument(help="The federation's directory.")] = Path("federation")) -> None:
    """Stop everything that `up` or `serve` started."""
    from chase.federation.ops.supervisor import take_down

    print("federation stopped" if take_down(directory / "processes.json") else "nothing was running")


def up(
    directory: Annotated[Path, typer.Argument(help="Directory of the federation; an existing one is resumed.")] = Path(
        "federation"
    ),
    sites: Annotated[int | None, typer.Option(help="How many sites [3].", min=1, max=64)] = None,
    preset: Annotated[str | None, typer.Option("--preset", "-p", help="Preset or TOML file [digits].")] = None,
    change: SetOpt = None,
    rule: RuleOpt = None,
    person: Annotated[
        bool | None, typer.Option("--person/--no-person", help="A person labels the first site on the page [person].")
    ] = None,
    insecure: InsecureOpt = False,
    stay: Annotated[bool, typer.Option("--stay", help="Keep running after the last round, until Ctrl-C.")] = False,
) -> None:
    """Start a complete federation on this machine, show its progress, and stop it at the end or on Ctrl-C."""
    need_flower()
    from chase.federation.ops.supervisor import Ended, Supervisor, end_on_signals

    loopback = prepare(directory, sites, preset, change, rule, person, insecure)
    if not loopback.federation.secure:
        warn_insecure()
    end_on_signals()
    try:
        with Supervisor(loopback.registry) as supervisor:
            go(loopback, supervisor, stay)
    except Ended:
        print(f"stopped. Resume with: chase federation up {quoted(directory)}", flush=True)
        raise typer.Exit(130) from None
    close(loopback.federation)


def prepare(
    directory: Path,
    sites: int | None,
    preset: str | None,
    change: list[str] | None,
    rule: list[str] | None,
    person: bool | None,
    insecure: bool,
) -> Loopback:
    """A new federation on disk, or the one that is there."""
    from chase.federation.ops.setup import Loopback

    if (directory / "federation.toml").exists():
        options = {"--sites": sites, "--preset": preset, "--set": change, "--rule": rule, "--person": person}
        given = [name for name, value in (options | {"--insecure": insecure or None}).items() if value is not None]
        if given:
            raise FederationError(
                f"{directory} exists already and is resumed with its own settings: leave {', '.join(given)} out, "
                "or name another directory"
            )
        return Loopback.open(directory)
    changes = {"rounds": 10, **settings_room.parse_changes(change or []), "clients": sites or 3}
    chosen = settings_room.load(preset or "digits", changes)
    rules = make_rules([f"at_once={2 * (os.cpu_count() or 1)}", *(rule or [])])  # all sites share this machine
    return Loopback.prepare(directory, chosen, rules, secure=not insecure, person=person is not False)


def go(loopback: Loopback, supervisor: Supervisor, stay: bool) -> None:
    """Start everything and look after it until the run has ended."""
    from chase.federation.ops.launch import Watch
    from chase.federation.status_view import links_in, page_log, render

    console = plain_console()
    federation = loopback.federation
    with console.status("starting the server"):
        loopback.start_server(supervisor)
    for name in loopback.homes:
        loopback.start_site(supervisor, name)
    pages = loopback.start_pages(supervisor)
    watch = Watch(federation)
    watch.begin()
    last = ""
    with Live(console=console, refresh_per_second=2, transient=False) as live:
        while stay or last not in ("finished", "failed"):
            supervisor.tend()
            last = watch.look() if last not in ("finished", "failed") else last
            live.update(render(federation, {w: u for home in pages for w, u in links_in(page_log(home)).items()}))
            time.sleep(0.5)
