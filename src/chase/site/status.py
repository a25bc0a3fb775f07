"""How a site stands: counts only, for the people at the site."""

from __future__ import annotations

from typing import Any

from chase.home.store import ClientStore
from chase.site.place import Site


def status(site: Site) -> dict[str, Any]:
    """Pools, questions and the last turn."""
    state = ClientStore(site.home, site.start()).load()
    held = site.held_out()
    with site.home.database.reading() as db:
        row = db.execute("SELECT run, round FROM turns ORDER BY version DESC LIMIT 1").fetchone()
    return {
        "site": site.card.name,
        "classes": list(site.classes),
        "annotator": site.card.annotator,
        "samples": int(state.ids.size),
        "pools": state.pools.sizes(),
        "labels_given": state.labels_spent,
        "open_questions": site.home.ledger.open_count(),
        "held_out": 0 if held is None else int(held.ids.size),
        "turns": state.turn,
        "last_round": None if row is None else int(row["round"]),
        "run": None if row is None else str(row["run"]),
        "key": (site.path / "node.key").is_file(),
    }
