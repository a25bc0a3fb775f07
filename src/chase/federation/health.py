"""Whether a federation, or a site, is in order: a sentence for each thing that is not, and numbers for a monitor."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from chase.federation.diary import events, state
from chase.federation.ops.certificates import AHEAD, days_left
from chase.federation.ops.launch import server_lives
from chase.federation.ops.supervisor import running
from chase.federation.rules import FederationDirectory
from chase.federation.transport import CONTACT
from chase.home.store import ClientStore
from chase.run.record import Record
from chase.site import approval
from chase.site.contents import damaged, damaged_count
from chase.site.place import Site

LEAST_SPACE = 1 << 30
"""Bytes that should be free on the disk."""
NEW_CA = "create a new federation and give its ca.crt to every site"
QUIET = 60.0
"""Seconds beyond the deadline after which a state that does not change is stale."""


def disk_problems(path: Path) -> list[str]:
    """A sentence where little space is left."""
    free = shutil.disk_usage(path).free
    return [f"only {free >> 20} MB are free on the disk of {path}"] if free < LEAST_SPACE else []


def _certificates(federation: FederationDirectory) -> list[str]:
    found = []
    for name in ("server.pem", "ca.crt") if federation.secure else ():
        left = days_left(federation.path / "keys" / name)
        if left < AHEAD:
            days = f"{abs(left)} day{'s' if abs(left) != 1 else ''}"
            ended = f"ended {days} ago" if left < 0 else f"ends in {days}" if left else "ends within a day"
            todo = f"run `chase federation renew {federation.path}`" if name == "server.pem" else NEW_CA
            found.append(f"the certificate {name} {ended}: {todo}")
    return found


def federation_problems(federation: FederationDirectory) -> list[str]:
    """What is wrong at the server; nothing if all is well."""
    found, now = _certificates(federation) + disk_problems(federation.path), state(federation.run)
    jobs, phase = running(federation.path / "processes.json"), str(now.get("phase", ""))
    if not jobs:
        found.append(f"nothing is served: run `chase federation serve {federation.path}`")
    found += [f"{name} is down" for name, alive in jobs.items() if not alive]
    if phase == "failed":
        found.append(f"the run has failed: {now.get('why', '')}")
    elif phase in UNDER_WAY and not server_lives(federation.run):
        found.append(
            f"the rounds are not being run, although the last recorded phase is '{phase}': run `chase federation run`"
        )
    elif phase in UNDER_WAY and stale_for(federation) > federation.rules.deadline + QUIET:
        found.append(f"nothing has changed for {stale_for(federation):.0f} s in phase '{phase}'")
    return found + (_sites(federation, now) if phase in UNDER_WAY else [])


def _sites(federation: FederationDirectory, now: dict[str, Any]) -> list[str]:
    """Sites that do not take part in the rounds that are under way, those that were removed apart."""
    reasons = {e["site"]: e["why"] for e in events(federation.run) if e["what"] == "refused"}
    roster = federation.roster
    removed = {m.name for m in roster.members if m.out}
    said: dict[str, str] = {name: word for name, word in now.get("sites", {}).items() if name not in removed}
    found = [f"{name} is not connected" for name, word in said.items() if word == "away"]
    if now["phase"] in ("round", "saved") or stale_for(federation) > QUIET:
        unseen = [m.name for m in roster.active if m.name not in said]
        found += [f"{name} has not connected since the server was started" for name in unseen]
    return found + [f"{name} is refused: {reasons.get(name, '')}" for name, word in said.items() if word == "refused"]


UNDER_WAY = ("submitted", "gathering", "round", "saved")


def stale_for(federation: FederationDirectory) -> float:
    """Seconds since the server last said the current state."""
    told = state(federation.run).get("time")
    return max(0.0, time.time() - float(told)) if isinstance(told, int | float) else 0.0


def site_problems(site: Site) -> list[str]:
    """What is wrong at a site; nothing if all is well."""
    found = disk_problems(site.path)
    jobs = running(site.path / "processes.json")
    if not jobs:
        found.append("it is not connected: run `chase site connect`")
    found += [f"the node {name} is down" for name, alive in jobs.items() if not alive]
    found += _contact(site.path) if any(jobs.values()) else _last_words(site.path / "logs" / "node.log")
    spoiled = damaged(site)
    if spoiled:
        names = [site.held_out_names().get(s) or site.home.inbox.sample_name(s) or str(s) for s in spoiled[:5]]
        found.append(f"{damaged_count(spoiled)} damaged ({', '.join(names)}): restore them from a backup")
    broken = len(ClientStore(site.home, site.start()).damaged())
    if broken:
        found.append(f"{broken} of the kept turns are damaged: run `chase site recover {site.path}`")
    waiting = approval.proposed(site.path)
    if waiting:
        found.append(f"the server proposes other settings ({'; '.join(waiting)}): `chase site accept {site.path}`")
    return found


def _contact(home: Path) -> list[str]:
    """A sentence where the server does not answer the site's node, and what the node said last."""
    words = _last_words(home / "logs" / "node.log")
    try:
        silent = max(0.0, time.time() - (home / CONTACT).stat().st_mtime)
    except OSError:
        return ["the server has not answered since the site was connected", *words]
    return [f"the server has not answered for {silent:.0f} s", *words] if silent > QUIET else words


def _last_words(log: Path) -> list[str]:
    """The last line of a node's log, where it is an error or a warning."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    words = [word for word in (" ERROR ", " WARNING ") if lines and word in lines[-1]]
    return [f"its node says: {lines[-1].partition(words[0])[2]}"] if words else []


def metrics_text(federation: FederationDirectory) -> str:
    """The state in Prometheus' text format."""
    record, now = Record.open(federation.run), state(federation.run)
    metrics = record.metrics
    last: dict[str, Any] = metrics[-1] if metrics else {}
    sites = last.get("sites", {})
    values: list[tuple[str, str, Any]] = [
        ("chase_up", "", int(server_lives(federation.run))),
        ("chase_rounds_done", "", len(metrics)),
        ("chase_rounds_planned", "", record.settings.rounds),
        ("chase_sites_on_list", "", len(federation.roster.active)),
        ("chase_sites_took_part", "", last.get("took_part", 0)),
        ("chase_labels", "", last.get("labels", 0)),
        ("chase_accuracy", "", last.get("test_accuracy")),
        ("chase_round_seconds", "", last.get("seconds")),
        ("chase_dp_epsilon_spent", "", last.get("dp_epsilon")),
        ("chase_state_age_seconds", "", round(stale_for(federation), 1)),
        ("chase_problems", "", len(federation_problems(federation))),
        ("chase_failed", "", int(now.get("phase") == "failed")),
    ]
    values += [("chase_site_seconds", f'{{site="{n}"}}', s) for n, s in sites.get("seconds", {}).items()]
    for what in ("late", "missing", "refused", "clipped"):
        count = sum(len(line.get("sites", {}).get(what, ())) for line in metrics)
        values.append((f"chase_{what}_total", "", count))
    if federation.secure:
        values.append(("chase_certificate_days_left", "", days_left(federation.path / "keys" / "server.pem")))
    values.append(("chase_events_total", "", len(events(federation.run))))
    lines, seen = list[str](), set[str]()
    for name, label, value in values:
        if value is not None:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [] if name in seen else [f"# TYPE {name} {kind}"]
            lines.append(f"{name}{label} {value}")
            seen.add(name)
    return "\n".join(lines) + "\n"
