"""What is not built in: objects passed from Python, things of other packages, and ``package.module:name``.

A name in the settings stands for one of four things, looked for in this order:

    object:NAME          an object that was passed to ``chase.run_experiment``; known while that run is made
    package.module:name  whatever that module calls so
    a built-in name      out of the literal table beside the code
    any other name       an entry point of an installed package, in the group of ``ENTRY_POINTS``

Objects go to worker processes over their pipe with cloudpickle, and nowhere else: what is kept on
disk is the readable name alone, so a resume must be given the object again.
"""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from chase.core.errors import SettingsError, unknown

ENTRY_POINTS = {
    "preset": "chase.presets",
    "data": "chase.data",
    "partition": "chase.partitions",
    "net": "chase.networks",
    "loss": "chase.losses",
    "strategy": "chase.strategies",
    "annotator": "chase.annotators",
    "server": "chase.server_rules",
    "features": "chase.feature_maps",
    "study": "chase.studies",
}
"""The group in which other packages offer each kind of thing."""

OBJECT = "object:"
IN_WORKERS = ("net", "loss", "strategy", "annotator", "features")
"""The kinds that turns of clients use; the others stay in the process of the server."""

_passed: dict[tuple[str, str], Any] = {}


def is_own(name: str) -> bool:
    """Whether a name is of something outside this package and its entry points."""
    return ":" in name


def offered(kind: str) -> dict[str, EntryPoint]:
    """What installed packages offer, by name; nothing is imported."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINTS[kind]):
        if point.name in found and point.value != found[point.name].value:
            raise SettingsError(
                f"{kind} '{point.name}' is offered by two packages ({_package(point)} and "
                f"{_package(found[point.name])}): remove one of them, or name the {kind} as package.module:name"
            )
        found[point.name] = point
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def about_offered(kind: str) -> dict[str, str]:
    """What installed packages offer, by name, with the package that it is of."""
    return {name: f"of package {_package(point)} ({point.value})" for name, point in offered(kind).items()}


def known_names(kind: str, built_in: Iterable[str]) -> list[str]:
    """All names of a kind that need no module path."""
    return [*built_in, *(name for name in offered(kind) if name not in set(built_in))]


def check_name(kind: str, name: str, built_in: Iterable[str]) -> None:
    """Refuse a name that stands for nothing, as a ``ValueError`` for the settings."""
    names = list(built_in)
    if name not in names and not is_own(name) and name not in offered(kind):
        raise ValueError(unknown(kind, name, known_names(kind, names)))


def find(kind: str, name: str, built_in: Iterable[str] = ()) -> Any:
    """What a name that is not built in stands for."""
    if name.startswith(OBJECT):
        return _object(kind, name)
    if is_own(name):
        return load_object(kind, name)
    points = offered(kind)
    if name not in points:
        raise SettingsError(unknown(kind, name, known_names(kind, built_in)))
    try:
        return points[name].load()
    except Exception as error:
        raise SettingsError(
            f"{kind} '{name}' of package {_package(points[name])} cannot be loaded "
            f"({type(error).__name__}: {error}): reinstall the package or remove it"
        ) from error


def _object(kind: str, name: str) -> Any:
    if (kind, name) not in _passed:
        raise SettingsError(
            f"{kind} = '{name}' was passed as an object from Python, which no file keeps: resume from Python with "
            f"chase.resume_experiment(directory, {kind}=...)"
        )
    return _passed[kind, name]


def load_object(kind: str, path: str) -> Any:
    """The object that ``package.module:name`` names; a module in the working directory is found too."""
    module, _, name = path.partition(":")
    try:
        found = _import_beside(module)
    except Exception as error:
        raise SettingsError(f"{kind} '{path}': cannot import '{module}' ({type(error).__name__}: {error})") from error
    if not hasattr(found, name):
        raise SettingsError(f"{kind} '{path}': module '{module}' has no '{name}'")
    return getattr(found, name)


def _import_beside(module: str) -> Any:
    """A module; where it is not found, looked for in the working directory as well."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        here = os.getcwd()
        if here in sys.path or error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        sys.path.append(here)  # a module beside the settings, whatever the command was started from
        return importlib.import_module(module)


def name_of(thing: Any) -> str:
    """A readable name for an object: its own, or that of its class or function, with options where it shows them."""
    if not inspect.isclass(thing) and isinstance(getattr(thing, "name", None), str):
        return str(thing.name)
    if isinstance(thing, functools.partial):
        options = ", ".join([*map(repr, thing.args), *(f"{key}={value!r}" for key, value in thing.keywords.items())])
        return f"{name_of(thing.func)}({options})"[:120]
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return str(thing.__name__)
    if is_dataclass(thing) and type(thing).__repr__ is not object.__repr__ and len(repr(thing)) <= 120:
        return repr(thing)[repr(thing).rfind(".", 0, repr(thing).find("(")) + 1 :]
    kept = {} if hasattr(thing, "state_dict") else getattr(thing, "__dict__", {})
    options = ", ".join(f"{key}={value!r}" for key, value in kept.items() if isinstance(value, str | int | float))
    return f"{type(thing).__name__}({options})"[:120] if options else type(thing).__name__


@contextmanager
def passing(objects: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Objects by kind are known inside; gives the names to put into the settings."""
    names = {kind: OBJECT + name_of(thing) for kind, thing in objects.items()}
    for kind, name in names.items():
        if _passed.get((kind, name), objects[kind]) is not objects[kind]:
            raise SettingsError(
                f"another run of this process uses another {kind} of the name '{name.removeprefix(OBJECT)}': "
                "rename one, or run them one after the other"
            )
    fresh = {(kind, names[kind]): thing for kind, thing in objects.items() if (kind, names[kind]) not in _passed}
    _passed.update(fresh)
    try:
        yield names
    finally:
        for key in fresh:
            del _passed[key]


def pack(chosen: Callable[[str], Any]) -> str:
    """The objects that turns use, for a worker; ``chosen`` gives the setting of a kind."""
    sent: dict[tuple[str, str], bytes] = {}
    for (kind, name), thing in _passed.items():
        if kind in IN_WORKERS and chosen(kind) == name:
            sent[kind, name] = _pickled(kind, name, thing)
    lines = [f"{kind}\t{name}\t{base64.b64encode(blob).decode()}" for (kind, name), blob in sent.items()]
    return "\n".join(lines)


def _pickled(kind: str, name: str, thing: Any) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(thing))
    except Exception as error:
        raise SettingsError(
            f"{kind} '{name.removeprefix(OBJECT)}' cannot be sent to worker processes "
            f"({type(error).__name__}: {error}): set engine='inprocess', or leave out what cannot be pickled"
        ) from error


def unpack(text: str) -> None:
    """In a worker: know the objects that ``pack`` packed, as long as the process lives."""
    import cloudpickle

    for line in text.splitlines():
        kind, name, blob = line.split("\t")
        _passed[kind, name] = cloudpickle.loads(base64.b64decode(blob))
