"""A site on disk: a client's home, and beside it what makes it a site of a federation.

    site.json               its name, who labels, its own budget
    start.safetensors       the samples and labels that it began with
    truth.safetensors       simulated annotators only: what they would answer
    originals/              texts as people read them
    holdout.safetensors     labelled samples that are never trained on, and their names, if it has any
    node.key, node.key.pub  the key that proves who it is
    making                  until all of this is there
    turn.lock               held while a turn, ``add`` or ``forget`` changes the site

``site.json`` is written last, so a directory that has one is whole. What a kill has cut short in ``add`` or ``forget``
is finished when the site is next opened or changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.client.build import Truth
from chase.client.state import ClientState
from chase.core.errors import LabelError
from chase.core.files import locked
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples
from chase.home.home import Home, write_durably
from chase.home.store import resident
from chase.site.arrays import Holdout, read_arrays, read_start, write_arrays
from chase.site.finish import finish, is_unfinished

FORMAT = 1
MAKING = "making"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class SiteCard:
    """site.json."""

    name: str
    annotator: str = "page"
    """"page": people label; "simulated": the truth file answers at once."""
    budget: int | None = None
    """Labels per request, where the site has a say of its own."""
    period: int | None = None
    """Turns between requests, if the federation lets sites decide."""
    device: str = "cpu"
    """Where it trains and infers: cpu, or cuda where it has a graphics card."""
    next_id: int = 0
    """The id of the next sample that is added; ids are never used twice."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where its samples came from and how they were read, so that more can be added alike."""


def check_name(name: str) -> None:
    """Refuse a name that does not fit a file or a certificate."""
    if not NAME.fullmatch(name):
        raise LabelError(
            f"'{name}' is invalid as the name of a site: use lower-case letters, digits, dots and dashes, at most 63"
        )


class Site:
    """An open site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.card = read_card(path)
        self.home = Home(path)
        if is_unfinished(self.home):
            with self.locked():
                pass

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in order."""
        return self.home.card.classes

    def samples(self) -> Samples:
        """All samples, without labels."""
        return resident(self.home)

    def start(self) -> ClientState:
        """The state before the first turn."""
        return read_start(self.path)

    def truth(self) -> Truth:
        """What a simulated annotator knows."""
        arrays = self.read("truth")
        return Truth(arrays["ids"], arrays["labels"])

    def holdout(self) -> tuple[Samples, NDArray[np.int64]] | None:
        """The samples held out for evaluation and their labels, if there are any."""
        held = self.held_out()
        if held is None:
            return None
        return replace(self.samples(), inputs=torch.from_numpy(held.inputs), ids=None), held.labels

    def held_out(self) -> Holdout | None:
        """The held-out part with ids and names."""
        return Holdout.read(self.path)

    def held_out_names(self) -> dict[int, str]:
        """The names of the held-out samples by id."""
        held = self.held_out()
        return {} if held is None else dict(zip(held.ids.tolist(), held.names, strict=True))

    def read(self, name: str) -> dict[str, Array]:
        """The arrays of one of the site's files."""
        return read_arrays(self.path, name)

    def write(self, name: str, arrays: Arrays) -> None:
        """Replace one of the site's files, whole or not at all."""
        write_arrays(self.path, name, arrays)

    def keep(self, card: SiteCard) -> None:
        """Replace site.json."""
        write_card(self.path, card)
        self.card = card

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time: a turn, an addition or a removal. Waits for the other; a kill frees the lock.

        What another has changed meanwhile is read again; what it was kept from finishing is finished.
        """
        with locked(self.path / "turn.lock", wait=True):
            self.card = read_card(self.path)
            finish(self.home)
            yield

    def close(self) -> None:
        """Close the inbox."""
        self.home.close()


def write_card(path: Path, card: SiteCard) -> None:
    """Write site.json."""
    write_durably(path / "site.json", json.dumps({"format": FORMAT} | asdict(card), indent=2).encode())


def read_card(path: Path) -> SiteCard:
    """Read site.json."""
    file = path / "site.json"
    if not file.is_file():
        raise LabelError(f"{path} is not a site: it has no site.json (`chase site init {path} --data ... --id ...`)")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            raise LabelError(f"{file} is of another format than the {FORMAT} that this version of chase reads")
        return SiteCard(**body)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabelError(f"{file} is damaged: {error}") from None
