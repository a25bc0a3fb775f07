"""Several methods and seeds side by side in one directory.

Every run has a directory of its own inside. All methods of one seed start from the same partition, the same
initial labels and the same initial weights, because those are drawn from the seed alone. ``comparison.json``
says what belongs to it, so that it can be gone on with: what is finished is not done again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chase.client.build import kernels_of
from chase.core.errors import RunDirectoryError, SettingsError
from chase.core.files import write_atomically
from chase.core.messages import FORMAT
from chase.learning.native.choice import OWN_FORMS, Kernels
from chase.run.experiment import Experiment
from chase.run.metrics import stop_reason
from chase.run.record import MAY_CHANGE, Record, check_unchanged, kernels_before, own_forms_before
from chase.settings import Settings, from_mapping

PLAN = "comparison.json"


@dataclass(frozen=True)
class ComparisonRun:
    """One run of a comparison."""

    name: str
    """Its directory within the comparison's."""
    settings: Settings
    kernels: Kernels | None = None
    """What computes it, once the comparison has begun: one kernel for all networks."""
    own_forms: int = OWN_FORMS
    """Which version of the forms of own networks counts for all of them."""


def method_changes(text: str) -> dict[str, str]:
    """What a method's name asks for: ``entropy``, or ``entropy@global`` for the same on the global model."""
    strategy, at, model = text.strip().partition("@")
    if not strategy or (at and model not in ("local", "global")):
        raise SettingsError(f"'{text}' is not a method: give NAME, NAME@local or NAME@global, separated by commas")
    return {"strategy": strategy} | ({"model": model} if at else {})


def arm_name(method: str, seed: int) -> str:
    """A directory name for a method and a seed."""
    return f"{method.strip().replace(':', '.')}-seed{seed}"


def plan_arms(values: Mapping[str, Any], methods: Sequence[str], seeds: Sequence[int]) -> list[ComparisonRun]:
    """All methods of one seed after the other; every setting is checked before anything runs."""
    methods = [method.strip() for method in methods]
    twice = {method for method in methods if methods.count(method) > 1}
    if twice:
        raise SettingsError(f"method '{sorted(twice)[0]}' is named twice: give each once")
    if values.get("annotator", "oracle") != "oracle":
        raise SettingsError("a comparison is labelled by the oracle: a person labels one run at a time")
    arms = [
        ComparisonRun(
            arm_name(method, seed), from_mapping({**values, **method_changes(method), "seed": seed}).resolved()
        )
        for seed in seeds
        for method in methods
    ]
    for at, method in enumerate(methods):
        alike = next((other for n, other in enumerate(methods[:at]) if arms[n].settings == arms[at].settings), None)
        if alike is not None:
            raise SettingsError(f"methods '{alike}' and '{method}' mean the same here: give one of them")
    return arms


def is_comparison(path: Path) -> bool:
    """Whether a directory holds a comparison."""
    return os.path.isfile(path / PLAN)  # unlike Path.is_file, never raises


def _read(path: Path) -> tuple[dict[str, dict[str, Any]], Kernels, int]:
    """The settings of each run, what computes the networks of all of them, and the version of the forms of own ones."""
    try:
        body = json.loads((path / PLAN).read_text(encoding="utf-8"))
        if body["format"] != FORMAT:
            raise RunDirectoryError(f"{path / PLAN} has format {body['format']}, this version reads {FORMAT}")
        arms = {str(name): dict(settings) for name, settings in body["arms"].items()}
        forms = own_forms_before(body.get("own_forms"))
        return arms, body.get("kernels", "fused"), forms  # earlier versions do not say
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{path / PLAN} cannot be read: {error}") from None


def kernels_in(path: Path) -> Kernels:
    """What computes the networks of a comparison."""
    return _read(path)[1]


def own_forms_in(path: Path) -> int:
    """Which version of the forms of own networks counts for a comparison."""
    return _read(path)[2]


def read_arms(path: Path, changes: Mapping[str, Any] | None = None) -> list[ComparisonRun]:
    """The runs that belong to the comparison in a directory, with ``rounds`` and the like changed on request."""
    arms, said, own_forms = _read(path)
    odd = sorted(set(changes or {}) - MAY_CHANGE)
    if odd:
        raise RunDirectoryError(f"{odd[0]} cannot change in a comparison that has begun; {sorted(MAY_CHANGE)} can")
    found = [
        ComparisonRun(name, from_mapping({**values, **(changes or {})}).resolved()) for name, values in arms.items()
    ]
    return [replace(arm, kernels=kernels_before(arm.settings, said), own_forms=own_forms) for arm in found]


def write_arms(path: Path, arms: Sequence[ComparisonRun]) -> list[ComparisonRun]:
    """Note the runs, beside those that the directory has already, and what computes all of them; returns ``arms``."""
    before = read_arms(path) if is_comparison(path) else []
    known = {arm.name: arm.settings for arm in before}
    for arm in arms:
        if arm.name in known:
            check_unchanged(path / arm.name, known[arm.name].model_dump(), arm.settings)
    known |= {arm.name: arm.settings for arm in arms}
    kernels = kernels_in(path) if before else kernels_of(arms[0].settings)
    own_forms = own_forms_in(path) if before else OWN_FORMS
    dumped = {name: settings.model_dump() for name, settings in known.items()}
    body = {"format": FORMAT, "kernels": kernels, "own_forms": own_forms, "arms": dumped}
    write_atomically(path / PLAN, json.dumps(body, indent=1).encode())
    return [replace(arm, kernels=kernels_before(arm.settings, kernels), own_forms=own_forms) for arm in arms]


def open_arm(path: Path, arm: ComparisonRun) -> Experiment | None:
    """The run to begin or to resume; None when it is finished."""
    where = path / arm.name
    if not (where / "settings.toml").exists():
        return Experiment.begin(arm.settings, where, arm.kernels, arm.own_forms)
    record = Record.open(where)
    check_unchanged(where, record.settings.model_dump(), arm.settings)
    changes = {key: getattr(arm.settings, key) for key in MAY_CHANGE}
    if stop_reason(arm.settings, record.metrics):
        return None
    return Experiment.resume(where, changes)
