"""A trained model as files: safetensors weights, ``model.json``, and a program in TorchScript or ONNX.

A program is loaded again and compared with the network before the export counts as done.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from chase import __version__
from chase.core.errors import ChaseError
from chase.core.files import replacing, write_atomically, writing
from chase.core.weights import digest, to_bytes
from chase.export import load_model
from chase.export.card_text import model_card
from chase.export.trained import Trained

Format = Literal["torchscript", "onnx", "weights"]
TOLERANCE = 1e-5


INPUTS = {
    "image": "uint8 pixels (n, channels, height, width)",
    "text": "tokens (n, length)",
    "vectors": "float32 vectors (n, width)",
    "table": "float32 rows (n, columns): numbers (NaN = missing) and numbers of categories",
}


class ExportError(ChaseError):
    """A model cannot be exported as asked."""


def export(trained: Trained, out: Path, format: Format) -> list[Path]:
    """Write the files of one format; returns them."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    program: dict[Format, Callable[[Trained, Path], list[Path]]] = {
        "torchscript": write_torchscript,
        "onnx": write_onnx,
        "weights": lambda trained, out: [],
    }
    remove_stale(trained, out)
    files = program[format](trained, out)  # first: what fails its check leaves no description behind
    write_atomically(out / "model.safetensors", to_bytes(trained.weights, {"format": "pt"}))
    write_atomically(out / "model.json", json.dumps(description(trained), indent=2).encode())
    write_atomically(out / "MODEL_CARD.md", model_card(trained).encode())
    return [out / "model.safetensors", out / "model.json", out / "MODEL_CARD.md", *files]


def remove_stale(trained: Trained, out: Path) -> None:
    """Remove the programs of an earlier export of other weights: they would contradict what is written now."""
    try:
        before = json.loads((out / "model.json").read_text(encoding="utf-8")).get("weights_digest")
    except (OSError, ValueError, AttributeError):
        return
    if before != digest(trained.weights):
        with writing(out):
            for name in ("model.torchscript", "model.onnx", "load_model.py"):
                (out / name).unlink(missing_ok=True)


def description(trained: Trained) -> dict[str, object]:
    """``model.json``: the card, and where the model comes from."""
    return trained.card.to_json() | {
        "input": INPUTS[trained.card.kind],
        "output": "logits (n, classes)",
        "round": trained.round,
        "test_accuracy": trained.test_accuracy,
        "strategy": trained.settings.get("strategy"),
        "data": trained.settings.get("data"),
        "settings_digest": trained.settings_digest,
        "weights_digest": digest(trained.weights),
        "chase": __version__,
        "torch": torch.__version__,
    }


def probe(trained: Trained, count: int) -> Tensor:
    """Random raw inputs, the same every time."""
    generator = torch.Generator().manual_seed(count)
    shape = (count, *trained.card.net.shape)
    if trained.card.kind == "text":
        return torch.randint(0, trained.card.net.vocabulary, shape, generator=generator)
    if trained.card.kind == "table":
        return torch.rand((count, len(trained.card.columns)), generator=generator)
    if trained.card.kind == "vectors":
        return torch.rand(shape, generator=generator)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def check_same(trained: Trained, forward: Callable[[Tensor], Tensor], what: str) -> None:
    """Refuse a program whose outputs differ from the network's, at other batch sizes than it was traced with."""
    for count in (1, 5):
        inputs = probe(trained, count)
        with torch.inference_mode():
            wanted, got = trained.model(inputs), forward(inputs)
        apart = float((wanted - got).abs().max() / wanted.abs().max().clamp(min=1.0))
        if not apart <= TOLERANCE:
            raise ExportError(f"the {what} program differs from the network by {apart:.1e}; use --format weights")


def write_torchscript(trained: Trained, out: Path) -> list[Path]:
    """``model.torchscript`` and the loader that needs no chase."""
    path, loader = out / "model.torchscript", out / "load_model.py"
    with writing(path), replacing(path) as fresh, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # tracing notes, and torch's wish to be asked for torch.export instead
        traced = torch.jit.trace(trained.model, probe(trained, 2))  # type: ignore[no-untyped-call]
        fresh.write_bytes(torch.jit.freeze(traced).save_to_buffer())
        check_same(trained, torch.jit.load(str(fresh)), "TorchScript")  # type: ignore[no-untyped-call]
    write_atomically(loader, Path(load_model.__file__).read_bytes())
    return [path, loader]


def write_onnx(trained: Trained, out: Path) -> list[Path]:
    """``model.onnx``, checked with onnx's reference evaluator."""
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise ExportError("ONNX needs the package onnx: `pip install onnx`, or use --format torchscript") from None
    path = out / "model.onnx"
    with writing(path), replacing(path) as fresh, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is called legacy
        torch.onnx.export(
            trained.model,
            (probe(trained, 2),),
            str(fresh),
            input_names=["input"],
            output_names=["logits"],
            dynamic_axes={"input": {0: "n"}, "logits": {0: "n"}},
            dynamo=False,
        )
        evaluator: Any = ReferenceEvaluator(str(fresh))
        check_same(trained, lambda x: torch.from_numpy(evaluator.run(None, {"input": x.numpy()})[0].copy()), "ONNX")
    return [path]
