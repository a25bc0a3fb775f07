"""Settings from presets, TOML files and ``key=value`` pairs, and back to TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from chase.core import plugins
from chase.core.errors import SettingsError, unknown
from chase.data.known import KNOWN
from chase.settings.groups import GROUPS, about_group, group_of
from chase.settings.values import Settings

PRESETS = Path(__file__).parent / "presets"


RENAMED = {"target_accuracy": "target"}
"""Settings that had another name in earlier versions: that name is still read."""


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat keys from values that may be grouped: ``{"training": {"lr": 0.1}}`` is ``{"lr": 0.1}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = value if isinstance(value, Mapping) and name in GROUPS else {name: value}
        for given, one in inner.items():
            key = RENAMED.get(given, given)
            if inner is value and key not in GROUPS[name].model_fields:
                raise SettingsError(_not_in_group(name, key))
            if key in flat:
                raise SettingsError(f"{key} is given twice, in [{group_of(key)}] and outside it: keep one")
            flat[key] = one
    return flat


def _not_in_group(group: str, key: str) -> str:
    if key in Settings.model_fields:
        return f"{key} is a setting of [{group_of(key)}], not of [{group}]: move it there"
    return unknown(f"setting in [{group}]", key, GROUPS[group].model_fields)


def from_mapping(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, flat or grouped; every problem is named, a misspelt key with the nearest known."""
    values = flatten(values)
    for key in values:
        if key not in Settings.model_fields:
            raise SettingsError(unknown("setting", key, Settings.model_fields, see="chase list settings"))
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(e) for e in error.errors())) from None


def _sentence(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "settings"
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    text = f"{key} = {error['input']!r} is invalid: {message[0].lower()}{message[1:]}"
    if key == "model":
        text += " (the network is the setting `net`)"
    return text


def presets() -> dict[str, Path]:
    """Preset files by name."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.toml"))}


def read_file(path: Path) -> dict[str, Any]:
    """The values of one TOML file, flat."""
    try:
        return flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def values_of(name: str) -> dict[str, Any]:
    """What a preset or a TOML file says, as plain values."""
    known = presets()
    if name in known:
        return read_file(known[name])
    if name in plugins.offered("preset"):
        return flatten(plugins.find("preset", name))
    if name.endswith(".toml"):
        values = read_file(Path(name))
        if "data" not in values:
            raise SettingsError(f'{name} does not say which data to use: add a line such as data = "digits" or a path')
        return beside(Path(name), values)
    names = plugins.known_names("preset", known)
    raise SettingsError(unknown("preset", name, names) + "; or give a TOML file, a folder of images or a table")


def beside(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, with paths of data that lie beside it leading there from wherever it is run.

    The name of a data set stays that name whatever lies beside the file: a folder of that name is written ./mnist.
    """
    found = {}
    for key in ("data", "test_data", "data_dir", "init_weights"):
        value = values.get(key)
        if (
            not isinstance(value, str)
            or not value
            or Path(value).is_absolute()
            or (key == "data" and _names_data(value))
        ):
            continue
        place = str(file.parent / value)
        if Path(place).exists():
            found[key] = f"./{place}" if key == "data" and _names_data(place) else place
    return values | found


def _names_data(value: str) -> bool:
    return value == "digits" or value in KNOWN or value in plugins.offered("data")


def load(name: str, changes: Mapping[str, Any] | None = None) -> Settings:
    """Settings from a preset name or a TOML file, with changes on top, resolved."""
    return from_mapping({**values_of(name), **(changes or {})}).resolved()


def parse_changes(pairs: list[str], example: str = "--set rounds=20") -> dict[str, Any]:
    """``key=value`` pairs of an option (``example`` is one); a value is read as ``_value`` says."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise SettingsError(f"{example.split()[0]} takes key=value, not '{pair}'; for example {example}")
        group, dot, inner = key.partition(".")
        if dot and group in GROUPS:
            (key,) = flatten({group: {inner: text}})
        key = RENAMED.get(key, key)
        changes[key] = _value(key, text.strip())
    return changes


def _value(key: str, text: str) -> Any:
    """A value as TOML, else as text; for a setting that is a text, a number, date or boolean stays as it was typed."""
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
    field = Settings.model_fields.get(key)
    typed = field is not None and field.annotation in (str, str | None) and not isinstance(value, str | list | dict)
    return text if typed else value


def to_toml(settings: Settings) -> str:
    """The settings as TOML that ``load`` reads back to an equal value: flat keys, a comment above each group."""
    values = {key: value for key, value in settings.model_dump().items() if value is not None}
    parts = []
    for name, group in GROUPS.items():
        inside = {key: values[key] for key in group.model_fields if key in values}
        parts.append(f"# {name}: {about_group(name)}\n{tomli_w.dumps(inside)}")
    return "\n".join(parts)
