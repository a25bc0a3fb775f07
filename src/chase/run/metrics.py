"""What a line of ``metrics.jsonl`` says of a round, and when a run ends by it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from chase.core.messages import JUDGED_BY, ClientId, ClientUpdate
from chase.core.timing import Stopwatch
from chase.run.client_counts import ClientCounts
from chase.settings import Settings

Metrics = dict[str, Any]


BEST = "best.safetensors"
"""The model of the best round so far."""


ESTIMATE, ESTIMATED_ON = "estimated_accuracy", "estimated_on"
"""In a line of a run without a test set: the share of labels that a model predicts which has not seen them, and of how
many (``run.estimate``); None and 0 where there is no estimate."""


TRAIN_LOSS = "train_loss"
"""In a line of a run that trains a network, where clients tell it: see ``mean_loss``."""


EASY_SHARE, EASY_MOST = "easy_share", "easy_share_most"
"""In a line of a run whose clients align: of the samples that they watched, the share that counted as easy, over all
clients and at the client where it was largest."""


MAIN_KEYS = {"accuracy": "test_accuracy", "macro-f1": "macro_f1", "balanced-accuracy": "per_class", "auc": "auc"}
"""What a line of metrics has the values of ``main_metric`` under."""

MAIN_NAMES = {"accuracy": "accuracy", "balanced-accuracy": "balanced accuracy", "macro-f1": "macro-F1", "auc": "AUC"}
"""What the values of the setting ``main_metric`` are called in text."""


NOT_MEASURED = "not measured"
ESTIMATE_MEANS = (
    "Estimate: each label given so far against a model that has not seen it (leave-one-out). The labelled samples are "
    "those that a strategy chose, not a random draw, so it can be far from the accuracy on all samples. It is no "
    "measurement. To measure the accuracy, use `chase evaluate` with labelled samples of your own, or begin a run with "
    "test_data, or with test_answers: people then also label some samples that are drawn at random."
)


def main_value(metrics: Mapping[str, Any], main: str = "accuracy") -> float | None:
    """The value of a round by the metric that counts; None where it was not evaluated."""
    key = MAIN_KEYS[main]
    value = metrics.get(key)
    if value is None or main != "balanced-accuracy":
        return None if value is None else float(value)
    known = [share for share in value if share is not None]
    return sum(known) / len(known) if known else None


def best_round(past: Sequence[Mapping[str, Any]], main: str = "accuracy") -> int:
    """The round with the highest value, the first of several; the last round where none was evaluated."""
    best, at = None, int(past[-1]["round"]) if past else 0
    for line in past:
        value = main_value(line, main)
        if value is not None and (best is None or value > best):
            best, at = value, int(line["round"])
    return at


def stop_reason(settings: Settings, last: Sequence[Metrics]) -> str:
    """Why a run ends after these metrics, or nothing."""
    if not last:
        return ""
    metrics = last[-1]
    if settings.target and (main_value(metrics, settings.main_metric) or 0) >= settings.target:
        return f"target {MAIN_NAMES[settings.main_metric]} {settings.target:.1%} reached"
    if settings.total_budget and metrics["labels"] >= settings.total_budget:
        return f"total budget of {settings.total_budget} labels spent"
    return f"all {settings.rounds} rounds done" if metrics["round"] >= settings.rounds else ""


def round_metrics(round: int, updates: Sequence[ClientUpdate], counts: ClientCounts) -> Metrics:
    """The counts of a line. Clients that sat out keep their last counts."""
    counts.take(updates)

    def mean_over(what: str) -> float | None:
        count = sum(u.metrics.get(f"{what}_count", 0.0) for u in updates)
        return sum(u.metrics.get(f"{what}_sum", 0.0) for u in updates) / count if count else None

    took_part = max(1, len(updates))
    picks, ranked, by_chance = (
        int(sum(u.metrics.get(name, 0.0) for u in updates)) for name in ("picks", "ranked_picks", "chance_picks")
    )
    return {
        "round": round,
        "inferences": int(sum(u.metrics["inferences"] for u in updates)),
        "observed_inferences": int(sum(u.metrics.get("observed_inferences", 0) for u in updates)),
        "inferred_samples": sum(u.metrics["inferred_samples"] for u in updates) / took_part,
        "mean_ev": mean_over("ev"),
        "observed_ev": mean_over("observed_ev"),
        "picks": picks,
        "picks_by_chance": by_chance if ranked else None,
        "took_part": len(updates),
        **easy_shares(updates),
        **judged_by(updates),
        **mean_loss(updates),
        **counts.metrics(),
    }


def easy_shares(updates: Sequence[ClientUpdate]) -> Metrics:
    """How many of the watched samples counted as easy; nothing where no client aligned any."""
    split = [(u.metrics["easy_sum"], u.metrics["easy_count"]) for u in updates if u.metrics.get("easy_count")]
    if not split:
        return {}
    easy, count = (sum(column) for column in zip(*split, strict=True))
    return {EASY_SHARE: easy / count, EASY_MOST: max(some / of for some, of in split)}


def judged_by(updates: Sequence[ClientUpdate]) -> Metrics:
    """How many requests each model decided; nothing where no strategy chose between models."""
    counts: dict[str, int] = {}
    for name, value in (item for update in updates for item in update.metrics.items()):
        if name.startswith(JUDGED_BY):
            model = name.removeprefix(JUDGED_BY)
            counts[model] = counts.get(model, 0) + int(value)
    return {"judged_by": dict(sorted(counts.items()))} if counts else {}


def mean_loss(updates: Sequence[ClientUpdate]) -> Metrics:
    """The training loss of the last local epoch, mean over the labels of all clients; nothing where none is known."""
    known = [(u.num_labeled, u.metrics[TRAIN_LOSS]) for u in updates if TRAIN_LOSS in u.metrics and u.num_labeled]
    labels = sum(count for count, _ in known)
    return {TRAIN_LOSS: sum(count * loss for count, loss in known) / labels} if labels else {}


def leave_out(metrics: Metrics, refused: Mapping[ClientId, str], names: Mapping[ClientId, str]) -> list[str]:
    """Correct a line for clients whose part the server refused: by name in a federation, else as notes (returned)."""
    metrics["took_part"] -= len(refused)
    if "sites" in metrics:
        metrics["sites"]["refused"] |= {names.get(client, f"client {client}"): why for client, why in refused.items()}
        return []
    return [f"refused: {why}" for why in refused.values()]


def asked_classes(journal: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Labels that were asked for and answered in a round: how many of each class by client (in simulation only)."""
    counts: dict[str, dict[str, int]] = {}
    for line in journal:
        if line["label"] is not None and not line.get("again"):
            own = counts.setdefault(str(line["client"]), {})
            own[str(line["label"])] = own.get(str(line["label"]), 0) + 1
    return counts


