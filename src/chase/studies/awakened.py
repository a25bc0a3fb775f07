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
from chase.studies.observations import SPAN, awakenings, fewer_dormant, woken_change
from chase.studies.overview import place_of

DATA = {data for hypothesis in HYPOTHESES if hypothesis.question == WAKING for data in hypothesis.data}
AWAKENED_NOTE = f"""A client that runs short of candidates awakens 40 % of its frozen samples at once. Change: accuracy
of the global model in the {SPAN} rounds from then on minus that of the {SPAN} rounds before, mean over the awakenings
of a run. EV, CHASe and all-global freeze and awaken in the same way; they differ in the alignment alone."""
AWAKENED_FOUND = """ At {at} only CHASe with the paper's split loses accuracy then. Samples are frozen because their EV
is 0, and keep it while they sleep. So when they awaken, the split counts them as easy, and nearly all that the client
watches is pulled to its own model of the round before; all-global pulls the same samples to the global model. The
accuracy comes back within some rounds, but a comparison just after an awakening finds less. **This was found in these
very runs**, like the pull."""
EASY_FOUND = """ Where the runs recorded it, {woken:.0f} % of the watched samples counted as easy at the client that
had most of them in rounds of an awakening, and {usual:.0f} % in other rounds."""


def awakened_table(groups: Sequence[Group]) -> ReportTable:
    """A row for each arm that freezes, on the data sets of the hypotheses."""
    rows: list[list[Cell]] = []
    for group in groups:
        if group.settings["data"] in DATA and group.changed.keys() <= {"client_weights"}:
            changes = np.array([woken_change(run) for run in group.method.runs])
            known = changes[np.isfinite(changes)]
            if known.size:
                often = float(np.mean([len(awakenings(run)) for run in group.method.runs]))
                change = with_interval(interval(known), 1, signed=True) if known.size > 1 else NONE
                rows.append([*place_of(group), number(group.rounds, 0), known.size, number(often, 1), change])
    columns = ("data", "conditions", "arm", "round", "seeds", "awakenings per run", "change of accuracy, points")
    return ReportTable(columns, rows, text_columns=3)


def easy_then(groups: Sequence[Group]) -> str:
    """How much counted as easy in rounds of an awakening and in others; nothing where no run recorded it."""
    runs = [run for group in groups for run in group.method.runs if group.arm == "CHASe"]
    found = [easy_shares(run) for run in runs if run.settings.get("data") in DATA and awakenings(run)]
    known = [both for both in found if np.isfinite(both).all()]
    if not known:
        return ""
    woken, usual = np.mean(known, axis=0)
    return EASY_FOUND.format(woken=woken, usual=usual)


def easy_shares(run: RunData) -> tuple[float, float]:
    """The largest share of easy samples at one client in percent, mean over rounds in which samples awaken and over
    the others from shortly before the first of them on; NaN where it was not recorded."""
    shares, woken = 100 * run.series(EASY_MOST), fewer_dormant(run)
    others = [at for at in range(max(0, woken[0] - SPAN), shares.size) if at not in woken]
    return float(np.mean(shares[woken])), float(np.mean(shares[others]))
