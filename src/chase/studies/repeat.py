"""The commands that run a study again, told from its jobs: data, rounds, seeds, scale, arms and changed settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chase import settings as settings_room
from chase.core.errors import ChaseError
from chase.run.record import NO_EFFECT
from chase.settings import presets
from chase.studies.plan import LEAST_TESTED, SHORTEST_CYCLE, TESTED, Options, StudyJob, plan
from chase.studies.results import StudyResult
from chase.studies.study import NO_LABELS, Scene, Study, StudyPart

GIVEN = NO_EFFECT | {"seed", "engine", "data_dir"}
"""Settings that other options give, or that decide no result."""


def commands(result: StudyResult, out: str) -> list[str]:
    """One command for all jobs that differ only in data, arm and seed."""
    groups: dict[tuple[int, float, str], list[StudyJob]] = {}
    for scene in result.scenes:
        for job in scene.jobs:
            scale, changes = user_changes(job, scene.part)
            groups.setdefault((rounds_option(job, scene.part), scale, json.dumps(changes)), []).append(job)
    alike = {(*key, seeds): some for key, jobs in groups.items() for seeds, some in by_seeds(jobs).items()}
    lines = []
    for (rounds, scale, given, _), jobs in alike.items():
        options = options_of(result.study, jobs, Options(rounds=rounds, scale=scale, changes=json.loads(given)))
        files = {preset: f"{out}/{Path(preset).name}" for preset in options.data if preset not in presets()}
        typed = replace(options, data=tuple(files.get(preset, preset) for preset in options.data))
        lines.append(command(result.study.name, typed, out))
    return lines


def by_seeds(jobs: Sequence[StudyJob]) -> dict[tuple[int, int], list[StudyJob]]:
    """Jobs by the first and last seed of their data set: a command has the same seeds for all that it names."""
    found: dict[tuple[int, int], list[StudyJob]] = {}
    for preset in dict.fromkeys(map(preset_of, jobs)):
        own = [job for job in jobs if preset_of(job) == preset]
        seeds = [job.settings.seed for job in own]
        found.setdefault((min(seeds), max(seeds)), []).extend(own)
    return found


def options_of(study: Study, jobs: Sequence[StudyJob], given: Options) -> Options:
    """Options that plan these jobs, and as few others as possible."""
    known = {arm.label for part in study.parts for arm in part.arms}
    arms = list(dict.fromkeys(job.arm for job in jobs))
    seeds = [job.settings.seed for job in jobs]
    own = replace(
        given,
        arms=tuple(arms) if known - set(arms) else (),
        seeds=1 + max(seeds) - min(seeds),
        first_seed=min(seeds),
        no_labels=NO_LABELS.label in arms and NO_LABELS.label not in known and not known - set(arms),
    )
    named = replace(own, data=tuple(dict.fromkeys(map(preset_of, jobs))))
    return min((named, own), key=lambda options: beyond(study, jobs, options))


def beyond(study: Study, jobs: Sequence[StudyJob], options: Options) -> tuple[int, int]:
    """How many of some jobs options do not plan, and how many others they plan: the fewer the better."""
    try:
        planned = {(job.part, job.name) for job in plan(study, options)}
    except ChaseError:  # a file of settings that is not at hand
        return len(jobs), 0
    wanted = {(job.part, job.name) for job in jobs}
    return len(wanted - planned), len(planned - wanted)


def command(study: str, options: Options, out: str = "") -> str:
    """The command that a user types for options of a study."""
    words = ["chase", "study", study]
    words += ["--data", ",".join(options.data)] if options.data else []
    words += ["--rounds", str(options.rounds)] if options.rounds else []
    words += ["--seeds", str(options.seeds)]
    words += ["--first-seed", str(options.first_seed)] if options.first_seed else []
    words += ["--scale", f"{options.scale:g}"] if options.scale != 1.0 else []
    for key, value in options.changes.items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    for arm in options.arms:
        words += ["--arm", arm]
    words += ["--no-labels"] if options.no_labels else []
    return shlex.join([*words, *(["--out", out] if out else [])])


def rounds_option(job: StudyJob, part: StudyPart) -> int:
    """The ``--rounds`` that give a job its rounds: where they follow the length of a cycle, those of the shortest."""
    settings, follow = job.settings, any(scene.in_cycles for scene in part.scenes)
    return settings.rounds * SHORTEST_CYCLE // settings.cycle_rounds if follow else settings.rounds


def preset_of(job: StudyJob) -> str:
    """The preset that a job began with; where its plan does not say, a scene's name begins with it."""
    return job.preset or job.scene.partition(",")[0]


def user_changes(job: StudyJob, part: StudyPart) -> tuple[float, dict[str, Any]]:
    """The scale (1 = all data) and the settings that a user gave: what preset, scene and arm do not explain."""
    arm = next((arm for arm in part.arms if arm.label == job.arm), None)
    found = [changes_from(job, scene, arm.changes) for scene in part.on((preset_of(job),)).scenes] if arm else []
    changes = min(found, key=len, default={})
    if "data_share" not in changes:
        return 1.0, changes
    scale = changes.pop("data_share")
    if changes.get("test_limit") == max(LEAST_TESTED, round(scale * TESTED)):
        del changes["test_limit"]  # --scale sets it
    return scale, changes


def changes_from(job: StudyJob, scene: Scene, arm: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which a job departs from an arm in a scene; nothing where the preset is not at hand."""
    try:
        plain = settings_room.load(scene.preset, {**scene.changes, **arm})
    except ChaseError:
        return {}
    own, before = job.settings.model_dump(), plain.model_dump()
    return {key: own[key] for key in own if key not in GIVEN and own[key] != before[key]}
