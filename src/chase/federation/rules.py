"""The rules of a federation and the list of its sites: ``federation.toml`` and ``sites.json``."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from chase.core.errors import FederationError, unknown
from chase.core.files import write_atomically
from chase.core.messages import ClientId
from chase.run.record import Record
from chase.site.place import check_name

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
WHERE = ("server", "sites", "both")


def _rule(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class Rules:
    """How a round is held."""

    quorum: int = _rule(0, "answers that a round needs; 0 = more than half of the sites that it asks")
    deadline: float = _rule(600.0, "seconds after which a round with a quorum ends without the missing answers")
    join: float = _rule(60.0, "seconds to wait before the first round for missing sites, once there is a quorum")
    late_rounds: int = _rule(1, "a late update is used if it is at most this many rounds old, else dropped")
    retries: int = _rule(2, "how often a failed request to a site is repeated within a round")
    busy_limit: float = _rule(86400.0, "seconds after which the server stops waiting for the answer of a busy site")
    at_once: int = _rule(0, "sites that are asked at the same time, for many sites on one machine; 0 = all")
    poll: float = _rule(0.25, "seconds between two checks for answers")
    evaluate: str = _rule(
        "server", "where the model is evaluated: server (its test set), sites (held-out data) or both"
    )
    most_labels: int = _rule(10_000_000, "an update that claims more labelled samples than this is refused")
    secure: bool = _rule(False, "the server learns only sums over the sites, never one site's part; needs three sites")
    dp_epsilon: float = _rule(0.0, "differential privacy of whole sites: epsilon of all rounds together; 0 = none")
    dp_delta: float = _rule(1e-5, "delta of differential privacy: the probability that the guarantee fails")
    dp_clip: float = _rule(1.0, "largest norm of a site's update under differential privacy")
    keep_last: int = _rule(10, "saved rounds that are kept, for `chase federation rollback`")
    keep_every: int = _rule(10, "also keep every round that is a multiple of this; 0 = none")
    norm_clip: float = _rule(5.0, "an update larger than this many times the round's median is clipped; 0 = never")
    norm_refuse: float = _rule(50.0, "an update larger than this many times the round's median is refused; 0 = never")
    most_answer_mb: float = _rule(0.0, "largest answer of a site in MB; 0 = three times the model or its sums + 4 MB")

    def check(self) -> None:
        """Refuse rules that cannot be kept."""
        if self.evaluate not in WHERE:
            raise FederationError(f"evaluate = '{self.evaluate}' is invalid: use {', '.join(WHERE)}")
        for name in (
            "quorum",
            "join",
            "late_rounds",
            "retries",
            "at_once",
            "most_answer_mb",
            "norm_clip",
            "norm_refuse",
            "dp_epsilon",
            "keep_every",
        ):
            if getattr(self, name) < 0:
                raise FederationError(f"{name} = {getattr(self, name)} is invalid: it is 0 or more")
        for name in ("deadline", "busy_limit", "poll", "most_labels", "keep_last", "dp_delta", "dp_clip"):
            if getattr(self, name) <= 0:
                raise FederationError(f"{name} = {getattr(self, name)} is invalid: it is more than 0")

    @property
    def at_server(self) -> bool:
        """Whether the server scores the model."""
        return self.evaluate in ("server", "both")

    @property
    def at_sites(self) -> bool:
        """Whether the sites score the model."""
        return self.evaluate in ("sites", "both")


RULES = {rule.name: str(rule.metadata["help"]) for rule in fields(Rules)}
"""Every rule with what it is for."""


def make_rules(values: dict[str, Any]) -> Rules:
    """Rules from plain values; a misspelt one is named, with the nearest known one."""
    kinds = {f.name: type(f.default) for f in fields(Rules)}
    for key, value in values.items():
        if key not in kinds:
            raise FederationError(unknown("rule", key, kinds))
        fits = isinstance(value, int | float) if kinds[key] is float else isinstance(value, kinds[key])
        if not fits or (isinstance(value, bool) and kinds[key] is not bool):
            raise FederationError(f"rule {key} = {value!r} is invalid: give {KINDS[kinds[key]]}")
    rules = Rules(**values)
    rules.check()
    return rules


@dataclass(frozen=True)
class Member:
    """A site on the list."""

    number: ClientId
    name: str
    key: str = ""
    """Its public key, as an OpenSSH line; empty where sites are not authenticated."""
    node: str = ""
    """Flower's id of the node with that key."""
    out: bool = False
    """Removed: it gets no orders and does not count for the quorum; its number is not used again."""
    retired: tuple[str, ...] = ()
    """Keys that it had before and that are never accepted again."""


