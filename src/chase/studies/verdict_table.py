"""The verdicts of ``why.md`` in detail: every comparison with its p, alone and corrected."""

from __future__ import annotations

from collections.abc import Sequence

from chase.report.cells import Cell, number, p_value, with_interval
from chase.report.statistics import LEVEL
from chase.report.tables import ReportTable
from chase.studies.hypotheses import HYPOTHESES
from chase.studies.hypothesis_tests import Finding, corrected_together
from chase.studies.overview import name_of_data


def verdicts(found: Sequence[Finding]) -> ReportTable:
    """A row per hypothesis, data set and length of runs."""
    rows: list[list[Cell]] = [
        [
            f.hypothesis.key,
            f.hypothesis.text,
            name_of_data(f.data),
            number(f.rounds or None, 0),
            f.seeds,
            with_interval(f.difference.interval, 1, signed=True),
            p_value(f.p_alone),
            p_value(f.difference.p),
            p_value(together),
            f.verdict,
        ]
        for f, together in zip(found, corrected_together(found), strict=True)
    ]
    columns = ("", "hypothesis", "data", "round", "seeds", "difference, points", "p alone", "p (Holm)", "p, all rows")
    return ReportTable((*columns, "verdict"), rows, text_columns=3, words=frozenset({9}))


def if_all_were_one_family(found: Sequence[Finding]) -> str:
    """What would still be decided by one correction over the whole page; nothing where nothing was tested."""
    together = corrected_together(found)
    tested = sum(p is not None for p in together)
    kept: dict[str, list[str]] = {}
    for f, p in zip(found, together, strict=True):
        if p is not None and p < LEVEL:
            rounds = kept.setdefault(f"{f.hypothesis.key} on {name_of_data(f.data)}", [])
            rounds += [str(f.rounds)] if f.several else []
    named = [place + (f" (round {' and '.join(rounds)})" if rounds else "") for place, rounds in kept.items()]
    return ONE_FAMILY.format(tested=tested, kept=", ".join(named) or "none") if tested else ""


ONE_FAMILY = """
That questions are tested apart was decided when H1 was known, and because one correction over all comparisons would
have left it open. Corrected over all {tested} tested rows at once, these stay decided: {kept}. All other verdicts
hold only where the comparisons of their own question are corrected together.
"""


VERDICTS_NOTE = (
    """The questions, each tested by itself on each data set and at each length of runs: """
    + "; ".join(
        f"{question[0].lower()}{question[1:]} ({', '.join(h.key for h in HYPOTHESES if h.question == question)})"
        for question in dict.fromkeys(h.question for h in HYPOTHESES)
    )
    + """. They were fixed when digits (H6, H7) and MNIST were known, MNIST with six seeds for weights by labels and
three for equal weights, and nothing of CIFAR-10 with this version; H22 to H28
came later."""
)
LENGTHS_NOTE = """ Where a hypothesis stands at several rounds it has as many chances of a false finding, and runs that
were continued are the same runs: what is found at both rounds is not found twice independently. A hypothesis that has
no row of some length was not run for it, or with fewer than three seeds. The rule that every
length is tested by itself was made when five runs of 200 rounds were there, before they were compared."""
