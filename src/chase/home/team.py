"""What the lead sees of everybody, and gold questions."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from chase.annotation.opinions import COLLEAGUE, listed
from chase.core.errors import LabelError
from chase.home.again import nobody_left
from chase.home.annotator_agreement import agreement
from chase.home.claims import OPEN, PREDICTED
from chase.home.home import INITIAL, Home
from chase.home.people import Person
from chase.home.policy import form
from chase.home.verdicts import IN_FORCE

GOLD = """
SELECT p.name, COUNT(*) AS asked, SUM(a.label IS g.label) AS right FROM answers a
JOIN questions q ON q.id = a.question AND q.gold_for = a.annotator
JOIN gold g ON g.sample = a.sample JOIN annotators p ON p.id = a.annotator
WHERE a.retracted_at IS NULL AND NOT EXISTS (
  SELECT 1 FROM answers b WHERE b.question = a.question AND b.id > a.id AND b.retracted_at IS NULL)
GROUP BY p.name
"""
WARN_FROM = 5
"""Gold answers from which a score is worth a warning."""


def set_gold(home: Home, labels: Mapping[int, int], by: str = "") -> int:
    """Samples whose class is known for certain; they are mixed in to see how well people do. Returns how many.

    The audit log gets a line with what changed: by sample, the class before (none for a new one) and now.
    """
    classes = len(home.card.classes)
    for sample, label in labels.items():
        if home.inbox.sample_name(sample) is None:
            raise LabelError(f"sample {sample} is not one of this client's")
        if not 0 <= label < classes:
            raise LabelError(f"class {label} for sample {sample}: classes are 0 to {classes - 1}")
    with home.database.transaction() as db:
        before = {row["sample"]: row["label"] for row in db.execute("SELECT sample, label FROM gold")}
        changed = {str(s): [before.get(s), label] for s, label in labels.items() if before.get(s) != label}
        db.executemany("INSERT OR REPLACE INTO gold VALUES (?, ?)", labels.items())
        home.audit.note(by, "gold", samples=len(labels), changed=changed)
        return int(db.execute("SELECT COUNT(*) FROM gold").fetchone()[0])


def initial_labels(home: Home) -> dict[int, int]:
    """The labels that were known from the start."""
    return {
        line["sample"]: line["label"]
        for line in home.ledger.labels()
        if line["source"] == INITIAL and line["label"] is not None
    }


def gold_scores(home: Home) -> dict[str, tuple[int, int]]:
    """For each person: gold questions answered, and how many of them right."""
    with home.database.reading() as db:
        return {row["name"]: (row["asked"], row["right"]) for row in db.execute(GOLD)}


def gold_warning(home: Home, name: str) -> str:
    """A sentence for somebody whose gold score is below the policy's, else nothing."""
    least = home.policies.read().gold_warning
    asked, right = gold_scores(home).get(name, (0, 0))
    if asked < WARN_FROM or right / asked >= least:
        return ""
    return (
        f"{right} of {asked} of your answers that were checked are right, fewer than {least:.0%}: "
        "please read the guidelines again, or talk to the lead."
    )


def _people(home: Home) -> list[dict[str, Any]]:
    day = time.time() - time.time() % 86400
    with home.database.reading() as db:
        rows = db.execute(
            "SELECT p.id, p.name, p.role, COUNT(a.id) AS answers, COALESCE(SUM(a.answered_at >= ?), 0) AS today,"
            " AVG(a.seconds) AS seconds, COALESCE(SUM(a.unsure), 0) AS unsure FROM annotators p"
            " LEFT JOIN answers a ON a.annotator = p.id AND a.retracted_at IS NULL AND a.source <> ? AND a.reason <> ?"
            " WHERE p.name <> ? GROUP BY p.id ORDER BY p.name",
            (day, INITIAL, COLLEAGUE, INITIAL),
        ).fetchall()
        same = db.execute(
            f"SELECT o.name, AVG(o.label IS v.label) AS same FROM ({IN_FORCE}) o"
            " JOIN verdicts v ON v.id = (SELECT MAX(id) FROM verdicts WHERE sample = o.sample AND retracted_at IS NULL)"
            " WHERE v.rule <> 'single' AND NOT o.decides GROUP BY o.name"
        ).fetchall()
    agreed = {row["name"]: row["same"] for row in same}
    golds, goal, can_come = gold_scores(home), home.policies.read().goal, home.people.present()
    found = []
    for row in rows:
        asked, right = golds.get(row["name"], (0, 0))
        more = {"agreement": agreed.get(row["name"]), "gold_asked": asked, "gold": right / asked if asked else None}
        found.append(dict(row) | more | {"goal": goal, "access": row["id"] in can_come})
    return found


