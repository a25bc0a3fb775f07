"""``chase site``: make a site from its own data, look after it, and connect it to a federation."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from chase import settings as settings_room
from chase.cli.federation import keep_going, need_flower, warn_insecure
from chase.cli.federation_care import register_site
from chase.cli.groups_help import CommandGroup
from chase.cli.options import SetOpt
from chase.cli.terminal import plain_console
from chase.client.build import check_device
from chase.core.address import host_port
from chase.core.errors import ChaseError, FederationError, LabelError
from chase.core.operator import check_owner
from chase.core.pools import in_words
from chase.core.text import counted, quoted, split_list
from chase.data.options import DataOptions
from chase.data.texts import Tokens
from chase.federation.ops.supervisor import running, take_down
from chase.site import change, samples
from chase.site.contract import Contract, contract_of
from chase.site.place import Site, SiteCard
from chase.site.status import status as status_of

HomeArg = Annotated[Path, typer.Argument(help="The site's directory.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DeviceOpt = Annotated[
    str | None, typer.Option("--device", help="Where the site trains: cpu, or cuda with a graphics card [cpu].")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)
    group.command("init", epilog="Example: chase site init home --data scans --id site-a --contract contract.json")(
        init
    )
    group.command("status", epilog="Example: chase site status home")(status)
    group.command("add", epilog="Example: chase site add home new-scans")(add)
    group.command("forget", epilog="Example: chase site forget home scan-0017.png")(forget)
    group.command("contract", epilog="Example: chase site contract home --set net=mnist-cnn > contract.json")(agree)
    group.command("agreement", hidden=True)(agree)  # as it was called before
    group.command("connect", epilog="Example: chase site connect home --server fed.example.org:443 --ca ca.crt")(
        connect
    )
    group.command("key", epilog="Example: chase site key home > site-a.pub")(key)
    group.command("disconnect", epilog="Example: chase site disconnect home")(disconnect)
    register_site(group)
    app.add_typer(
        group, name="site", help="Create a site from its own data, maintain it, and connect it to a federation."
    )


def init(
    home: HomeArg,
    data: Annotated[Path, typer.Option(help="Folder of images (CLASS/ and unlabeled/), a CSV or a parquet file.")],
    name: Annotated[str, typer.Option("--id", help="The site's name in the federation, e.g. site-a.")],
    contract: Annotated[
        Path | None,
        typer.Option(help="The federation's contract.json: class names, size and normalisation of samples, network."),
    ] = None,
    classes: Annotated[str, typer.Option(help="Without a contract: class names in order, separated by commas.")] = "",
    image_size: Annotated[int, typer.Option(help="Without a contract: height and width of images.", min=0)] = 0,
    channels: Annotated[
        int, typer.Option(help="Without a contract: 1 grey, 3 colour (0 = as the images are).", min=0, max=3)
    ] = 0,
    text_column: Annotated[str, typer.Option(help="Column of texts.")] = "",
    tokens: Annotated[
        Tokens, typer.Option(help="Without a contract: what is kept of texts; bytes for learner = closed-form.")
    ] = "words",
    text_length: Annotated[int, typer.Option(help="Without a contract: words kept per text.", min=1, max=4096)] = 64,
    image_column: Annotated[str, typer.Option(help="Column of images.")] = "",
    label_column: Annotated[str, typer.Option(help="Column of labels; cells may be empty.")] = "",
    hold_out: Annotated[
        float, typer.Option(help="Share of the labelled samples held out for evaluation.", min=0, max=0.9)
    ] = 0.0,
    annotator: Annotated[str, typer.Option(help="page: people label; simulated: all labels are known.")] = "page",
    budget: Annotated[
        int | None, typer.Option(help="Labels per request, if the federation lets sites decide.", min=0)
    ] = None,
    period: Annotated[
        int | None, typer.Option(help="Turns between requests, if the federation lets sites decide.", min=1)
    ] = None,
    device: DeviceOpt = None,
) -> None:
    """Create a site: index its data, fill its pools, create its inbox and its key."""
    if annotator not in ("page", "simulated"):
        raise ChaseError(f"--annotator is page or simulated, not '{annotator}'")
    options = DataOptions(
        text_column=text_column,
        tokens=tokens,
        text_length=text_length,
        image_column=image_column,
        label_column=label_column,
        classes=split_list(classes),
        image_size=image_size,
        channels=channels,
    )
    agreed = None if contract is None else Contract.from_json(read_file(contract))
    check_device(device or "cpu")
    card = SiteCard(name, annotator, budget, period, device or "cpu")
    make_key = key_maker()  # before anything is built
    site, problems = samples.init(home, card, [data], options, agreed, hold_out)
    make_key(home / "node.key", name)
    for problem in problems:
        print(f"note: {problem}")
    sizes = status_of(site)
    samples_in_words, labelled = counted(sizes["samples"], "sample"), sizes["pools"]["labeled"]
    print(f"{name}: {samples_in_words}, {labelled} labelled, {sizes['held_out']} held out")
    print(f"public key, for the server: {home / 'node.key.pub'}")


def read_file(path: Path) -> str:
    """A text file that a user named."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise FederationError(f"cannot read {path}: {error}") from None


