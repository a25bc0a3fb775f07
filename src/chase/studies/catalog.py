"""The studies by name."""

from __future__ import annotations

from chase.core.errors import SettingsError, unknown
from chase.studies import ablation, cost, isolated, strong
from chase.studies.study import Study

STUDIES: dict[str, Study] = {
    study.STUDY.name: study.STUDY
    for study in (ablation, cost, strong, isolated)
}  # fmt: skip


def find_study(name: str) -> Study:
    """A study by name."""
    if name not in STUDIES:
        raise SettingsError(unknown("study", name, STUDIES))
    return STUDIES[name]
