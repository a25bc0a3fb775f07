"""Making a federation: its directory at the server, its sites, and all of it on one machine for trying out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from chase.closed_form.catalog import BY_KIND
from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.data.resident import Kind
from chase.data.texts import LETTERS
from chase.federation.diary import Diary
from chase.federation.engine import check_privacy, spec_of
from chase.federation.ops import keys, launch
from chase.federation.ops.supervisor import ProcessSpec, Supervisor
from chase.federation.rules import FederationDirectory, Rules
from chase.federation.status_view import page_log
from chase.models.card import ModelCard
from chase.run.record import Record
from chase.settings import Settings
from chase.simulation.world import World, load_data
from chase.site.contract import Contract, contract_of
from chase.site.create import cut
from chase.site.place import SiteCard, read_card

PATIENCE = 60.0
"""Seconds to wait for a SuperLink that is being started."""


def site_name(number: int) -> str:
    """site-a, site-b, ... site-z, site-26, ..."""
    return f"site-{ascii_lowercase[number]}" if number < len(ascii_lowercase) else f"site-{number}"


def found(
    path: Path,
    settings: Settings,
    rules: Rules,
    *,
    secure: bool = True,
    hosts: Sequence[str] = (),
    port: int = 0,
    contract: Contract | None = None,
) -> FederationDirectory:
    """A new federation: rules, run directory, contract, and unless insecure its certificates.

    Without a contract of its own it takes that of the data set that the settings name.
    """
    if settings.form == "isolated":
        raise FederationError("form = 'isolated' trains every client alone and needs no federation: use `chase run`")
    check_privacy(rules, settings)
    if contract is None:
        data = load_data(settings)
        contract = contract_of(settings, data.test, data.classes)
    elif contract.net != settings.net:
        raise FederationError(f"the contract is on the network '{contract.net}', the settings say '{settings.net}'")
    for host in hosts:
        keys.check_host(host)
    federation = FederationDirectory.create(path, rules, secure, "127.0.0.1", port or launch.free_port())
    write_atomically(path / "contract.json", (contract.to_json() + "\n").encode())
    Record.create(federation.run, settings, model_card(settings, contract).to_json(), "federation")
    if secure:
        keys.server_certificate(path / "keys", list(dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1"])))
    launch.write_app(federation)
    return federation


def model_card(settings: Settings, contract: Contract) -> ModelCard:
    """What the model needs to be used without the sites' data."""
    spec = spec_of(settings, contract)
    kind: Kind = next(kind for kind in BY_KIND if kind == contract.kind)
    letters = LETTERS if spec.vocabulary == len(LETTERS) else ""
    rest = (letters, contract.scale, contract.table)
    return ModelCard(spec, contract.classes, kind, contract.mean, contract.std, *rest)


def admit(federation: FederationDirectory, name: str, public_key: Path | None, register: bool = True) -> None:
    """Put a site on the list and, where nodes are authenticated, let its key in at the SuperLink."""
    if federation.secure and public_key is None:
        raise FederationError(f"site '{name}' needs its public key: give --key SITE/node.key.pub")
    line = keys.read_public(public_key) if public_key is not None and federation.secure else ""
    admitted = federation.roster.admit(name, line)
    if federation.secure and public_key is not None and register:
        launch.wait_for_port(*federation.address, PATIENCE)
        node = launch.register(federation, name, public_key)
        admitted = admitted.at_node(name, node) if node else admitted
    federation.keep(admitted)


def dismiss(federation: FederationDirectory, name: str) -> None:
    """Remove a site: its key at the SuperLink, then its place in the rounds."""
    without, member = federation.roster.dismiss(name), federation.roster.named(name)
    if federation.secure and member is not None and member.key:
        launch.wait_for_port(*federation.address, PATIENCE)
        node = member.node or launch.node_of(federation, member.key)  # an admission may have been cut short
        if node:  # else the key was never let in
            launch.unregister(federation, node)
    federation.keep(without)
    Diary(federation.run).note(len(Record.open(federation.run).metrics), "removed", name)


@dataclass
class Loopback:
    """A complete federation on this machine."""

    federation: FederationDirectory
    homes: dict[str, Path]

    @classmethod
    def prepare(
        cls, path: Path, settings: Settings, rules: Rules, *, secure: bool = True, person: bool = False
    ) -> Loopback:
        """Everything on disk: the server's directory, and sites cut from the data set, the first for a person."""
        data = load_data(settings)
        world = World.of(settings, data)
        federation = found(path, settings, rules, secure=secure)
        homes = {}
        for number in range(settings.clients):
            name = site_name(number)
            homes[name] = path / "sites" / name
            annotator = "page" if person and number == 0 else "simulated"
            card = SiteCard(name, annotator, source={"data": settings.data, "cut": number})
            cut(homes[name], world, data, number, card, rules.at_sites).close()
            key = homes[name] / "node.key"
            if secure:
                keys.site_key(key, name)
            admit(federation, name, key.with_name("node.key.pub") if secure else None, register=False)
        write_atomically(
            path / "loopback.json", json.dumps({n: str(h.relative_to(path)) for n, h in homes.items()}).encode()
        )
        return cls(federation, homes)

    @classmethod
    def open(cls, path: Path) -> Loopback:
        """One that was prepared before."""
        try:
            homes = json.loads((path / "loopback.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise FederationError(f"{path} is not a federation that `chase federation up` made") from None
        return cls(FederationDirectory(path), {name: path / home for name, home in homes.items()})

    @property
    def registry(self) -> Path:
        """Where the processes are written down."""
        return self.federation.path / "processes.json"

    @property
    def server(self) -> str:
        """The address that sites connect to."""
        host, port = self.federation.address
        return f"{host}:{port}"

    def start_server(self, supervisor: Supervisor) -> None:
        """SuperLink and executor, and the keys of all sites."""
        link, execute = launch.server_jobs(self.federation)
        launch.refuse_taken(*self.federation.address, launch.other_port(self.federation))
        supervisor.start(link)
        launch.wait_for_port(*self.federation.address, 120.0, lambda: self._still(supervisor))
        supervisor.start(execute)
        if self.federation.secure:
            keys = {name: home / "node.key.pub" for name, home in self.homes.items()}
            for name, node in launch.register_all(self.federation, keys).items():
                self.federation.keep(self.federation.roster.at_node(name, node))

    def _still(self, supervisor: Supervisor) -> None:
        code = supervisor.ended("superlink")
        if code is not None:
            raise FederationError(
                f"the SuperLink ended with code {code}: see {self.federation.path}/logs/superlink.log"
            )

    def start_site(self, supervisor: Supervisor, name: str) -> None:
        """The node of a site."""
        trust = launch.ca(self.federation) if self.federation.secure else None
        supervisor.start(launch.site_job(self.homes[name], name, self.server, trust))

    def start_pages(self, supervisor: Supervisor) -> list[Path]:
        """The labelling pages of the sites that people label; their links are in their logs."""
        homes = [home for home in self.homes.values() if read_card(home).annotator == "page"]
        for home in homes:
            page_log(home).unlink(missing_ok=True)  # links of an earlier page open nothing
            command = (sys.executable, "-m", "chase", "label", str(home), "--port", "0", "-a", home.name)
            supervisor.start(ProcessSpec(f"page of {home.name}", command, page_log(home)))
        return homes
