"""A run is a directory.

    settings.toml      resolved settings
    environment.json   kind (simulation or federation), versions, source, machine, kernels, own_forms, run id
    .lock              held while rounds are run; beside it, .lock.holder says by which process
    model.json         the network, its classes and its input: enough to use the model without the data
    coverage.json      samples and initial labels by client and class (simulation only)
    data.json          a digest of the data, and where it was relative to the run (simulation only)
    best.safetensors   the model of the round with the highest main metric so far
    metrics.jsonl      a line per round, flushed; of more than 256 clients quantiles instead of a list
    selections.jsonl   who asked for which sample, when and why (simulation only)
    checkpoint/        the last two rounds, each named by a manifest that is replaced atomically
    confusion.json     at the end: how many test samples of each class were taken for each class; where a run was
                       continued, that of its earlier end is confusion-ROUND.json
    report.html

The metrics line of a round is written before its checkpoint. On resume everything after the last
whole checkpoint is cut off and done again, so a kill at any moment loses at most one round.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast, get_args

from chase.core.errors import RunDirectoryError
from chase.core.files import GLANCE, Held, append_jsonl, locked, read_jsonl, to_jsonl, write_atomically, writing
from chase.core.files import LOCK as LOCK
from chase.core.provenance import provenance
from chase.learning.native.choice import AUTOGRAD_ONLY, OWN_FORMS, Kernels, chosen
from chase.settings import Settings, from_mapping, read_file, to_toml

NOTES = "notes.json"
RunKind = Literal["simulation", "federation"]
"""Who takes the turns: clients simulated on this machine, or the sites of a federation."""
MAY_CHANGE = frozenset(
    {
        "rounds",
        "target",
        "total_budget",
        "data",
        "test_data",
        "data_dir",
        "engine",
        "ray_address",
        "workers",
        "wait",
        "log_to",
    }
)
"""Settings that a resumed run may change: what was computed so far stays as it is (data: of the same content)."""
NO_EFFECT = MAY_CHANGE - {"data", "test_data"}
"""Settings that decide no result; another data set does, although the same data may have moved when a run resumes."""


def environment(
    run: str, kind: RunKind, settings: Settings, kernels: Kernels | None = None, own_forms: int = OWN_FORMS
) -> dict[str, Any]:
    """What a result depends on besides its settings."""
    computing = {} if kernels is None else {"kernels": kernels, "own_forms": own_forms}
    about = {"run": run, "kind": kind, **provenance(), **computing}
    return {**about, "command": sys.argv, "settings": settings.model_dump()}


def kernels_before(settings: Settings, said: Any) -> Kernels:
    """What computes a run of a plan, or one that has begun: before there was a compiled kernel, ``auto`` meant fused.

    What no kernel computes needs none: such a run goes on where the compiled kernel is missing.
    """
    if settings.kernels != "auto":
        return settings.kernels
    if settings.learner != "network" or settings.net in AUTOGRAD_ONLY:
        return "fused"
    return cast(Kernels, said) if said in get_args(Kernels) else "fused"


def own_forms_before(said: Any) -> int:
    """Which version of the forms of own networks counts for a run, or a plan of several; earlier ones do not say."""
    return said if isinstance(said, int) else 1


def kind_of(path: Path, body: Mapping[str, Any] | None = None) -> RunKind:
    """Who runs the rounds of a run directory; directories of earlier versions do not say, but a federation shows."""
    said: Any = (body or {}).get("kind")
    if said in get_args(RunKind):
        return cast(RunKind, said)
    of_sites = os.path.isfile(path / "events.jsonl") or os.path.isfile(path.parent / "federation.toml")
    return "federation" if of_sites else "simulation"


def resume_command(path: Path, kind: RunKind) -> str:
    """The command that resumes a run."""
    if kind == "simulation":
        return f"chase resume {shlex.quote(str(path))}"
    home = path.parent
    verb = "up" if os.path.isfile(home / "loopback.json") else "run"
    return f"chase federation {verb} {shlex.quote(str(home))}"


def check_unchanged(path: Path, before: Mapping[str, Any], settings: Settings) -> None:
    """Refuse settings that differ from those a run was begun with, except where that changes no result."""
    for key, now in settings.model_dump().items():
        if key not in MAY_CHANGE and before.get(key, now) != now:
            raise RunDirectoryError(
                f"{path} was begun with {key} = {before[key]!r}, not {now!r}: start a new run for that; "
                f"only {', '.join(sorted(MAY_CHANGE))} may change on resume"
            )


def of_earlier_versions(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run without what had no effect when it began and is refused today."""
    unused = {"class_weights": "none"} if values.get("learner") == "closed-form" else {}
    return {**values, **unused}


