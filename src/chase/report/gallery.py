"""The samples that each method asked for, as a person saw them: simulation only, for it reads the data set."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from chase.core.errors import ChaseError
from chase.data.resident import DataSet
from chase.data.texts import LETTERS
from chase.home.views import plain_text, png
from chase.report.runs import MethodRuns, RunData, Values
from chase.report.sections import Section
from chase.settings import Settings, from_mapping
from chase.simulation.world import load_data

SHOWN = 16
"""Samples of the first and of the last round that asked."""


def gallery_section(methods: Sequence[MethodRuns]) -> Section | None:
    """What each method asked for first and last, with EV; left out with a word where the data cannot be read."""
    asked = [(method, method.first) for method in methods if method.first.selections]
    if not asked:
        return None
    try:
        chosen = from_mapping({k: v for k, v in asked[0][1].settings.items() if k in Settings.model_fields})
        if any(run.settings.get("data") != chosen.data for _, run in asked):
            return None
        data = load_data(chosen)
    except ChaseError as error:
        return Section(
            "gallery", "What was asked", f'<p class="note">No samples can be shown: {escape(str(error))}</p>'
        )
    body = "".join(method_gallery(method.label, run, data) for method, run in asked)
    note = "The run of the lowest seed; highest EV first. Below each: its EV where it was tracked, and its label."
    return Section("gallery", "What was asked", f'<p class="note">{note}</p>{body}')


def method_gallery(label: str, run: RunData, data: DataSet) -> str:
    """The first and the last round that asked."""
    rounds = sorted({int(line["round"]) for line in run.selections})
    picked = dict.fromkeys((rounds[0], rounds[-1]))
    strips = "".join(strip(round, run, data) for round in picked)
    return f"<h3>{escape(label)}</h3>{strips}"


def strip(round: int, run: RunData, data: DataSet) -> str:
    """Some samples of one round."""
    lines = [line for line in run.selections if int(line["round"]) == round]
    lines.sort(key=lambda line: -1 if line.get("ev") is None else int(line["ev"]), reverse=True)
    tracked = any(line.get("mean_ev") is not None for line in run.metrics)  # else an EV of 0 was never measured
    tiles = "".join(tile(line, data, tracked) for line in lines[:SHOWN])
    many = f", {SHOWN} of {len(lines)}" if len(lines) > SHOWN else ""
    return f'<p class="note">round {round}{many}</p><div class="gallery">{tiles}</div>'


def tile(line: Values, data: DataSet, tracked: bool) -> str:
    """One sample with its EV and label."""
    ev, label = line.get("ev"), line.get("label")
    said = [f"EV {ev}"] if tracked and ev is not None else []
    if label is not None and 0 <= int(label) < len(data.classes):
        said.append(data.classes[int(label)] if data.classes[int(label)].strip() else repr(data.classes[int(label)]))
    return f"<figure>{picture(int(line['sample']), data)}<figcaption>{escape(', '.join(said))}</figcaption></figure>"


def picture(sample: int, data: DataSet) -> str:
    """A sample as an image in the page, or as text."""
    inputs: Any = data.train.inputs[data.train.rows(np.array([sample]))[0]].numpy()
    if data.train.kind == "text":
        readable = data.train.vocabulary == len(LETTERS)
        return f"<q>{escape(plain_text(inputs, LETTERS))}</q>" if readable else f"<q>sample {sample}</q>"
    if inputs.shape[0] not in (1, 3):
        return f"<q>sample {sample}</q>"
    text = base64.b64encode(png(inputs)).decode()
    return f'<img alt="sample {sample}" src="data:image/png;base64,{text}">'
