"""``MODEL_CARD.md`` of an export: what the model is, what it learnt from, how well it does, and what is left to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chase.export.trained import Trained

TO_FILL = "*(to be filled in by those who release the model)*"


def model_card(trained: Trained) -> str:
    """The card as Markdown."""
    line = next((m for m in trained.metrics if m["round"] == trained.round), {})
    settings, coverage = trained.settings, _read(trained.path / "coverage.json")
    parts = [
        f"# Model card: {settings.get('net')} on {Path(str(settings.get('data'))).name}",
        _facts(trained, line),
        "## Intended use\n\n" + TO_FILL,
        "## Not intended for\n\n" + TO_FILL,
        "## Data\n\n" + _data(trained, coverage),
        "## How well it does\n\n" + _quality(trained, line),
        "## Limits and risks\n\n" + TO_FILL,
    ]
    return "\n\n".join(parts) + "\n"


def _facts(trained: Trained, line: Mapping[str, Any]) -> str:
    settings = trained.settings
    rows = {
        "classes": ", ".join(trained.card.classes),
        "input": f"{trained.card.kind} of shape {' x '.join(str(n) for n in trained.card.net.shape)}",
        "round": f"{trained.round} of {settings.get('rounds')}",
        "labels bought": line.get("labels", "unknown"),
        "strategy": settings.get("strategy"),
        "seed": settings.get("seed"),
        "settings digest": trained.settings_digest[:16],
    }
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _data(trained: Trained, coverage: Mapping[str, Any]) -> str:
    if not coverage:
        return "The data stayed at the sites."
    rows = ["| client | samples | initial labels |", "| --- | --- | --- |"]
    for name, held, labeled, unknown in zip(
        coverage["clients"], coverage["held"], coverage["labeled"], coverage["unknown"], strict=True
    ):
        rows.append(f"| {name} | {sum(held) + unknown} | {sum(labeled)} |")
    return "\n".join(rows)


def _quality(trained: Trained, line: Mapping[str, Any]) -> str:
    if line.get("test_accuracy") is None:
        return "Not evaluated after this round."
    said = [f"Accuracy on the test set: {line['test_accuracy']:.1%}."]
    by_class = line.get("per_class") or []
    if by_class:
        said += ["", "| class | accuracy |", "| --- | --- |"]
        said += [
            f"| {name} | {'none tested' if value is None else f'{value:.1%}'} |"
            for name, value in zip(trained.card.classes, by_class, strict=False)
        ]
    return "\n".join(said)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}
