"""The other end of the ``workers`` engine: a process of one thread that runs turns when told.

Started as ``python -m chase.simulation.worker LINE LIFE DATA`` with three inherited descriptors: the
line that frames go over, a pipe that closes when the parent ends, and the shared memory with the
data. It ends when the parent does, also in the middle of a turn.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from chase.core import plugins
from chase.core.arena import Arena
from chase.core.errors import ChaseError
from chase.core.messages import RoundOrder
from chase.core.processes import end_with_parent
from chase.core.weights import Array, part_of, prefixed
from chase.data.partition import Parts
from chase.data.resident import Column, Samples
from chase.learning.inference import logits
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.segments import SavedState
from chase.settings import Settings
from chase.simulation import frames
from chase.simulation.clients import SimulatedClients
from chase.simulation.world import World


def pack_world(world: World) -> tuple[dict[str, Any], dict[str, Array]]:
    """The world as plain values and arrays."""
    header = {
        "settings": world.settings.model_dump(),
        "objects": plugins.pack(lambda kind: getattr(world.settings, kind, None)),
        "num_classes": world.num_classes,
        "train": _describe(world.samples),
        "test": _describe(world.test),
    }
    arrays = {
        "train": world.samples.inputs.numpy(),
        "test": world.test.inputs.numpy(),
        "truth": world.truth,
        "parts": world.parts.rows,
        "ends": world.parts.ends,
    }
    return header, arrays


def unpack_world(header: dict[str, Any], arrays: dict[str, Array]) -> World:
    """The world that ``pack_world`` took apart; its arrays stay where they are."""
    plugins.unpack(header["objects"])
    return World(
        settings=Settings(**header["settings"]),
        samples=_samples(header["train"], arrays["train"]),
        truth=arrays["truth"],
        num_classes=header["num_classes"],
        parts=Parts(arrays["parts"], arrays["ends"]),
        test=_samples(header["test"], arrays["test"]),
    )


def _describe(samples: Samples) -> dict[str, Any]:
    about = {"kind": samples.kind, "mean": samples.mean, "std": samples.std, "vocabulary": samples.vocabulary}
    return about | {"columns": [column.to_json() for column in samples.columns]}


def _samples(about: dict[str, Any], inputs: Array) -> Samples:
    mean, std = tuple(about["mean"]), tuple(about["std"])
    columns = tuple(Column.from_json(body) for body in about["columns"])
    return Samples(torch.from_numpy(inputs), about["kind"], mean, std, None, about["vocabulary"], columns)


class Worker:
    """Answers frames: "order" (keep a model), "turns" (run clients), "test" (infer part of the test set)."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        self._world, self._roster = world, SimulatedClients(world, checkpoint)
        self._orders: dict[int, RoundOrder] = {}

    def handle(self, header: dict[str, Any], arrays: dict[str, Array]) -> frames.Frame | None:
        """The answer to one frame; an order has none."""
        kind = header["kind"]
        if kind == "order":
            self._keep(header, arrays)
            return None
        order = self._orders[header["order"]]
        if kind == "test":
            set_weights(self._roster.net, order.weights)
            rows = torch.arange(header["first"], header["last"])
            return {"kind": "logits"}, {"logits": logits(self._roster.net, self._world.test, rows).numpy()}
        turns: list[dict[str, Any]] = []
        found: dict[str, Array] = {}
        for number, (client, saved) in enumerate(header["clients"]):
            turn, now_saved = self._roster.take_turn(client, order, SavedState(*saved) if saved else None)
            turns.append(
                {
                    "client": client,
                    "num_labeled": turn.update.num_labeled,
                    "metrics": dict(turn.update.metrics),
                    "journal": list(turn.journal),
                    "saved": now_saved.values(),
                }
            )
            own = prefixed("w.", turn.update.weights) | prefixed("x.", turn.update.extras)
            found |= prefixed(f"{number}/", own)
        return {"kind": "updates", "turns": turns}, found

    def _keep(self, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        if header["order"] == 0:
            self._orders.clear()
        fields = dict(header["fields"])
        allowances = fields.pop("allowances")
        self._orders[header["order"]] = RoundOrder(
            **fields,
            allowances=None if allowances is None else dict(allowances),
            weights=part_of(arrays, "w."),
            start=part_of(arrays, "s.") or None,
            extras=part_of(arrays, "x."),
        )


def serve(line: socket.socket, data: int) -> None:
    """Answer frames until the line closes."""
    hello, _ = frames.receive(line)
    sys.path[:] = hello["path"]
    arena = Arena.attach(data, hello["layout"])
    worker = Worker(unpack_world(hello["world"], arena.arrays), Checkpoint(Path(hello["checkpoint"]), hello["writer"]))
    began = time.process_time()  # importing and building are start-up, no cost of a round
    while True:
        header, arrays = frames.receive(line)
        try:
            answer = worker.handle(header, arrays)
        except ChaseError as error:
            answer = {"kind": "refused", "text": str(error)}, {}
        except Exception:
            answer = {"kind": "broken", "text": traceback.format_exc()}, {}
        if answer is not None:
            header, arrays = answer
            frames.send(line, {**header, "processor": time.process_time() - began}, arrays)


def main() -> None:
    """Entry point of the process."""
    line, life, data = (int(number) for number in sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(life, lambda: os._exit(1))
    torch.set_num_threads(1)
    try:
        serve(socket.socket(fileno=line), data)
    except frames.Gone:
        os._exit(0)


if __name__ == "__main__":
    main()
