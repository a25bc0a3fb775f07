"""The samples that each method asked for, as a person saw them: simulation only, for it reads the data set."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chase.core.errors import ChaseError
from chase.data.pictures import to_png
from chase.data.resident import DataSet
from chase.data.sources import SOURCES
from chase.data.texts import LETTERS
from chase.home.views import plain_text
from chase.report.markup import markup
from chase.report.runs import MethodRuns, RunData, Values
from chase.report.sections import Section
from chase.settings import Settings, from_mapping
from chase.simulation.world import load_data

SHOWN = 16
"""Samples of the first and of the last round that asked."""


def may_show(settings: Values) -> bool:
    """Whether samples may stand in a report: where the settings say so, else those of data sets known by name."""
    said = settings.get("gallery")
    return bool(said) if said is not None else settings.get("data") in SOURCES


def gallery_section(methods: Sequence[MethodRuns]) -> Section | None:
    """What each method asked for first and last, with EV; left out with a word where the data cannot be read."""
    asked = [(method, method.first) for method in methods if method.first.selections]
    if not asked:
        return None
    if not may_show(asked[0][1].settings):
        return None
    try:
        chosen = from_mapping({k: v for k, v in asked[0][1].settings.items() if k in Settings.model_fields})
        if any(run.settings.get("data") != chosen.data for _, run in asked):
            return None
        data = load_data(chosen)
    except ChaseError as error:
        return _section(f"No samples can be shown: {error}", [])
    shown = [method_gallery(method.label, run, data) for method, run in asked]
    note = (
        "The run of the lowest seed; highest EV first (epistemic variation: how often the predicted class changed "
        "between epochs). Below each: its EV where it was tracked, and its label."
    )
    return _section(note, shown)


def _section(note: str, methods: Sequence[object]) -> Section:
    return Section("gallery", "What was asked", markup("gallery", note=note, methods=methods))


@dataclass(frozen=True)
class Tile:
    """One sample as the page shows it: a picture or a text, with its EV and label."""

    sample: int
    said: str
    png: str = ""
    """The picture in base64; empty where the sample is shown as text."""
    text: str = ""


@dataclass(frozen=True)
class Strip:
    """Some samples of one round."""

    note: str
    tiles: list[Tile]


def method_gallery(label: str, run: RunData, data: DataSet) -> dict[str, object]:
    """The first and the last round that asked."""
    rounds = sorted({int(line["round"]) for line in run.selections})
    picked = dict.fromkeys((rounds[0], rounds[-1]))
    return {"label": label, "strips": [strip(round, run, data) for round in picked]}


def strip(round: int, run: RunData, data: DataSet) -> Strip:
    """Some samples of one round."""
    lines = [line for line in run.selections if int(line["round"]) == round]
    lines.sort(key=lambda line: -1 if line.get("ev") is None else int(line["ev"]), reverse=True)
    tracked = any(line.get("mean_ev") is not None for line in run.metrics)  # else an EV of 0 was never measured
    many = f", {SHOWN} of {len(lines)}" if len(lines) > SHOWN else ""
    return Strip(f"round {round}{many}", [tile(line, data, tracked) for line in lines[:SHOWN]])


def tile(line: Values, data: DataSet, tracked: bool) -> Tile:
    """One sample with its EV and label."""
    ev, label = line.get("ev"), line.get("label")
    said = [f"EV {ev}"] if tracked and ev is not None else []
    if label is not None and 0 <= int(label) < len(data.classes):
        said.append(data.classes[int(label)] if data.classes[int(label)].strip() else repr(data.classes[int(label)]))
    sample = int(line["sample"])
    return Tile(sample, ", ".join(said), **picture(sample, data))


def picture(sample: int, data: DataSet) -> dict[str, str]:
    """A sample as a picture in the page, or as text."""
    inputs: Any = data.train.inputs[data.train.rows(np.array([sample]))[0]].numpy()
    if data.train.kind == "text" and data.train.vocabulary == len(LETTERS):
        return {"text": plain_text(inputs, LETTERS)}
    if data.train.kind != "image" or inputs.shape[0] not in (1, 3):
        return {"text": f"sample {sample}"}
    return {"png": base64.b64encode(to_png(inputs)).decode()}
