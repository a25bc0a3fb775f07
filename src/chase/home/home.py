"""A client's home: the directory in which it keeps its samples, its questions and its state.

    client.json           who the client is, its classes, how its samples are shown
    samples.safetensors   its samples, decoded: ids and inputs
    inbox.sqlite          samples by name, questions, answers, annotators, sessions, committed turns
    state/                the arrays of committed turns, named by the inbox

``client.json`` is written last, so a directory that has one is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from chase.core.errors import LabelError
from chase.core.files import write_atomically
from chase.core.weights import to_bytes
from chase.data.kinds import KINDS
from chase.home.audit import Audit
from chase.home.history import Ledger
from chase.home.inbox import Given, Inbox
from chase.home.people import People, Person
from chase.home.policy import Policy
from chase.home.schema import Database

FORMAT = 1
INITIAL = "initial"
"""The annotator that labels known from the start are booked under."""


@dataclass(frozen=True)
class HomeCard:
    """client.json."""

    client: int
    name: str
    classes: tuple[str, ...]
    kind: str
    """"image" or "text"."""
    alphabet: str = ""
    """For texts kept as tokens: the character of each token."""
    predicts_next: bool = False
    """For texts: the class is what comes next after the text, not what the text is."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    vocabulary: int = 0
    """For texts: how many tokens there are."""
    scale: tuple[float, float] = (0.0, 255.0)
    """For images: the values in their files that became 0 and 255."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """For a table: what its columns are."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Where the samples came from."""
    originals: str = ""
    """Directory of the original files, named as the samples are; shown instead of the decoded samples."""


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that a reader, a kill or a power cut sees the old content or the new, never a part."""
    write_atomically(path, content, durable=True, refusal=LabelError)


class Home:
    """An open home."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.card = _read_card(path)
        self.database = Database(path / "inbox.sqlite")
        self.inbox = Inbox(self.database, len(self.card.classes))
        self.people, self.ledger = People(self.database), Ledger(self.database)
        self.policies, self.audit = self.inbox.policies, Audit(self.database)

    @classmethod
    def create(
        cls,
        path: Path,
        card: HomeCard,
        ids: NDArray[np.int64],
        inputs: NDArray[Any],
        names: Sequence[str] | None = None,
        initial: Mapping[int, int] | None = None,
    ) -> Home:
        """A new home; one that is there and whole already is refused. Only its owner may look into it."""
        if (path / "client.json").exists():
            raise LabelError(f"{path} is a client's home already: open it, or choose another directory")
        if card.kind not in KINDS or not card.classes:
            raise LabelError(f"a home holds samples of a kind ({', '.join(KINDS)}) and at least one class")
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            for left_over in path.glob("inbox.sqlite*"):
                left_over.unlink()
        except OSError as error:
            raise LabelError(f"cannot write {path}: {error.strerror or error}") from error
        write_durably(path / "samples.safetensors", to_bytes({"ids": ids, "inputs": inputs}))
        database = Database(path / "inbox.sqlite", create=True)
        inbox, people = Inbox(database, len(card.classes)), People(database)
        called = [f"{card.kind}-{i}" for i in ids.tolist()] if names is None else list(names)
        inbox.add_samples(dict(zip(ids.tolist(), called, strict=True)))
        if initial:
            known = people.named(INITIAL, comes=False).id
            inbox.answer_all([Given(s, label, known, source=INITIAL) for s, label in initial.items()])
            inbox.set_taken(inbox.hand_out(0)[1])
        database.close()
        write_durably(path / "client.json", json.dumps({"format": FORMAT} | asdict(card), indent=2).encode())
        return cls(path)

    def samples(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The ids (n,) and the decoded inputs (n, ...)."""
        file = self.path / "samples.safetensors"
        try:
            with safe_open(file, framework="numpy") as held:
                return held.get_tensor("ids"), held.get_tensor("inputs")
        except (SafetensorError, OSError) as error:
            raise LabelError(f"cannot read {file}: {error}") from None

    def answer(self, given: Given, who: str, what: str, **detail: Any) -> int:
        """An answer through the inbox's checks, with a line in the audit log; returns its number."""
        before = self.inbox.current(given.sample)
        number = self.inbox.answer(given)
        said = {key: getattr(given, key) for key in ("label", "reason", "unsure", "comment", "saw_model")}
        label_before = None if before is None else before["label"]
        self.audit.note(who, what, given.sample, answer=number, label_before=label_before, **said, **detail)
        return number

    def invite(self, name: str, by: str) -> str:
        """A token for one entry of a person, with a line in the audit log, which never holds the token."""
        if " ".join(name.split()) == INITIAL:
            raise LabelError(f"'{INITIAL}' stands for labels known from the start and cannot enter: use another name")
        with self.database.transaction():
            token = self.people.invite(name)
            self.audit.note(by, "link", person=self.people.named(name).name)
        return token

    def revoke(self, name: str, by: str) -> int:
        """End a person's sessions and unused links, with a line in the audit log; returns how many there were."""
        with self.database.transaction():
            ended = self.people.revoke(name)
            self.audit.note(by, "revoke", person=self.people.named(name).name, ended=ended)
        return ended

    def set_role(self, name: str, role: str, by: str) -> Person:
        """Give a person a role, with a line in the audit log that names the one before."""
        with self.database.transaction():
            before = self.people.named(name, comes=False).role
            person = self.people.set_role(name, role)
            self.audit.note(by, "role", person=person.name, role=role, role_before=before)
        return person

    def set_policy(self, values: Mapping[str, Any], by: str) -> Policy:
        """Change some of the policy, with a line in the audit log: what changed, from what to what."""
        with self.database.transaction():
            before, after = self.policies.read(), self.policies.change(values)
            pairs = {one.name: [getattr(before, one.name), getattr(after, one.name)] for one in fields(Policy)}
            changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            self.audit.note(by, "policy", changed=changed)
        return after

    def close(self) -> None:
        """Close the inbox."""
        self.database.close()


def _read_card(path: Path) -> HomeCard:
    file = path / "client.json"
    if not file.is_file():
        raise LabelError(
            f"{path} is not a client's home: it has no client.json (`chase run --annotator page` makes one)"
        )
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            raise LabelError(f"{file} is of another format than the {FORMAT} that this version of chase reads")
        lists = {key: tuple(body[key]) for key in ("classes", "mean", "std", "scale", "columns") if key in body}
        card = HomeCard(**(body | lists))
        if card.kind not in KINDS:
            raise ValueError(f"its kind is {card.kind!r}")
        return card
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabelError(f"{file} is damaged: {error}") from None