@dataclass(frozen=True)
class MemberList:
    """The sites that belong to the federation; numbers are given once and kept."""

    members: tuple[Member, ...] = ()

    def named(self, name: str) -> Member | None:
        """The member of a name."""
        return next((m for m in self.members if m.name == name), None)

    @property
    def active(self) -> tuple[Member, ...]:
        """The sites that have not been removed."""
        return tuple(m for m in self.members if not m.out)

    def admit(self, name: str, key: str = "") -> MemberList:
        """With one more site, or with the key of one that is on the list."""
        check_name(name)
        known = self.named(name)
        self._check_key(name, key)
        if known is None:
            number = max((m.number for m in self.members), default=-1) + 1
            return MemberList((*self.members, Member(number, name, key)))
        if known.key and key and bare(known.key) != bare(key):
            raise FederationError(f"site '{name}' is on the list with another key: `chase federation dismiss` it first")
        return self._with(replace(known, key=key or known.key, out=False))

    def _check_key(self, name: str, key: str) -> None:
        for member in self.members:
            if key and member.name != name and member.key and bare(member.key) == bare(key):
                raise FederationError(f"the key of '{name}' is that of site '{member.name}': every site has its own")
            if key and bare(key) in map(bare, member.retired):
                raise FederationError(
                    f"site '{member.name}' was removed with this key, which is not accepted again: "
                    "make a new one with `chase site key HOME`"
                )

    def dismiss(self, name: str) -> MemberList:
        """With a site removed: it stays on the list, and its number and its key are not used again."""
        known = self.named(name)
        if known is None:
            raise FederationError(unknown("site", name, [m.name for m in self.members]))
        retired = (*known.retired, known.key) if known.key else known.retired
        return self._with(replace(known, key="", node="", out=True, retired=retired))

    def at_node(self, name: str, node: str) -> MemberList:
        """With Flower's id of a site's node."""
        known = self.named(name)
        return self if known is None else self._with(replace(known, node=node))

    def _with(self, changed: Member) -> MemberList:
        return MemberList(tuple(changed if m.name == changed.name else m for m in self.members))


def numbers_in_sums(shapes: Mapping[str, list[int]], solved: bool = False) -> int:
    """About how many numbers a site sends besides a model's own: sums of features times features, if there are any.

    ``solved``: a network whose last layer is solved from sums.
    """
    fitted = {name: shape for name, shape in shapes.items() if name.startswith("feature_")}
    if not fitted and not solved:
        return 0
    width = shapes["head.weight"][1]
    return width * (width + 1) // 2 + sum(max(shape) ** 2 for shape in fitted.values() if len(shape) == 2)


def write_rules(path: Path, rules: Rules, link: Mapping[str, Any]) -> None:
    """``federation.toml``: where the SuperLink listens, and the rules, each with what it is for."""
    lines = ["[link]", *(f"{key} = {json.dumps(value)}" for key, value in link.items()), "", "[rules]"]
    for key, value in asdict(rules).items():
        lines += [f"# {RULES[key]}", f"{key} = {json.dumps(value)}"]
    write_atomically(path / "federation.toml", ("\n".join(lines) + "\n").encode(), durable=True)


def bare(key: str) -> str:
    """A key without the comment after it."""
    return " ".join(key.split()[:2])


class FederationDirectory:
    """A federation's directory, at the server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "federation.toml").is_file():
            raise FederationError(
                f"{path} is not a federation: it has no federation.toml (`chase federation init {path}`)"
            )

    @classmethod
    def create(cls, path: Path, rules: Rules, secure: bool, host: str, port: int) -> FederationDirectory:
        """A new directory; one that is a federation already is refused."""
        if (path / "federation.toml").exists():
            raise FederationError(f"{path} is a federation already: continue with `chase federation run {path}`")
        rules.check()
        write_rules(path, rules, {"secure": secure, "host": host, "port": port})
        path.chmod(0o700)
        federation = cls(path)
        federation.keep(MemberList())
        return federation

    def _section(self, name: str) -> dict[str, Any]:
        try:
            found = tomllib.loads((self.path / "federation.toml").read_text(encoding="utf-8")).get(name, {})
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FederationError(f"{self.path}/federation.toml cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise FederationError(f"{self.path}/federation.toml: [{name}] is not a table")
        return found

    @property
    def rules(self) -> Rules:
        """The rules as they stand."""
        return make_rules(self._section("rules"))

    def changed(self, values: dict[str, Any]) -> Rules:
        """The rules with other values for some."""
        return make_rules(asdict(self.rules) | values)

    def keep_rules(self, rules: Rules) -> None:
        """Replace the rules; comments in the file are not kept."""
        write_rules(self.path, rules, self._section("link"))

    @property
    def secure(self) -> bool:
        """Whether TLS and node authentication are on."""
        return bool(self._section("link").get("secure", True))

    @property
    def address(self) -> tuple[str, int]:
        """Where the SuperLink listens."""
        link = self._section("link")
        try:
            return str(link["host"]), int(link["port"])
        except (KeyError, ValueError, TypeError):
            raise FederationError(f"{self.path}/federation.toml: [link] lacks host or port") from None

    @property
    def contract(self) -> Path:
        """The file with what all sites and the server have agreed on; earlier versions gave it another name."""
        path, earlier = self.path / "contract.json", self.path / "agreement.json"
        return earlier if earlier.exists() and not path.exists() else path

    @property
    def most_answer(self) -> int:
        """Bytes that a site's answer may have."""
        given = self.rules.most_answer_mb
        if given:
            return int(given * (1 << 20))
        try:
            arrays = json.loads(self.contract.read_text(encoding="utf-8"))["arrays"]
            shapes: dict[str, list[int]] = {n.split()[0]: json.loads(n[n.index("[") :]) for n in arrays}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FederationError(f"{self.contract} cannot be read: {error}") from None
        solved = Record.open(self.run).settings.head == "closed-form"
        return 24 * (sum(map(math.prod, shapes.values())) + numbers_in_sums(shapes, solved)) + (4 << 20)

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.path / "run"

    @property
    def roster(self) -> MemberList:
        """The list of sites."""
        try:
            body = json.loads((self.path / "sites.json").read_text(encoding="utf-8"))
            return MemberList(tuple(Member(**m | {"retired": tuple(m.get("retired", ()))}) for m in body))
        except (OSError, ValueError, TypeError) as error:
            raise FederationError(f"{self.path}/sites.json cannot be read: {error}") from None

    def keep(self, roster: MemberList) -> None:
        """Replace the list of sites."""
        content = json.dumps([asdict(m) for m in roster.members], indent=2).encode()
        write_atomically(self.path / "sites.json", content, durable=True)
