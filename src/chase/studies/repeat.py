"""The commands that run a study again, told from its jobs: data, rounds, seeds, scale, arms and changed settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chase import settings as settings_room
from chase.core.errors import ChaseError
from chase.run.record import NO_EFFECT
from chase.studies.plan import LEAST_TESTED, SHORTEST_CYCLE, TESTED, StudyJob
from chase.studies.results import StudyResult
from chase.studies.study import NO_LABELS, Scene, StudyPart

GIVEN = NO_EFFECT | {"seed", "engine", "data_dir", "data_share"}
"""Settings that other options give, or that decide no result."""


def commands(result: StudyResult, out: str) -> list[str]:
    """One command for all jobs that differ only in data, arm and seed."""
    groups: dict[tuple[int, float, str], list[StudyJob]] = {}
    for scene in result.scenes:
        for job in scene.jobs:
            settings = job.settings
            key = (rounds_option(job, scene.part), settings.data_share, json.dumps(changes_of(job, scene.part)))
            groups.setdefault(key, []).append(job)
    known = {arm.label for part in result.study.parts for arm in part.arms}
    lines = []
    for (rounds, share, changes), jobs in groups.items():
        arms = list(dict.fromkeys(job.arm for job in jobs))
        words = [
            "chase",
            "study",
            result.study.name,
            "--data",
            ",".join(dict.fromkeys(named(job, out) for job in jobs)),
        ]
        words += ["--rounds", str(rounds), "--seeds", str(1 + max(job.settings.seed for job in jobs))]
        words += ["--scale", f"{share:g}"] if share != 1.0 else []
        for key, value in json.loads(changes).items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        for arm in arms if known - set(arms) else ():
            words += ["--arm", arm]
        if NO_LABELS.label in arms and NO_LABELS.label not in known and not known - set(arms):
            words += ["--no-labels"]
        lines.append(shlex.join([*words, "--out", out]))
    return lines


def rounds_option(job: StudyJob, part: StudyPart) -> int:
    """The ``--rounds`` that give a job its rounds: where they follow the length of a cycle, those of the shortest."""
    settings, follow = job.settings, any(scene.in_cycles for scene in part.scenes)
    return settings.rounds * SHORTEST_CYCLE // settings.cycle_rounds if follow else settings.rounds


def preset_of(job: StudyJob) -> str:
    """The preset that a job began with; where its plan does not say, a scene's name begins with it."""
    return job.preset or job.scene.partition(",")[0]


def named(job: StudyJob, out: str) -> str:
    """The preset as it is typed; a file stands in the exported directory."""
    preset = preset_of(job)
    return preset if preset in settings_room.presets() else f"{out}/{Path(preset).name}"


def changes_of(job: StudyJob, part: StudyPart) -> dict[str, Any]:
    """The settings that a user changed: what neither the preset, nor the scene, nor the arm explains."""
    arm = next((arm for arm in part.arms if arm.label == job.arm), None)
    found = [changes_from(job, scene, arm.changes) for scene in part.on((preset_of(job),)).scenes] if arm else []
    return min(found, key=len, default={})


def changes_from(job: StudyJob, scene: Scene, arm: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which a job departs from an arm in a scene; nothing where the preset is not at hand."""
    try:
        plain = settings_room.load(scene.preset, {**scene.changes, **arm})
    except ChaseError:
        return {}
    own, before = job.settings.model_dump(), plain.model_dump()
    changed = {key: own[key] for key in own if key not in GIVEN and own[key] != before[key]}
    if changed.get("test_limit") == max(LEAST_TESTED, round(job.settings.data_share * TESTED)):
        del changed["test_limit"]  # --scale sets it
    return changed
