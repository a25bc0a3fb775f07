"""From a study to its jobs, and the file that remembers them.

One directory may hold several studies. A job's name ends in a digest of the settings that decide its
results, so that studies share the runs that they have in common, and a finished one is never run again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chase import settings as settings_room
from chase.core.errors import RunDirectoryError, SettingsError, unknown
from chase.core.files import write_atomically
from chase.core.messages import FORMAT
from chase.learning.native.choice import OWN_FORMS, Kernels, chosen
from chase.run.record import NO_EFFECT, own_forms_before
from chase.settings import Settings
from chase.studies.study import NO_LABELS, Scene, Study, StudyPart, said

SUFFIX = ".study.json"
ENDS = frozenset({"target", "total_budget"})
"""Settings that a resumed run may change, but that decide when it ends."""
SHORTEST_CYCLE = 25
"""Rounds of the shortest cycle of a study: ``--rounds`` counts for it, longer cycles get as many requests."""
TESTED, LEAST_TESTED = 10_000, 200
"""Test samples at full scale, and the fewest at a smaller one."""


@dataclass(frozen=True)
class Options:
    """What a user asks of a study; empty means as the study says."""

    data: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    rounds: int = 0
    seeds: int = 3
    first_seed: int = 0
    scale: float = 1.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    no_labels: bool = False
    """Whether every part also has an arm that buys no labels."""


@dataclass(frozen=True)
class StudyJob:
    """One run of a study."""

    name: str
    """Its directory within the study's."""
    part: int
    scene: str
    arm: str
    settings: Settings
    preset: str = ""
    """What it began with, a file by its whole path; plans of earlier versions do not say."""
    base: str = ""
    """A digest of the scene's settings without the arm's: all jobs of a scene have the same."""
    ends: tuple[int, ...] = ()
    """Rounds at which shorter studies of its directory end, which share its run: it keeps what they read of them."""


def plan(study: Study, options: Options) -> list[StudyJob]:
    """All jobs, in the order in which they run: scene by scene, and all arms of one seed before the next."""
    stems = [Path(preset).stem for preset in dict.fromkeys(options.data)]
    for stem in stems:
        if stems.count(stem) > 1:
            raise SettingsError(f"--data names '{stem}' twice: results go by that name, so rename one of the files")
    parts = [part.on(options.data) if options.data else part for part in study.parts]
    if options.no_labels or NO_LABELS.label in options.arms:
        parts = [part.with_no_labels() for part in parts]
    if options.arms:
        known = {arm.label for part in parts for arm in part.arms}
        for label in options.arms:
            if label not in known:
                raise SettingsError(unknown(f"arm of study {study.name}", label, known))
    varied = {key for part in parts for arm in part.arms if arm is not NO_LABELS for key in arm.changes}
    for key in options.changes:
        if key in varied:
            raise SettingsError(f"--set {key}=... cannot be used with study {study.name}: its arms differ in {key}")
    check_scenes(study.name, [scene for part in parts for scene in part.scenes], options.changes)
    jobs: dict[tuple[int, str, str], StudyJob] = {}
    for number, part in enumerate(parts):
        for job in plan_part(number, part, options):
            jobs.setdefault((number, job.arm, job.name), job)
    return list(jobs.values())


def check_scenes(study: str, scenes: Sequence[Scene], changes: Mapping[str, Any]) -> None:
    """Refuse to set what the scenes of a study differ in: they would all become the same."""
    for key in changes:
        found = [(scene.preset, str(scene.changes.get(key, "as in the preset"))) for scene in scenes]
        values = list(dict.fromkeys(value for _, value in found))
        if len(values) > 1:
            by_data = len(set(found)) == len({preset for preset, _ in found})
            alone = ", choose one data set with --data" if by_data else ""
            raise SettingsError(
                f"--set {key}={changes[key]} cannot be used with study {study}: its scenes differ in {key} "
                f"({', '.join(values)}); leave it out{alone}, or run that value alone with `chase run`"
            )