def has_rounds(path: Path) -> bool:
    """Whether a directory holds rounds of a run, whatever else of it is missing."""
    lines = (path / "metrics.jsonl", path / "metrics.jsonl.gz")
    if any(os.path.isfile(file) and file.stat().st_size for file in lines):  # unlike Path.is_file, never raises
        return True
    kept = path / "checkpoint"
    return os.path.isdir(kept) and any(kept.glob("[0-9]*.json"))


def no_run_in(path: Path) -> str:
    """Why a directory is not a run's, and what to do."""
    if has_rounds(path):
        return f"{path} holds the rounds of a run, but its settings.toml is missing: put that file back"
    hint = "it has no settings.toml" if os.path.exists(path) else "it does not exist"
    return f"{path} is not a run directory: {hint}; `chase run --out {shlex.quote(str(path))}` makes one"


def never_began(path: Path) -> bool:
    """Whether a run directory holds no round, no answer of a person, and nobody is running it."""
    if has_rounds(path):
        return False
    if (path / "home").exists() or (path / "events.jsonl").exists():
        return False
    try:
        with locked(path / LOCK, patience=0.0):
            return True
    except Held:
        return False


def write_notes(path: Path, notes: Sequence[str], durable: bool = False) -> None:
    """What the user should know of a run, each once; none needs no file."""
    said = list(dict.fromkeys(notes))
    if said or (path / NOTES).exists():
        write_atomically(path / NOTES, json.dumps(said, indent=1).encode(), durable=durable)


class RunHeld(RunDirectoryError):
    """Another process runs the rounds of the directory."""


