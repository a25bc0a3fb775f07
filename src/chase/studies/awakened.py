"""What happens to the accuracy when clients awaken what they had frozen: a table of ``why.md``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report.cells import NONE, Cell, number, with_interval
from chase.report.runs import RunData
from chase.report.statistics import interval
from chase.report.tables import ReportTable
from chase.run.metrics import EASY_MOST
from chase.studies.hypotheses import HYPOTHESES, WAKING
from chase.studies.hypothesis_tests import Group
from chase.studies.observations import SPAN, fewer_dormant, woken_changes
from chase.studies.overview import place_of

DATA = {data for hypothesis in HYPOTHESES if hypothesis.question == WAKING for data in hypothesis.data}
AWAKENED_NOTE = f"""A client that runs short of candidates awakens 40 % of its frozen samples at once. An awakening: a
round in which the frozen samples of all clients together become fewer. Change: accuracy of the global model in the
{SPAN} rounds from then on minus that of the {SPAN} rounds before. Only those awakenings are compared that have no other
in the {2 * SPAN - 1} rounds before them, so that no round is after one and before the next, and that have {SPAN} rounds
on both sides; the mean over these is that of a run. EV, CHASe and all-global freeze and awaken by the same rule; they
differ in the alignment alone."""
AWAKENED_FOUND = """ At {at}, with weights by labels, CHASe with the paper's split has lost accuracy then against EV and
against all-global. A likely reason: samples are frozen because their EV is 0, and keep it while they sleep, so that the
split counts them as easy when they awaken and pulls them to the client's own model of the round before; all-global
pulls the same samples to the global model. **This was found in these very runs**, like the pull."""
EASY_FOUND = """ In {runs} that recorded it, {woken:.0f} % of the watched samples counted as easy in rounds of an
awakening, and {usual:.0f} % in other rounds, at the client where that share was largest."""


def as_preset(groups: Sequence[Group]) -> list[Group]:
    """The groups on the data sets of the hypotheses that differ from the preset in the client weights at most."""
    return [g for g in groups if g.settings["data"] in DATA and g.changed.keys() <= {"client_weights"}]


def awakened_table(groups: Sequence[Group]) -> ReportTable:
    """A row for each arm that freezes."""
    rows: list[list[Cell]] = []
    for group in as_preset(groups):
        changes = [woken_changes(run) for run in group.method.runs]
        known = np.array([np.mean(some) for some in changes if some])
        if known.size:
            often = [float(np.mean([len(fewer_dormant(run)) for run in group.method.runs]))]
            often.append(float(np.mean([len(some) for some in changes])))
            change = with_interval(interval(known), 1, signed=True) if known.size > 1 else NONE
            rows.append([*place_of(group), number(group.rounds, 0), known.size, *(number(n, 1) for n in often), change])
    columns = ("data", "conditions", "arm", "round", "seeds", "awakenings per run", "of these compared")
    return ReportTable((*columns, "change of accuracy, points"), rows, text_columns=3)


def easy_then(groups: Sequence[Group]) -> str:
    """How much counted as easy in rounds of an awakening and in others; nothing where no run recorded it."""
    own = sorted((g for g in as_preset(groups) if g.arm == "CHASe"), key=lambda group: group.rounds)
    runs = {run.path.name: run for group in own for run in group.method.runs}  # each at its longest
    found = [easy_shares(run) for run in runs.values() if fewer_dormant(run)]
    known = [both for both in found if np.isfinite(both).all()]
    if not known:
        return ""
    woken, usual = np.mean(known, axis=0)
    return EASY_FOUND.format(runs="one run" if len(known) == 1 else f"{len(known)} runs", woken=woken, usual=usual)


def easy_shares(run: RunData) -> tuple[float, float]:
    """The largest share of easy samples at one client in percent, mean over rounds in which samples awaken and over
    the others from shortly before the first of them on; NaN where it was not recorded."""
    shares, woken = 100 * run.series(EASY_MOST), fewer_dormant(run)
    others = [at for at in range(max(0, woken[0] - SPAN), shares.size) if at not in woken]
    return float(np.mean(shares[woken])), float(np.mean(shares[others]))
