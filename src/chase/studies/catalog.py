"""The studies by name."""

from __future__ import annotations

from chase.core import plugins
from chase.core.errors import SettingsError
from chase.studies import (
    ablation,
    authors,
    beta,
    cdb,
    cost,
    cycles,
    ev_accuracy,
    ev_variants,
    fams,
    few_labels,
    isolated,
    mu,
    overall,
    recommend,
    reset,
    second_opinions,
    shakespeare,
    strong,
    why,
)
from chase.studies.study import Study

_MODULES = (
    overall,
    ablation,
    cost,
    isolated,
    mu,
    beta,
    fams,
    ev_variants,
    cdb,
    strong,
    cycles,
    reset,
    shakespeare,
    ev_accuracy,
    why,
    authors,
    few_labels,
    recommend,
    second_opinions,
)

STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in _MODULES}


def find_study(name: str) -> Study:
    """A study by name."""
    if name in STUDIES:
        return STUDIES[name]
    found = plugins.find("study", name, STUDIES)
    if not isinstance(found, Study):
        raise SettingsError(f"study '{name}' is a {type(found).__name__}, not a chase.studies.study.Study")
    return found


def all_studies() -> dict[str, Study]:
    """Every study by name, those of other packages included."""
    return STUDIES | {name: find_study(name) for name in plugins.offered("study") if name not in STUDIES}