def plan_part(number: int, part: StudyPart, options: Options) -> list[StudyJob]:
    """The jobs of one part."""
    return [
        make_job(number, scene, arm.label, arm.changes, seed, options)
        for scene in part.scenes
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for arm in part.arms
        if not options.arms or arm.label in options.arms
    ]


def make_job(
    number: int, scene: Scene, arm: str, arm_changes: Mapping[str, Any], seed: int, options: Options
) -> StudyJob:
    """One job: the preset, the scene, the user's wishes and the arm, each on top of the one before."""
    given: dict[str, Any] = {"engine": "inprocess", "seed": seed}
    rounds = rounds_of(scene, options)
    if rounds:
        given["rounds"] = rounds
    if options.scale != 1.0:
        given |= {"data_share": options.scale, "test_limit": max(LEAST_TESTED, round(options.scale * TESTED))}
    changes = {**scene.changes, **given, **options.changes}
    settings = settings_room.load(scene.preset, {**changes, **arm_changes})
    base = digest(settings_room.from_mapping({**settings_room.values_of(scene.preset), **changes}))
    preset = scene.preset if scene.preset in settings_room.presets() else str(Path(scene.preset).resolve())
    decisive = {key: value for key, value in options.changes.items() if key not in NO_EFFECT - ENDS}
    label = replace(scene, changes={**scene.changes, **decisive}).label
    if scene.name:
        label = ", ".join([label, *(said(key, value) for key, value in decisive.items())])
    if options.scale != 1.0:
        label += f", {100 * options.scale:g} % of the data"
    return StudyJob(job_name(scene.preset, arm, settings), number, label, arm, settings, preset, base)


def rounds_of(scene: Scene, options: Options) -> int:
    """Rounds of a scene's jobs (0 = the preset's); in cycles those wanted for the shortest grow with the length."""
    wanted = options.rounds or scene.rounds
    if not scene.in_cycles:
        return wanted
    planned = {**settings_room.values_of(scene.preset), **scene.changes}
    usual = Settings.model_fields["cycle_rounds"].default
    given = (values.get("cycle_rounds", usual) for values in (planned, {**planned, **options.changes}))
    own, length = (value if isinstance(value, int) and value > 0 else usual for value in given)  # refused with the rest
    return -(-wanted * length // (SHORTEST_CYCLE if options.rounds else own))


def rounds_for_a_request(study: Study, job: StudyJob) -> int:
    """The ``--rounds`` that let a job in cycles make a request and train with what it brought: two cycles."""
    follow = any(scene.in_cycles for scene in study.parts[job.part].scenes)
    return 2 * (SHORTEST_CYCLE if follow else job.settings.cycle_rounds)


def digest(settings: Settings) -> str:
    """A name for the results that settings lead to; settings left at their default do not count, nor the seed."""
    values = settings.model_dump(exclude_defaults=True)
    decisive = {key: values[key] for key in sorted(values) if key not in NO_EFFECT - ENDS | {"seed"}}
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:8]


def job_name(preset: str, arm: str, settings: Settings) -> str:
    """A directory name that a person can read and that differs where results may."""
    words = [Path(preset).stem, settings.strategy.replace(":", "."), digest(settings), f"seed{settings.seed}"]
    return "-".join(re.sub(r"[^A-Za-z0-9.+]+", "-", word).strip("-") for word in words)


@dataclass(frozen=True)
class StudyPlan:
    """The jobs of one study in a directory."""

    study: str
    path: Path
    jobs: Sequence[StudyJob]
    kernels: Kernels | None = None
    """What computes all jobs of the directory, once it has a plan."""
    own_forms: int = OWN_FORMS
    """Which version of the forms of own networks counts for all of them."""

    @property
    def directory(self) -> Path:
        """Where the jobs' directories are."""
        return self.path.parent


def plan_file(directory: Path, study: str) -> Path:
    """Where a directory remembers a study."""
    return directory / f"{study}{SUFFIX}"