class Record:
    """Writes and reads one run directory."""

    def __init__(self, path: Path, settings: Settings, run: str, kind: RunKind = "simulation") -> None:
        self.path, self.settings, self.run, self.kind = path, settings, run, kind
        self.kernels: Kernels | None = None
        """What computes the small networks of a simulation; the sites of a federation choose for themselves."""
        self.own_forms = OWN_FORMS
        """Which own networks count as small ones."""
        self.rolled_back_to: int | None = None
        """The round that a federation last went back to, if it has."""
        self.names: Sequence[str] | None = None
        """What users call the samples of a simulation, by number."""

    @classmethod
    def create(
        cls,
        path: Path,
        settings: Settings,
        model: Mapping[str, Any] | None = None,
        kind: RunKind = "simulation",
        kernels: Kernels | None = None,
        own_forms: int = OWN_FORMS,
        account: Callable[[Path], None] = lambda path: None,
    ) -> Record:
        """A new run directory; one that holds a run already is refused, and a refusal leaves no directory behind.

        ``kernels``: what computes a simulation, if it is not what the settings mean on this machine. ``account`` writes
        what else a run has from its beginning; the settings follow, so that a directory with settings has all of it.
        """
        run = secrets.token_hex(8)
        if kernels is None and kind == "simulation":
            kernels = chosen(settings.kernels)
        with writing(path):
            whole = (path / "settings.toml").exists()
            if not whole and has_rounds(path):
                raise RunDirectoryError(f"{no_run_in(path)}, or choose another directory")
            if whole and not never_began(path):
                raise RunDirectoryError(
                    f"{path} holds a run already: resume with `{resume_command(path, kind)}` or choose "
                    "another directory"
                )
            new = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
        try:
            around = environment(run, kind, settings, kernels, own_forms)
            write_atomically(path / "environment.json", json.dumps(around, indent=2).encode())
            if model is not None:
                write_atomically(path / "model.json", json.dumps(model, indent=2).encode())
            account(path)
            write_atomically(path / "settings.toml", to_toml(settings).encode())
        except RunDirectoryError:
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        record = cls(path, settings, run, kind)
        record.kernels, record.own_forms = kernels, own_forms
        return record

    @classmethod
    def open(cls, path: Path) -> Record:
        """An existing run directory."""
        if os.path.isfile(path / "federation.toml"):
            raise RunDirectoryError(
                f"{path} is the directory of a federation; its run is {path / 'run'}: "
                f"resume it with `{resume_command(path / 'run', 'federation')}`"
            )
        if not os.path.isfile(path / "settings.toml"):  # unlike Path.is_file, never raises
            raise RunDirectoryError(no_run_in(path))
        settings = from_mapping(of_earlier_versions(read_file(path / "settings.toml"))).resolved()
        try:
            around = json.loads((path / "environment.json").read_text(encoding="utf-8"))
            run, begun_with = str(around["run"]), dict(around["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{path}/environment.json cannot be read: {error}") from None
        check_unchanged(path, of_earlier_versions(begun_with), settings)
        record = cls(path, settings, run, kind_of(path, around))
        record.kernels = kernels_before(settings, around.get("kernels")) if record.kind == "simulation" else None
        record.own_forms = own_forms_before(around.get("own_forms"))
        record.rolled_back_to = around.get("rolled_back_to")
        return record

    @property
    def durable(self) -> bool:
        """Whether what is written outlives a power cut: the sites of a federation do not go back with its server."""
        return self.kind == "federation"

    def expect(self, kind: RunKind) -> None:
        """Refuse a record of the other kind, with the command that fits it."""
        if self.kind != kind:
            raise RunDirectoryError(
                f"{self.path} is the run of a {self.kind}, not of a {kind}: "
                f"resume it with `{resume_command(self.path, self.kind)}`"
            )

    @contextmanager
    def held(self, patience: float = GLANCE) -> Iterator[None]:
        """Held while rounds are run: a second process in the same directory is refused. A kill frees it."""
        try:
            with locked(self.path / LOCK, patience=patience):
                yield
        except Held as error:
            raise RunHeld(
                f"{self.path} is being run by another process ({error.holder}): watch it with `chase watch {self.path}`"
            ) from None

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """The settings with changes that do not touch what was computed so far, such as ``rounds``."""
        settings = from_mapping(self.settings.model_dump() | dict(changes)).resolved()
        check_unchanged(self.path, self.settings.model_dump(), settings)
        return settings

    def keep(self, settings: Settings) -> None:
        """Replace the settings; refused while another process runs the rounds."""
        with self.held():
            write_atomically(self.path / "settings.toml", to_toml(settings).encode(), durable=self.durable)
        self.settings = settings

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A dictionary a round."""
        return read_jsonl(self.path / "metrics.jsonl")

    @property
    def selections(self) -> list[dict[str, Any]]:
        """A dictionary a question."""
        return read_jsonl(self.path / "selections.jsonl")

    def append(self, metrics: Mapping[str, Any], selections: list[dict[str, Any]]) -> None:
        """Add a round's lines and flush them; a sample has its user's own name beside its number."""
        if self.names is not None:
            selections = [line | {"name": self.names[int(line["sample"])]} for line in selections]
        append_jsonl(self.path / "selections.jsonl", selections)
        append_jsonl(self.path / "metrics.jsonl", [metrics], durable=self.durable)

    @property
    def notes(self) -> list[str]:
        """What the user should know of the run, so far."""
        path = self.path / NOTES
        try:
            return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []
        except (OSError, ValueError, TypeError) as error:
            raise RunDirectoryError(f"{path} cannot be read: {error}; remove it, nothing is computed from it") from None

    def add_notes(self, notes: Sequence[str], outdated: Sequence[str] = ()) -> None:
        """Keep what the user should know of the run, for its report; what is there already is not repeated.

        ``outdated``: notes that no longer hold and are removed.
        """
        known = self.notes
        kept = [note for note in known if note not in outdated]
        more = [note for note in dict.fromkeys(notes) if note not in kept]
        if more or kept != known:
            write_notes(self.path, [*kept, *more], self.durable)

    def cut_after(self, round: int) -> None:
        """Drop all lines of rounds later than ``round``: they will be done again. Lines must lead up to it."""
        found = [line["round"] for line in self.metrics]
        if found[:round] != list(range(1, round + 1)):
            exit = " (`chase federation rollback` goes back to a round that has its line)" if self.durable else ""
            raise RunDirectoryError(
                f"{self.path}/metrics.jsonl is damaged: the checkpoint is of round {round}, "
                f"but only {len(found)} lines can be read{exit}"
            )
        for name in ("metrics.jsonl", "selections.jsonl"):
            kept = [line for line in read_jsonl(self.path / name) if line["round"] <= round]
            write_atomically(self.path / name, to_jsonl(kept).encode(), durable=self.durable)
