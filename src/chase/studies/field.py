"""The methods of the field on the results page: their accuracies, and which of them beat random selection.

Read from study ``strong``. Each method is compared with random selection by the mean accuracy of the last five rounds,
paired by seed; from six seeds on a t-test decides, Holm-corrected over the methods of the study in one row, run or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from chase.report.cells import Cell
from chase.report.export import to_markdown
from chase.report.statistics import ABOVE, BELOW, HIGHER, LOWER, TEST_FROM, Difference, holm, paired, paired_p
from chase.report.tables import ReportTable
from chase.studies.hypotheses import EV, RANDOM
from chase.studies.hypothesis_tests import Group, groups_of, last_rounds
from chase.studies.overview import DATA, SHORTEST, conditions, name_of_data, scene_row, signed
from chase.studies.results import StudyResult
from chase.studies.strong import STUDY

ARMS = tuple(arm.label for part in STUDY.parts for arm in part.arms)
Row = tuple[str, str, int]
"""Data set, conditions, rounds."""

CAPTION = """Other published methods with the same budget of labels; each only chooses samples, and all train by
cross-entropy alone. KAFAL's score and LoGo are as the paper of CHASe ran them: KAFAL without its loss, LoGo on the
client's model of the round before. Accuracy in %, mean of the last five rounds over the seeds that all methods of a row
have:
"""


def rows_of(studies: Sequence[StudyResult]) -> dict[Row, list[Group]]:
    """What each row of the table has: arms with finished runs, the most of each, where others than EV have any."""
    found: dict[Row, dict[str, Group]] = {}
    for group in groups_of(studies, {STUDY.name}):
        if group.arm in ARMS and group.rounds >= SHORTEST:
            row = str(group.settings["data"]), conditions(group), group.rounds
            own = found.setdefault(row, {})
            if group.arm not in own or len(group.method.runs) > len(own[group.arm].method.runs):
                own[group.arm] = group
    order = [*DATA, *sorted({data for data, _, _ in found} - DATA.keys())]
    kept = {row: list(groups.values()) for row, groups in found.items() if groups.keys() - {RANDOM, EV}}
    return dict(sorted(kept.items(), key=lambda entry: (order.index(entry[0][0]), entry[0][2])))


def field_text(studies: Sequence[StudyResult]) -> list[str]:
    """The table and what it says; nothing where no such method has a finished run."""
    rows = rows_of(studies)
    return [CAPTION, to_markdown(field_table(rows)), field_sentences(rows)] if rows else []


def field_table(rows: dict[Row, list[Group]]) -> ReportTable:
    """A row for each data set and its conditions, a column for each method."""
    cells: list[list[Cell]] = [scene_row(*row, groups, ARMS) for row, groups in rows.items()]
    names = ("random" if arm == RANDOM else arm for arm in ARMS)
    return ReportTable(("data", "conditions", "round", "seeds", *names), cells, text_columns=2)


def against(base: str, groups: Sequence[Group], end: int) -> list[Difference]:
    """Every other method of a row minus ``base``; none where that has not run."""
    base_group = next((group for group in groups if group.arm == base), None)
    if base_group is None:
        return []
    of_run = partial(last_rounds, end=end)
    found = [Difference(g.arm, paired(g.method, base_group.method, of_run)) for g in groups if g.arm != base]
    tested = [place for place, d in enumerate(found) if d.values.size >= TEST_FROM]
    corrected = holm([paired_p(found[place].values) for place in tested], len(ARMS) - 1)
    for place, p in zip(tested, corrected, strict=True):
        found[place] = Difference(found[place].label, found[place].values, p)
    return found


@dataclass(frozen=True)
class Compared:
    """A method minus random selection in one row."""

    where: str
    difference: Difference

    @property
    def place(self) -> str:
        """``MNIST, weights by labels (6 seeds)``."""
        seeds = self.difference.values.size
        return f"{self.where} ({seeds} seed{'s' * (seeds != 1)})"

    @property
    def points(self) -> str:
        """``EV -6.6``."""
        return f"{self.difference.label} {signed(self.difference.interval.mean)}"


Kinds = dict[str, list[Compared]]


def compared_with(base: str, rows: dict[Row, list[Group]]) -> Kinds:
    """All other methods of all rows: those above and below one method, those that hint at it, and the others.

    EV and random selection stand beside each other once: under a preset's own conditions that is a hypothesis of
    ``why.md``, elsewhere it is told with the methods that are compared with random selection.
    """
    found: Kinds = {"above": [], "below": [], "early": [], "open": []}
    several = {row[:2] for row in rows if sum(row[:2] == other[:2] for other in rows) > 1}
    for row, groups in rows.items():
        where = f"{name_of_data(row[0])}, {row[1]}" + (f", round {row[2]}" if row[:2] in several else "")
        own = all(group.changed.keys() <= {"client_weights"} for group in groups)
        elsewhere = RANDOM if base == EV else EV if own else ""
        for difference in against(base, groups, row[2]):
            if difference.values.size and difference.label != elsewhere:
                kind = {HIGHER: "above", LOWER: "below", ABOVE: "early", BELOW: "early"}
                found[kind.get(difference.verdict, "open")].append(Compared(where, difference))
    return found


FIELD_NOTE = f"""Differences are in points, paired by the seeds that both methods have. From {TEST_FROM} seeds on a
t-test decides, its p corrected for all comparisons of a row with one method (Holm); with fewer nothing is tested. EV
minus random selection under the preset's conditions is a hypothesis and stands in [why.md](why.md) (H4).
"""
KINDS = {
    "above": "Better",
    "below": "Worse",
    "early": f"Provisional, fewer than {TEST_FROM} seeds",
    "open": "Not decided",
}


def field_sentences(rows: dict[Row, list[Group]]) -> str:
    """Which methods are better and worse than random selection and than EV, and where that is not decided."""
    against_random, against_ev = (list_of(compared_with(base, rows)) for base in (RANDOM, EV))
    parts = [f"**Minus random selection**\n\n{against_random}"] if against_random else []
    parts += [f"**Minus EV**\n\n{against_ev}"] if against_ev else []
    return "\n\n".join([*parts, FIELD_NOTE])


def list_of(kinds: Kinds) -> str:
    """A line for each verdict, by row; nothing where nothing was compared."""
    if not any(kinds.values()):
        return ""
    lines = []
    for kind, found in kinds.items():
        places = dict.fromkeys(one.place for one in found)
        named = [f"{place}: {', '.join(one.points for one in found if one.place == place)}" for place in places]
        if named or kind in ("above", "below"):
            lines.append(f"- **{KINDS[kind]}:** {'; '.join(named) or 'none is shown to be'}.")
    return "\n".join(lines)
