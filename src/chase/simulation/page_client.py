"""The clients of a simulated run that people label: one, or all, in a home inside the run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chase.annotation.annotator import Question
from chase.core.errors import LabelError
from chase.core.messages import ClientId
from chase.core.pools import SampleIds
from chase.data.resident import DataSet
from chase.data.texts import LETTERS
from chase.home.home import Home, HomeCard
from chase.home.originals import ORIGINALS, keep_files, keep_texts
from chase.settings import ALL_CLIENTS, Settings
from chase.simulation.clients import HOME
from chase.simulation.world import World, answer_rows, owner_names

TO_MEASURE = "random draw"
"""Named in the place of a strategy by questions whose answers are never trained with."""


def open_home(run: Path, world: World, data: DataSet, client: ClientId) -> Home:
    """The home of the client, or of all of them, made when it is first needed."""
    path = run / HOME
    to_measure = answer_rows(world.settings, data)
    home = Home(path) if (path / "client.json").exists() else _create(path, world, data, client, to_measure)
    missing = [sample for sample in to_measure.tolist() if not home.inbox.was_asked(sample)]  # a kill came between
    home.inbox.file([Question(sample, 0, 0, TO_MEASURE, 0) for sample in missing])
    return home


def _create(path: Path, world: World, data: DataSet, client: ClientId, to_measure: SampleIds) -> Home:
    members = range(world.settings.clients) if client == ALL_CLIENTS else [client]
    ids = np.unique(np.concatenate([to_measure, *(world.parts[member] for member in members)]))
    texts, whose = data.train_texts, f"{data.name}, {who_labels(world.settings, data)}"
    card = HomeCard(
        client=client,
        name=data.name if world.settings.people_only and world.settings.clients == 1 else whose,
        classes=data.classes,
        kind=data.train.kind,
        alphabet=alphabet(data),
        predicts_next=data.train.kind == "text" and data.classes == tuple(LETTERS),
        mean=data.train.mean,
        std=data.train.std,
        vocabulary=data.train.vocabulary,
        scale=data.train.scale,
        columns=tuple(column.to_json() for column in data.train.columns),
        data={"source": world.settings.data},
        originals=str((path / ORIGINALS).resolve()) if texts is not None else data.originals,
    )
    initial: dict[int, int] = {}
    for state in (world.start(member) for member in members):
        known = state.pools.labeled
        initial |= dict(zip(known.tolist(), state.labels_of(known).tolist(), strict=True))
    inputs = np.ascontiguousarray(data.train.inputs[ids].numpy())
    names = None if data.train_names is None else [data.train_names[row] for row in ids.tolist()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if names is not None and texts is not None:
        keep_texts(path, names, [texts[row] for row in ids.tolist()])
    if names is not None and data.train_files is not None:
        keep_files(path, names, [data.train_files[row] for row in ids.tolist()])
    return Home.create(path, card, ids, inputs, names, initial)


def answers_to(home: Home, rows: SampleIds) -> NDArray[np.int64]:
    """The classes that people gave to these samples by now; -1 where nobody has, or nobody can tell."""
    said = {line["sample"]: line["label"] for line in home.ledger.labels()}
    found = [said.get(row) for row in rows.tolist()]
    return np.array([-1 if label is None else label for label in found], dtype=np.int64)


def who_labels(settings: Settings, data: DataSet) -> str:
    """Whose samples the page shows: a site by its name, a client by its number, or all of them."""
    if settings.page_client == ALL_CLIENTS:
        return f"all {settings.clients} clients"
    owners = owner_names(settings, data)
    return owners[settings.page_client] if owners else f"client {settings.page_client}"


def alphabet(data: DataSet) -> str:
    """The character of each token; texts of which neither these nor the originals are kept are refused."""
    if data.train.kind != "text" or data.train_texts is not None:
        return ""
    if data.train.vocabulary == len(LETTERS):
        return LETTERS
    raise LabelError(f"the texts of '{data.name}' are kept as numbers of words and cannot be shown on the page")
