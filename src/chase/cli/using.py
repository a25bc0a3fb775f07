"""``chase export`` and ``chase predict``: the use of a result."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from chase.cli.terminal import print_table
from chase.core.errors import SettingsError, unknown
from chase.export.model_files import Format, export
from chase.export.predicting import Prediction, predict
from chase.export.trained import read_trained
from chase.report.cells import Cell, number
from chase.report.tables import ReportTable

RunArg = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="Directory to write (default: DIR/export).")]
FormatOpt = Annotated[
    str, typer.Option("--format", "-f", help="torchscript (with a Python loader), onnx, or weights alone.")
]
FilesArg = Annotated[
    list[Path], typer.Argument(metavar="FILES...", help="PNG or JPEG images; UTF-8 text files for a model of texts.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export", epilog="Example: chase export runs/digits-chase-20261115-201500 --out model")(export_model)
    app.command("predict", epilog="Example: chase predict runs/digits-chase-20261115-201500 seven.png")(predict_files)


def export_model(
    directory: RunArg,
    out: OutOpt = None,
    format: FormatOpt = "torchscript",
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Write the global model of a run as files that need no chase: weights, description and a program.

    Every format has model.safetensors (weights) and model.json (network, classes, input). torchscript adds
    model.torchscript and load_model.py, which needs only torch; onnx adds model.onnx.
    """
    if format not in get_args(Format):
        raise SettingsError(unknown("format", format, get_args(Format)))
    trained = read_trained(directory)
    files = export(trained, out or directory / "export", format)  # type: ignore[arg-type]  # checked above
    if as_json:
        print(json.dumps({"round": trained.round, "files": [str(file) for file in files]}))
        return
    print(f"the model after round {trained.round}:")
    for file in files:
        print(f"  {file}")
    if format == "torchscript":
        print(f"try it: python {files[-1]} {'TEXT.txt' if trained.card.kind == 'text' else 'IMAGE.png'}")


def predict_files(
    directory: RunArg,
    files: FilesArg,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Predict the class of images, or of text files, with the global model of a run.

    Images are brought to the model's size and colours where needed. They should look like those it was trained
    on: the digits, for example, are bright on dark.
    """
    found = predict(read_trained(directory), files)
    if as_json:
        print(json.dumps([as_object(p) for p in found]))
    elif as_csv:
        rows = csv.DictWriter(sys.stdout, list(as_object(found[0])), lineterminator="\n")
        rows.writeheader()
        rows.writerows(as_object(p) for p in found)
    else:
        cells: list[list[Cell]] = [[p.file, p.label, p.note or "-", number(p.probability, 3)] for p in found]
        print_table(ReportTable(("file", "class", "changed to fit", "probability"), cells, text_columns=3))


def as_object(prediction: Prediction) -> dict[str, object]:
    """A prediction as plain values."""
    return {
        "file": prediction.file,
        "class": prediction.label,
        "probability": prediction.probability,
        "note": prediction.note,
    }
