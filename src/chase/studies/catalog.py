"""The studies by name."""

from __future__ import annotations

from chase.core.errors import SettingsError, unknown
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
    isolated,
    mu,
    overall,
    recommend,
    reset,
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
    recommend,
)

STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in _MODULES}


def find_study(name: str) -> Study:
    """A study by name."""
    if name not in STUDIES:
        raise SettingsError(unknown("study", name, STUDIES))
    return STUDIES[name]
