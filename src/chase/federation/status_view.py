"""The state of a federation, from its files alone: for one terminal view, and as JSON."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chase.federation.diary import events, state
from chase.federation.ops.launch import server_lives
from chase.federation.ops.supervisor import running
from chase.federation.rules import FederationDirectory
from chase.run.record import Record

LAST = 6
COLOURS = {"answered": "green", "ready": "cyan", "training": "yellow", "refused": "red", "away": "dim"}


def snapshot(federation: FederationDirectory) -> dict[str, Any]:
    """Phase, round, sites, processes, the last rounds and the last events."""
    record = Record.open(federation.run)
    stands, metrics = state(federation.run), record.metrics
    sites = {m.name: str(stands.get("sites", {}).get(m.name, "not seen")) for m in federation.roster.members}
    sites |= {name: str(word) for name, word in stands.get("sites", {}).items() if name not in sites}
    before = str(stands.get("phase", "not begun"))
    phase = phase_now(federation.run, before)
    if phase != before:  # nobody looks at the sites now
        sites = {name: word if word == "not seen" else f"not known (was: {word})" for name, word in sites.items()}
    return {
        "phase": phase,
        "why": stands.get("why", ""),
        "round": len(metrics),
        "rounds": record.settings.rounds,
        "secure": federation.secure,
        "sites": sites,
        "lateness": lateness(metrics),
        "clipped": rounds_of(metrics, "clipped"),
        "refused": rounds_of(metrics, "refused"),
        "dp_epsilon": metrics[-1].get("dp_epsilon") if metrics else None,
        "processes": running(federation.path / "processes.json"),
        "metrics": [
            {k: m.get(k) for k in ("round", "test_accuracy", "labels", "took_part", "seconds")} for m in metrics
        ],
        "events": events(federation.run)[-LAST:],
    }


def phase_now(run: Path, told: str) -> str:
    """The phase that the server told last, or that nobody runs the rounds now."""
    under_way = told in ("gathering", "round", "saved")
    return f"stopped (was: {told})" if under_way and not server_lives(run) else told


def lateness(metrics: list[dict[str, Any]]) -> dict[str, tuple[float | None, int]]:
    """By site: seconds of its last answer, and in how many rounds it was late or missing."""
    found: dict[str, tuple[float | None, int]] = {}
    for line in metrics:
        sites = line.get("sites", {})
        late = {*sites.get("late", ()), *sites.get("missing", ()), *sites.get("busy", ())}
        for name in {*sites.get("seconds", {}), *late}:
            before = found.get(name, (None, 0))
            found[name] = sites.get("seconds", {}).get(name, before[0]), before[1] + (name in late)
    return found


def rounds_of(metrics: list[dict[str, Any]], what: str) -> dict[str, int]:
    """By site: in how many rounds its answer was clipped, or refused."""
    return dict(Counter(name for line in metrics for name in line.get("sites", {}).get(what, ())))


def render(federation: FederationDirectory, links: dict[str, str]) -> RenderableType:
    """The view."""
    now = snapshot(federation)
    words = f"{federation.path.name}: {now['phase']}, {now['round']} of {now['rounds']} rounds done"
    parts: list[RenderableType] = [Text(words + (f" ({now['why']})" if now["why"] else ""), style="bold")]
    if not now["secure"]:
        parts.append(Text("INSECURE: no encryption, no authentication", style="bold red"))
    if now["dp_epsilon"] is not None:
        parts.append(Text(f"differential privacy: epsilon {now['dp_epsilon']:.2f} spent"))
    sites = Table(box=None, padding=(0, 2), title="sites", title_justify="left")
    for column in ("site", "node", "now", "last answer", "rounds late", "clipped", "refused"):
        sites.add_column(column)
    for name, word in now["sites"].items():
        alive = now["processes"].get(name)
        node = "-" if alive is None else "up" if alive else "down"
        took, late = now["lateness"].get(name, (None, 0))
        seconds = "-" if took is None else f"{took:.1f} s"
        bad = (str(now[what].get(name, 0)) for what in ("clipped", "refused"))
        sites.add_row(name, node, Text(word, style=COLOURS.get(word, "")), seconds, str(late), *bad)
    parts += [sites, _rounds(now["metrics"])]
    if not now["sites"]:
        parts.append(Text("no site yet: admit each with `chase federation admit`"))
    parts += [Text(told(e), style="dim") for e in now["events"]]
    parts += [Text(f"label for {name}: {url}") for name, url in links.items()]
    return Group(*parts)


def told(event: dict[str, Any]) -> str:
    """An event in a line, with the round that it belongs to."""
    words = " ".join(str(event[part]) for part in ("site", "what", "why") if event[part])
    return f"round {event['round']}: {words}" if event["round"] else words


def _rounds(metrics: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2), title="rounds", title_justify="left")
    for column in ("round", "accuracy", "labels", "took part", "seconds"):
        table.add_column(column, justify="right")
    for m in metrics[-LAST:]:
        accuracy = m["test_accuracy"]
        shown = "-" if accuracy is None else f"{accuracy:.1%}"
        table.add_row(str(m["round"]), shown, str(m["labels"]), str(m["took_part"]), f"{m['seconds']:.1f}")
    return table


def page_log(home: Path) -> Path:
    """Where the labelling page of a site writes its links."""
    return home / "logs" / "page.log"


def links_in(log: Path) -> dict[str, str]:
    """The links that a labelling page has printed."""
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(": ") for line in lines)
    return {who: url for who, _, url in pairs if url.startswith(("http://", "https://"))}
