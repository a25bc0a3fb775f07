"""What `chase federation run` and `up` print of a run: who is there, its rounds, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chase.core.errors import FederationError
from chase.core.text import quoted

if TYPE_CHECKING:
    from chase.federation.rules import FederationDirectory


def say_rounds(federation: FederationDirectory, shown: int) -> int:
    """Print the rounds that are new."""
    from chase.run.record import Record

    metrics = Record.open(federation.run).metrics
    for m in metrics[shown:]:
        accuracy = "-" if m["test_accuracy"] is None else f"{m['test_accuracy']:.1%}"
        print(f"round {m['round']}: accuracy {accuracy}, {m['labels']} labels, {m['took_part']} sites", flush=True)
    return len(metrics)


def say_gathering(federation: FederationDirectory, said: str) -> str:
    """Print who is there while sites are waited for, when that has changed."""
    from chase.federation.diary import state

    stands = state(federation.run)
    if stands.get("phase") != "gathering":
        return said
    sites, wanted = dict(stands.get("sites", {})), len(federation.roster.active)
    here = sorted(name for name, how in sites.items() if how == "ready")
    text = f"waiting for sites: {len(here)} of {wanted} here" + (f" ({', '.join(here)})" if here else "")
    refused = [name for name, how in sites.items() if how == "refused"]
    text += "".join(f"; {name} is refused" for name in refused)
    text += f" (`chase federation health {quoted(federation.path)}` says why)" if refused else ""
    text += "" if wanted else "; admit sites with `chase federation admit`"
    if text != said:
        print(text, flush=True)
    return text


def close(federation: FederationDirectory) -> None:
    """Say how a run ended; a failure is an error."""
    from chase.federation.diary import state

    stands = state(federation.run)
    if stands.get("phase") == "failed":
        raise FederationError(str(stands.get("why", "the run failed")))
    print(f"finished: {stands.get('why', '')}. Run directory: {federation.run}")