def key_maker() -> Callable[[Path, str], str]:
    """What makes the key that proves who a site is."""
    try:
        from chase.federation.ops.keys import site_key
    except ImportError:
        raise FederationError("keys need Flower: install it with `pip install 'chase-fal[flower]'`") from None
    return site_key


def key(home: HomeArg) -> None:
    """Create a new key for a site whose key was lost or exposed; the old key file is renamed and kept."""
    check_owner(home, FederationError)
    make_key, name = key_maker(), Site(home).card.name
    if any(running(home / "processes.json").values()):
        raise FederationError(f"{name} is connected with its key: first run `chase site disconnect {quoted(home)}`")
    new = home / "node.key.new"
    for left_over in (new, home / "node.key.new.pub"):
        left_over.unlink(missing_ok=True)
    line = make_key(new, name)
    for end in ("", ".pub"):
        old = home / f"node.key{end}"
        if old.exists():
            old.replace(home / f"node.key.old{end}")
        (home / f"node.key.new{end}").replace(old)
    print(line)
    print(
        f"The server must remove {name} and admit it again with this public key ({home / 'node.key.pub'}).",
        file=sys.stderr,
    )


def status(home: HomeArg, as_json: JsonOpt = False) -> None:
    """Show a site's pools, labels and open questions."""
    found = status_of(Site(home))
    if as_json:
        print(json.dumps(found))
        return
    title = f"{found['site']}: {counted(len(found['classes']), 'class', 'classes')}"
    table = Table(title=title, title_justify="left", show_header=False)
    rows = {in_words(name): size for name, size in found["pools"].items()}
    rows |= {"held out": found["held_out"], "labels given": found["labels_given"]}
    rows |= {"open questions": found["open_questions"], "turns": found["turns"]}
    rows |= {
        "last round": "-" if found["last_round"] is None else found["last_round"],
        "labelled by": "people, on the page" if found["annotator"] == "page" else found["annotator"],
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    plain_console().print(table)


def add(home: HomeArg, files: Annotated[list[Path], typer.Argument(help="New files, folders, or one table.")]) -> None:
    """Add new samples to a site; they can be selected from its next turn on."""
    check_owner(home, LabelError)
    site = Site(home)
    found, labels = samples.read_more(site, files)
    for problem in found.problems:
        print(f"note: {problem}")
    added = change.add(site, change.New(found.inputs, found.names, labels, found.texts))
    if added.twins:
        name, twin = added.twins[0]
        print(
            f"note: {counted(len(added.twins), 'sample was', 'samples were')} skipped because the site has identical "
            f"ones (first: {name} is {twin}); import labels for those with `chase label import`"
        )
    print(f"{counted(added.ids.size, 'sample')} added, {added.labeled} of them labelled")


def forget(home: HomeArg, names: Annotated[list[str], typer.Argument(help="Samples by name.")]) -> None:
    """Remove samples and their labels from every file of the site."""
    check_owner(home, LabelError)
    site = Site(home)
    change.forget(site, change.find(site, names))
    print(
        f"{counted(len(names), 'sample')} forgotten. Their original files are untouched, and what the shared model "
        "has learnt from their labels stays in it."
    )


def agree(
    home: HomeArg,
    preset: Annotated[str, typer.Argument(help="Preset or TOML file.")] = "digits",
    change_: SetOpt = None,
) -> None:
    """Print the contract that fits this site, to create a federation whose server has no data."""
    site = Site(home)
    chosen = settings_room.load(preset, settings_room.parse_changes(change_ or []))
    print(contract_of(chosen, site.samples(), site.classes).to_json())


def connect(
    home: HomeArg,
    server: Annotated[str, typer.Option(help="HOST:PORT of the federation's reverse proxy (or SuperLink).")],
    ca: Annotated[Path | None, typer.Option(help="The federation's ca.crt.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption, no authentication. For tests only.")
    ] = False,
    device: DeviceOpt = None,
) -> None:
    """Connect a site to its federation and keep it connected until Ctrl-C or SIGTERM."""
    need_flower()
    from chase.federation.ops import launch

    check_address(server)
    if (ca is None) == (not insecure):
        raise FederationError(
            "give --ca ca.crt (the federation's certificate), or --insecure to connect without encryption"
        )
    if insecure:
        warn_insecure()
    if ca is not None and not ca.is_file():
        raise FederationError(f"there is no certificate {ca}: copy the federation's keys/ca.crt here")
    site = Site(home)
    if device is not None:
        check_device(device)
        site.keep(replace(site.card, device=device))
    name = site.card.name
    if ca is not None:
        from chase.federation.ops.certificates import fingerprint

        print(f"fingerprint of {ca}, to compare with the server's by phone: {fingerprint(ca)}")
    job = launch.site_job(home, name, server, None if ca is None else ca.resolve())
    keep_going(home / "processes.json", [job], f"{name} is connecting to {server}; log: {job.log}")


def check_address(server: str) -> None:
    """Refuse what cannot be HOST:PORT."""
    if host_port(server) is None:
        raise FederationError(f"--server takes HOST:PORT, such as fed.example.org:8443, not '{server}'")


def disconnect(home: HomeArg) -> None:
    """Stop the connection that `chase site connect` started."""
    print("disconnected" if take_down(home / "processes.json") else "the site was not connected")