def seconds(updates: Sequence[ClientUpdate], watch: Stopwatch, start: float) -> Metrics:
    """Wall-clock seconds of the round, and by phase: the clients' phases added up over all clients."""
    phases: dict[str, float] = {}
    for update in updates:
        for key, value in update.metrics.items():
            if key.startswith("seconds_"):
                phases[key.removeprefix("seconds_")] = phases.get(key.removeprefix("seconds_"), 0.0) + value
    phases |= {phase: watch.seconds[phase] for phase in ("clients", "aggregate", "evaluate")}
    return {"seconds": time.perf_counter() - start, "seconds_by_phase": phases}


def estimate_in_words(line: Mapping[str, Any]) -> str:
    """``81.2 % (leave-one-out, 120 labels)``; empty where there is no estimate."""
    value = line.get(ESTIMATE)
    return "" if value is None else f"{100 * value:.1f} % (leave-one-out, {line[ESTIMATED_ON]} labels)"


def accuracy_in_words(line: Mapping[str, Any], unknown: str = "-") -> str:
    """The accuracy after a round, in a few words; ``unknown`` where there is none, as in a round between two."""
    if line["test_accuracy"] is not None:
        return f"accuracy {100 * line['test_accuracy']:.1f} %"
    if ESTIMATE not in line:
        return f"accuracy {unknown}"
    estimate = estimate_in_words(line)
    return f"accuracy {NOT_MEASURED}" + (f", estimate {estimate}" if estimate else "")
