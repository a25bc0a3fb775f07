"""``MODEL_CARD.md`` of an export: what the model is, what it learnt from, how well it does, and what is left to say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chase.data.kinds import Column
from chase.export.trained import Trained
from chase.run.metrics import ESTIMATE_MEANS, estimate_in_words
from chase.server.quality import wilson

TO_FILL = "*(to be filled in by those who release the model)*"
CATEGORIES = 6
"""Columns of at most as many categories have them named."""


def model_card(trained: Trained) -> str:
    """The card as Markdown."""
    line = next((m for m in trained.metrics if m["round"] == trained.round), {})
    settings, coverage = trained.settings, _read(trained.path / "coverage.json")
    parts = [
        f"# Model card: {_model(trained)} on {Path(str(settings.get('data'))).name}",
        _facts(trained, line),
        "## Intended use\n\n" + TO_FILL,
        "## Not intended for\n\n" + TO_FILL,
        "## Data\n\n" + _data(trained, coverage, line),
        "## Performance\n\n" + _quality(trained, line),
        "## Limits and risks\n\n" + TO_FILL,
    ]
    return "\n\n".join(parts) + "\n"


def _model(trained: Trained) -> str:
    """What the model is: the closed-form learner, or a network by its name."""
    closed = trained.settings.get("learner") == "closed-form"
    return "closed-form learner" if closed else str(trained.settings.get("net"))


def _facts(trained: Trained, line: Mapping[str, Any]) -> str:
    settings = trained.settings
    rows = {
        "classes": ", ".join(trained.card.classes),
        "input": _input(trained),
        "round": f"{trained.round} of {settings.get('rounds')}",
        "labels bought": line.get("labels", "unknown"),
        "strategy": settings.get("strategy"),
        "seed": settings.get("seed"),
        "settings digest": trained.settings_digest[:16],
    }
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _input(trained: Trained) -> str:
    """What the model reads: the columns of a table by name, else the shape of a sample."""
    card = trained.card
    if card.columns:
        return f"rows of a table with the columns {', '.join(_column(column) for column in card.columns)}"
    return f"{card.kind} of shape {' x '.join(str(n) for n in card.net.shape)}"


def _column(column: Column) -> str:
    if column.kind == "numeric":
        return f"{column.name} (number)"
    few = len(column.values) <= CATEGORIES
    return f"{column.name} (one of {', '.join(column.values) if few else f'{len(column.values)} categories'})"


def _data(trained: Trained, coverage: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    if not coverage:
        return "The data stayed at the sites."
    rows = ["| site | samples | initial labels | accuracy on its classes |", "| --- | --- | --- | --- |"]
    for name, held, labeled, unknown in zip(
        coverage["clients"], coverage["held"], coverage["labeled"], coverage["unknown"], strict=True
    ):
        own = accuracy_on(held, line.get("per_class") or [])
        rows.append(f"| {name} | {sum(held) + unknown} | {sum(labeled)} | {_share(own)} |")
    note = "Accuracy on its classes: that on the common test set, each class weighted by how often the site has it."
    return "\n".join([*rows, "", note])


def accuracy_on(held: Sequence[int], by_class: Sequence[float | None]) -> float | None:
    """The accuracy by class, weighted by the samples of each class; None where no such class was tested."""
    known = [(count, value) for count, value in zip(held, by_class, strict=False) if value is not None and count]
    total = sum(count for count, _ in known)
    return sum(count * value for count, value in known) / total if total else None


def _share(value: float | None) -> str:
    return "not tested" if value is None else f"{value:.1%}"


def _quality(trained: Trained, line: Mapping[str, Any]) -> str:
    if line.get("test_accuracy") is None:
        if all(one.get("test_accuracy") is None for one in trained.metrics):
            return _not_measured(line)
        return "Not evaluated after this round."
    whole = _read(trained.path / "confusion.json")
    if whole.get("round") == trained.round and whole.get("quality"):
        return _full_quality(whole["quality"])
    by_class = line.get("per_class") or []
    tested = [sum(row) for row in whole.get("matrix") or []]  # every round is measured on the same samples
    if sum(tested) and len(tested) == len(by_class):
        return _quality_of_best(trained, line, tested)
    said = [f"Accuracy on the test set: {line['test_accuracy']:.1%}."]
    if by_class:
        said += ["", "| class | accuracy |", "| --- | --- |"]
        said += [
            f"| {name} | {'none tested' if value is None else f'{value:.1%}'} |"
            for name, value in zip(trained.card.classes, by_class, strict=False)
        ]
    return "\n".join(said)


def _not_measured(line: Mapping[str, Any]) -> str:
    """What is known of a model that was never tested."""
    estimate = estimate_in_words(line)
    said = ["Not measured: there was no test set."]
    return "\n\n".join([*said, f"Estimated accuracy: {estimate}.", ESTIMATE_MEANS] if estimate else said)


def _quality_of_best(trained: Trained, line: Mapping[str, Any], tested: Sequence[int]) -> str:
    """What is kept of a round before the last, with ``tested`` samples of each class."""
    total, accuracy, by_class = sum(tested), line["test_accuracy"], line["per_class"]
    low, high = wilson(round(accuracy * total), total)
    known = [value for value in by_class if value is not None]
    said = [
        f"- accuracy: {accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}, {total} test samples)",
        f"- always the most frequent class: {max(tested) / total:.1%}",
        f"- balanced accuracy: {sum(known) / len(known):.1%}",
    ]
    if line.get("calibration_error") is not None:
        said.append(f"- calibration error (ECE): {line['calibration_error']:.3f}")
    said += ["", "The round was chosen by these figures, so they are somewhat too good for new samples."]
    said += ["", "| class | sensitivity | test samples |", "| --- | --- | --- |"]
    rows = zip(trained.card.classes, by_class, tested, strict=True)
    return "\n".join([*said, *(f"| {name} | {_share(value)} | {count} |" for name, value, count in rows)])


def _full_quality(found: Mapping[str, Any]) -> str:
    """What was measured after the last round: as a whole, and by class."""
    low, high = found["accuracy_interval"]
    auc = "not measured" if found["auc"] is None else f"{found['auc']:.3f}"
    rows = {
        "accuracy": f"{found['accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}, {found['tested']} test samples)",
        "always the most frequent class": f"{found['majority_accuracy']:.1%}",
        "balanced accuracy": f"{found['balanced_accuracy']:.1%}",
        "AUC, mean over classes": auc,
        "calibration error (ECE)": f"{found['ece']:.3f}",
    }
    said = [f"- {name}: {value}" for name, value in rows.items()]
    said += ["", "| class | sensitivity | specificity | AUC | test samples |", "| --- | --- | --- | --- | --- |"]
    for row in found["classes"]:
        area = "not tested" if row["auc"] is None else f"{row['auc']:.3f}"
        cells = (row["class"], _share(row["sensitivity"]), _share(row["specificity"]), area, row["tested"])
        said.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(said)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}
