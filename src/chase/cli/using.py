"""``chase export``, ``chase predict`` and ``chase evaluate``: the use of a result."""

from __future__ import annotations

import csv
import json
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, get_args

import typer

from chase.cli.terminal import print_table
from chase.core.errors import SettingsError, unknown
from chase.core.text import counted, quoted
from chase.export.evaluating import Measured, evaluate
from chase.export.model_files import Format, export
from chase.export.predicting import Prediction, failures, predict
from chase.export.trained import Which, read_trained
from chase.home.exchange import neutral
from chase.report.cells import Cell, number
from chase.report.quality import evaluation_tables
from chase.report.tables import ReportTable
from chase.run.metrics import estimate_in_words
from chase.settings import parse_changes

RunArg = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="Directory to write (default: DIR/export).")]
FormatOpt = Annotated[
    str, typer.Option("--format", "-f", help="torchscript (with a Python loader), onnx, or weights alone.")
]
WhichOpt = Annotated[str, typer.Option("--which", help="last, or best: the round with the best main metric.")]
FilesArg = Annotated[
    list[Path],
    typer.Argument(metavar="PATHS...", help="Images, folders of images, UTF-8 text files, CSV or parquet files."),
]

EXAMPLES = {"image": "IMAGE.png", "text": "TEXT.txt", "table": "ROWS.csv"}
"""What the exported loader reads, by kind of data; vectors and recordings come from programs."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export", epilog="Example: chase export runs/digits-chase-20261115-201500 --out model")(export_model)
    app.command("predict", epilog="Example: chase predict runs/digits-chase-20261115-201500 seven.png")(predict_files)
    app.command("evaluate", epilog="Example: chase evaluate runs/pets-20261115-201500 pets-test.csv")(evaluate_model)


def export_model(
    directory: RunArg,
    out: OutOpt = None,
    format: FormatOpt = "torchscript",
    which: WhichOpt = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Write the global model of a run as files that do not need chase: weights, description and a program.

    Every format has model.safetensors (weights) and model.json (network, classes, input). torchscript adds
    model.torchscript and load_model.py, which needs only torch; onnx adds model.onnx.
    """
    if format not in get_args(Format):
        raise SettingsError(unknown("format", format, get_args(Format)))
    trained = read_trained(directory, chosen_round(which))
    files = export(trained, out or directory / "export", format)  # type: ignore[arg-type]  # checked above
    if as_json:
        print(json.dumps({"round": trained.round, "files": [str(file) for file in files]}))
        return
    print(f"the model after round {trained.round}:")
    for file in files:
        print(f"  {file}")
    if format == "torchscript":
        example = None if trained.card.seconds else EXAMPLES.get(trained.card.kind)
        print(f"try it: python {quoted(files[-1])} {example}" if example else f"how to use it: {files[-1]}")


def chosen_round(which: str) -> Which:
    """``last`` or ``best``."""
    if which not in get_args(Which):
        raise SettingsError(unknown("round", which, get_args(Which)))
    return "best" if which == "best" else "last"


def predict_files(
    directory: RunArg,
    files: FilesArg,
    top: Annotated[int, typer.Option("--top", help="Show this many classes per sample.", min=1)] = 1,
    which: WhichOpt = "last",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Say how a table is read where its columns are not called as in the run's data, e.g. "
            "text_column=remark, id_column=none; repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Predict the class of images, texts or rows of a table with the global model of a run.

    Images are resized and converted to the model's colours where needed. They should look like those it was trained
    on: the digits, for example, are bright on dark. Files and rows that cannot be read are reported and skipped.
    """
    trained = read_trained(directory, chosen_round(which))
    found = predict(trained, files, top, parse_changes(change or []))
    failed = failures(found)
    if as_json:
        print(json.dumps([as_object(p) for p in found]))
    elif as_csv:
        if isinstance(sys.stdout, TextIOWrapper):  # a file for programs: no name may lose a character to the terminal
            sys.stdout.reconfigure(encoding="utf-8")
        rows = csv.DictWriter(sys.stdout, list(flat(found[0], top)), lineterminator="\n")
        rows.writeheader()
        rows.writerows({key: neutral(value) for key, value in flat(p, top).items()} for p in found)
    else:
        cells: list[list[Cell]] = [
            [p.id, best(p) or "-", p.error or p.note or "-", number(None if p.error else p.probability, 3)]
            for p in found
        ]
        print_table(ReportTable(("id", "class", "note", "probability"), cells, text_columns=3))
        if all(line.get("test_accuracy") is None for line in trained.metrics):
            line = next((line for line in trained.metrics if line["round"] == trained.round), {})
            estimate = estimate_in_words(line)
            print("the accuracy of this model was not measured" + (f"; estimate {estimate}" if estimate else ""))
    if failed:
        print(f"chase: {failed}", file=sys.stderr)
        raise typer.Exit(1)


def evaluate_model(
    directory: RunArg,
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA...", help="Folders of images, a folder per class; CSV or parquet files."),
    ],
    which: WhichOpt = "last",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Say how a table is read where its columns are not called as in the run's data, e.g. "
            "label_column=verdict; repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the global model of a run on labelled data, for example on a test set that came later.

    Samples without a label are left out, as are those that cannot be read. Of a folder with a training and a test
    part, the test part is taken. The run itself stays as it is.
    """
    trained = read_trained(directory, chosen_round(which))
    found = evaluate(trained, data, parse_changes(change or []))
    if as_json:
        print(json.dumps({"round": trained.round, **found.to_json()}))
    else:
        for table in evaluation_tables(found.quality):
            print_table(table)
        for sentence in evaluation_notes(found):
            print(sentence)
    if found.errors:
        many, tested = len(found.errors), found.quality["tested"]
        print(
            f"chase: {many} of {many + found.unlabeled + tested} samples could not be read; the first: "
            f"{found.errors[0]}",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def evaluation_notes(found: Measured) -> list[str]:
    """What must be known beside the figures."""
    said = []
    if found.unlabeled:
        left_out = "was left out" if found.unlabeled == 1 else "were left out"
        said.append(f"{counted(found.unlabeled, 'sample')} without a label {left_out}")
    if found.in_training:
        said.append(
            f"{found.in_training} of {found.quality['tested']} samples are equal to samples of the training "
            "part of the run's data: the model may have learnt from them, so these figures are too good for new samples"
        )
    elif found.in_training is None:
        said.append(
            "whether the model has learnt from these samples could not be checked: the run's own data is not here"
        )
    return said


def best(prediction: Prediction) -> str:
    """The class, and the next ones where more than one is wanted."""
    more = [f"{name} {share:.3f}" for name, share in prediction.top[1:]]
    return prediction.label + (f" (next: {', '.join(more)})" if more else "")


def as_object(prediction: Prediction) -> dict[str, object]:
    """A prediction as plain values."""
    return {
        "id": prediction.id,
        "class": prediction.label or None,
        "probability": prediction.probability if prediction.label else None,
        "top": [{"class": name, "probability": share} for name, share in prediction.top],
        "note": prediction.note,
        "error": prediction.error,
    }


def flat(prediction: Prediction, top: int) -> dict[str, object]:
    """A prediction as a row of CSV."""
    row = as_object(prediction)
    del row["top"]
    for place in range(1, top):
        name, share = prediction.top[place] if place < len(prediction.top) else ("", None)
        row |= {f"class_{place + 1}": name, f"probability_{place + 1}": share}
    return row
