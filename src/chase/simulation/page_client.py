"""The client of a simulated run that a person labels: it lives in a home inside the run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chase.core.errors import LabelError
from chase.core.messages import ClientId
from chase.data.resident import DataSet
from chase.data.texts import LETTERS
from chase.home.home import Home, HomeCard
from chase.simulation.clients import HOME
from chase.simulation.world import World


def open_home(run: Path, world: World, data: DataSet, client: ClientId) -> Home:
    """The home of the client, made when it is first needed."""
    path = run / HOME
    if (path / "client.json").exists():
        return Home(path)
    ids, state = world.parts[client], world.start(client)
    known = state.pools.labeled
    card = HomeCard(
        client=client,
        name=f"{data.name}, client {client}",
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
    )
    initial = dict(zip(known.tolist(), state.labels_of(known).tolist(), strict=True))
    inputs = np.ascontiguousarray(data.train.inputs[ids].numpy())
    return Home.create(path, card, ids, inputs, initial=initial)


def alphabet(data: DataSet) -> str:
    """The character of each token; texts whose tokens cannot be turned back are refused."""
    if data.train.kind != "text":
        return ""
    if data.train.vocabulary == len(LETTERS):
        return LETTERS
    raise LabelError(f"the texts of '{data.name}' are kept as numbers of words and cannot be shown on the page")