def write_plan(directory: Path, study: str, jobs: Sequence[StudyJob]) -> StudyPlan:
    """Remember jobs, beside those that the directory knows already for this study.

    Jobs that would stand in a scene of other settings, because a file was edited or another has its name, are refused.
    """
    path = plan_file(directory, study)
    known = {place_of(job): job for job in (read_plan(path).jobs if path.is_file() else ())}
    bases = {job.scene: job.base for job in known.values() if job.base}
    for job in jobs:
        if bases.get(job.scene, job.base) != job.base:
            raise RunDirectoryError(
                f"{directory} holds '{job.scene}' with other settings: a file was edited, or two have one name; "
                "results of both would be mixed, so choose another directory with --out"
            )
    known |= {place_of(job): replace(job, ends=ends_within(directory, job.name, job.settings.rounds)) for job in jobs}
    kernels, own_forms = kernels_in(directory), own_forms_in(directory)
    computing = {"kernels": kernels, "own_forms": own_forms}
    body = {"format": FORMAT, "study": study, **computing, "jobs": [_to_json(job) for job in known.values()]}
    write_atomically(path, json.dumps(body, indent=1).encode())
    return StudyPlan(study, path, list(known.values()), kernels, own_forms)


def ends_within(directory: Path, name: str, wanted: int) -> tuple[int, ...]:
    """Where the studies of a directory that want fewer rounds of the same run end."""
    same = [other for beside in plans_in(directory) for other in beside.jobs if other.name == name]
    rounds = {end for other in same for end in (other.settings.rounds, *other.ends)}
    return tuple(sorted(end for end in rounds if end < wanted))


def kernels_in(directory: Path) -> Kernels:
    """What computes the networks of all studies of a directory, which share their runs: as the first began, if any."""
    return next((beside.kernels for beside in plans_in(directory) if beside.kernels), chosen("auto"))


def own_forms_in(directory: Path) -> int:
    """Which version of the forms of own networks counts for all studies of a directory: as the first began, if any."""
    return next((beside.own_forms for beside in plans_in(directory)), OWN_FORMS)


def place_of(job: StudyJob) -> tuple[int, str, str, int]:
    """What a job stands for in its study."""
    return job.part, job.scene, job.arm, job.settings.seed


def _to_json(job: StudyJob) -> dict[str, Any]:
    plain = {"name": job.name, "part": job.part, "scene": job.scene, "arm": job.arm}
    plain |= {"preset": job.preset, "base": job.base} | ({"ends": list(job.ends)} if job.ends else {})
    return plain | {"settings": job.settings.model_dump(exclude_defaults=True)}


def read_plan(path: Path) -> StudyPlan:
    """The study that a file remembers."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["format"] != FORMAT:
            raise RunDirectoryError(f"{path} has format {body['format']}, this version reads {FORMAT}")
        jobs = [_from_json(entry, path.parent) for entry in body["jobs"]]
        kernels = body.get("kernels", "fused")  # earlier plans do not say
        return StudyPlan(str(body["study"]), path, jobs, kernels, own_forms_before(body.get("own_forms")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from None


def _from_json(entry: Mapping[str, Any], directory: Path) -> StudyJob:
    settings = settings_room.from_mapping(entry["settings"]).resolved()
    name, scene, arm = (str(entry[key]) for key in ("name", "scene", "arm"))
    preset, base = (str(entry.get(key, "")) for key in ("preset", "base"))
    if (directory / preset).is_file():  # an exported plan has its files beside it
        preset = str(directory / preset)
    ends = tuple(int(end) for end in entry.get("ends", ()))
    return StudyJob(name, int(entry["part"]), scene, arm, settings, preset, base, ends)


def plans_in(directory: Path) -> list[StudyPlan]:
    """All studies of a directory."""
    return [read_plan(path) for path in sorted(directory.glob(f"*{SUFFIX}"))]