def _wait(count: int, what: str) -> str:
    return f"1 {what} waits" if count == 1 else f"{count} {what}s wait"


def warnings(home: Home) -> list[str]:
    """What waits for people who are not there, and checks that cannot be made, a sentence each with what to do."""
    where, can_come = shlex.quote(str(home.path)), home.people.present()
    everybody = [one for one in home.people.everybody() if one.name != INITIAL]
    with home.database.reading() as db:
        asked = {
            row["sample"]
            for row in db.execute(f"SELECT sample FROM questions WHERE {OPEN} AND gold_for IS NULL AND votes < wanted")
        }
    found = [*_no_adjudicator(home, where, everybody, can_come)]
    alone = nobody_left(home, asked) if everybody else set()
    if alone:
        found.append(
            f"{_wait(len(alone), 'question')} for an answer, but nobody who has access is left to give it:"
            f" make a link for one more person (`chase label link {where} -a NAME`)."
        )
    return found + _no_gold(home, where, [one for one in everybody if one.id in can_come])


def _no_adjudicator(home: Home, where: str, everybody: Sequence[Person], can_come: Collection[int]) -> Iterator[str]:
    with home.database.reading() as db:
        conflicts = int(db.execute("SELECT COUNT(*) FROM reviews WHERE why = 'conflict'").fetchone()[0])
    roles = {one.role for one in everybody if one.id in can_come}
    if not conflicts or "adjudicator" in roles:
        return
    away = [one.name for one in everybody if one.role == "adjudicator"]
    lead = "a lead can decide under Conflicts, or " if "lead" in roles else ""
    if away:
        why = f"no adjudicator ({listed(away)}) has access"
        what = f"`chase label link {where} -a {shlex.quote(away[0])}` makes a link"
    else:
        why, name = "there is no adjudicator", f"`chase label role {where} adjudicator -a NAME` names one"
        what = f"{name}, `chase label link {where} -a NAME` makes a link"
    yield f"{_wait(conflicts, 'sample')} for a decision, but {why}: {lead}{what}."


def _no_gold(home: Home, where: str, people: Sequence[Person]) -> list[str]:
    """Whether gold questions are wanted but would be recognised, so that none is asked."""
    policy = home.policies.read()
    if not policy.gold_share or not any(policy.reveal_to(one.reveal) == "before" for one in people):
        return []
    with home.database.reading() as db:
        gold, usable = db.execute(f"SELECT COUNT(*), COALESCE(SUM({PREDICTED}), 0) FROM gold g").fetchone()
    if not gold or usable:
        return []
    return [
        "no gold question is asked of people who see the model's prediction before they answer, since no gold sample"
        " has one: add samples that were asked before (`chase label gold "
        f"{where} FILE`), or show predictions later (`chase label policy {where} reveal=after`)."
    ]


def overview(home: Home, annotator: int) -> dict[str, Any]:
    """All that the lead's view shows."""
    policy = home.policies.read()
    with home.database.reading() as db:
        why = {row["why"]: row["n"] for row in db.execute("SELECT why, COUNT(*) AS n FROM reviews GROUP BY why")}
        waiting = db.execute(
            "SELECT COUNT(*) FROM questions WHERE state IN ('waiting', 'shown') AND gold_for IS NULL"
            " AND votes > 0 AND votes < wanted"
        ).fetchone()[0]
    return {
        "progress": home.ledger.progress(annotator),
        "conflicts": why.get("conflict", 0),
        "unsure": why.get("not sure", 0) + why.get("colleague", 0),
        "waiting": waiting,
        "warnings": warnings(home),
        "people": _people(home),
        "gold_warning": policy.gold_warning,
        "agreement": agreement(home.ledger.votes(), home.card.classes).to_json(),
        "policy": {field["name"]: getattr(policy, field["name"]) for field in form()},
        "fields": form(),
    }
