"""Use a model that was exported by chase, without chase. Needs torch; Pillow for image files.

On the command line, beside the other exported files:

    python load_model.py photo.png another.jpg      # for a model of texts: text files; of tables: CSV files

or in a program:

    from load_model import load
    model = load("directory/of/the/export")
    probabilities = model.probabilities(pixels)     # pixels: uint8 (n, channels, height, width)
    print(model.classes[int(probabilities[0].argmax())])

The network and the normalisation of its input are in ``model.torchscript``, a TorchScript program; class names and
the shape of the input are in ``model.json``. ``model.safetensors`` holds the bare weights for other uses.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import math
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Model:
    """The network and what stands in ``model.json``."""

    forward: Callable[[Tensor], Tensor]
    """Raw input to logits."""
    about: dict[str, Any]

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the outputs."""
        return list(self.about["classes"])

    def probabilities(self, inputs: Tensor) -> Tensor:
        """uint8 pixels (n, channels, height, width) or tokens (n, length) -> (n, classes)."""
        with torch.inference_mode():
            return torch.softmax(self.forward(inputs), dim=1)


def load(directory: str | Path = Path(__file__).parent) -> Model:
    """The model exported to a directory."""
    directory = Path(directory)
    about = json.loads((directory / "model.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of torch prefer torch.export
        program: Any = torch.jit.load(str(directory / "model.torchscript"), map_location="cpu")  # type: ignore[no-untyped-call]
    return Model(program, about)


def read_image(path: str | Path, shape: Sequence[int], scale: Sequence[float] = (0, 255)) -> tuple[Tensor, str]:
    """An image file as the model takes it, (channels, height, width) from 0 to 255, and what had to be changed.

    ``scale`` holds the values in the file that become 0 and 255: the same for all images, as in training. A
    ``ValueError`` names a file that is not an image that can be read.
    """
    import numpy
    from PIL import Image, ImageOps

    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    changes = []
    try:
        with Image.open(path) as opened:
            image: Image.Image = ImageOps.exif_transpose(opened)
            wide = image.mode in ("I", "F") or image.mode.startswith("I;16")
            if image.has_transparency_data:
                whole = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert(
                    "L" if image.mode == "LA" else "RGB"
                )
            if wide:  # more than 8 bits: the full range is kept
                image = Image.fromarray(numpy.asarray(image).astype(numpy.float32))
            elif image.mode != mode:
                image = image.convert(mode)
                changes.append(f"converted to {'grey' if mode == 'L' else 'colour'}")
            if image.size != (width, height):
                changes.append(f"resized from {image.size[0]}x{image.size[1]} to {width}x{height}")
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            pixels = numpy.array(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not an image"
        raise ValueError(f"cannot read image {path}: {reason}") from None
    low, high = float(scale[0]), float(scale[1])
    if (low, high) != (0.0, 255.0):
        pixels = ((pixels.astype(numpy.float32) - low) * numpy.float32(255.0 / (high - low))).clip(0, 255)
    elif wide:
        pixels = numpy.rint(pixels).clip(0, 255).astype(numpy.uint8)
    tensor = torch.from_numpy(pixels)
    if wide and channels == 3:
        return tensor[None].repeat(3, 1, 1), ", ".join(changes)
    return (tensor[None] if channels == 1 else tensor.permute(2, 0, 1).contiguous()), ", ".join(changes)


def read_text(text: str, about: dict[str, Any]) -> tuple[Tensor, str]:
    """A text as the model takes it, tokens (length,), and what was left out.

    Of characters the last ones count, blanks in front; of words the first ones, each hashed to a token, 0 behind; of
    bytes the first ones of the lower-case text with single blanks, 0 behind.
    """
    (length,), letters = about["shape"], about["letters"]
    if about["net"]["vocabulary"] == 256:
        full = " ".join(text.replace("\0", " ").lower().split()).encode("utf-8", "replace")
        kept = full[:length].decode("utf-8", "ignore").encode()
        left_out = f"only the first {length} bytes" if len(full) > length else ""
        return torch.tensor([*kept, *[0] * (length - len(kept))]), left_out
    if letters:
        blank = letters.index(" ")
        known = [letters.find(c if c.isascii() else "?") for c in text[-length:]]
        tokens = [blank] * (length - len(known)) + [blank if token < 0 else token for token in known]
        return torch.tensor(tokens), f"only the last {length} characters" if len(text) > length else ""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    tokens = [1 + zlib.crc32(word.encode()) % (about["net"]["vocabulary"] - 1) for word in words[:length]]
    left_out = f"only the first {length} words" if len(words) > length else ""
    return torch.tensor(tokens + [0] * (length - len(tokens))), left_out


MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
"""How a missing number is written."""


def read_rows(path: str | Path, about: dict[str, Any]) -> list[tuple[int, Tensor]]:
    """The rows of a CSV file as a model of tables takes them, each with its line; a ``ValueError``
    says what is wrong.

    Numbers may have a decimal comma; a missing one is NaN, as is a category that the model does not know.
    """
    (_, header), *below = read_cells(Path(path), decode_table(Path(path))[0])
    missing = [column["name"] for column in about["columns"] if column["name"] not in header]
    if missing:
        raise ValueError(f"{path} has no column '{missing[0]}'; it has: {', '.join(header)}")
    places = [header.index(column["name"]) for column in about["columns"]]
    rows = []
    for line, cells in below:
        values = [_cell(cells[at].strip(), column) for at, column in zip(places, about["columns"], strict=True)]
        for value, column in zip(values, about["columns"], strict=True):
            if value is None:
                raise ValueError(f"{path}, line {line}: column '{column['name']}' holds a text, not a number")
        rows.append((line, torch.tensor(values, dtype=torch.float32)))
    return rows


def decode_table(path: Path) -> tuple[str, str]:
    """The text of a CSV file, and a note where its encoding had to be guessed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read table {path}: {error.strerror}") from None
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding, note in (("utf-16" if utf16 else "utf-8-sig", ""), ("cp1252", "not UTF-8, so read as cp1252")):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding), note
    return content.decode("latin-1"), "not UTF-8, so read as latin-1"


def read_cells(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """The header of a CSV file and its rows, each with the line that it begins on, by the rules of chase itself.

    Blank lines are skipped, also before the header; a .tsv file has tabs, whatever else its header holds.
    """
    first = "".join(next((line for line in io.StringIO(text) if line.strip()), "").split('"')[::2])
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=first.count)
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    before = 0
    try:
        for cells in reader:
            line, before = before + 1, reader.line_num
            width = len(rows[0][1]) if rows else 0
            if not cells or (len(cells) == 1 and not cells[0].strip() and width != 1):
                continue
            if rows and len(cells) != width:
                raise ValueError(f"{path}, line {line}: {len(cells)} cells, but the header has {width}")
            rows.append((line, cells if rows else [name.strip() for name in cells]))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise ValueError(f"{path} is empty: its first line names the columns")
    header = rows[0][1]
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(f"{path} has two columns of the same name ('{twice[0]}'): rename one in its first line")
    return rows


def _cell(text: str, column: dict[str, Any]) -> float | None:
    """The number that a cell stands for; None where it should be a number and is none."""
    if column["kind"] == "categorical":
        return float(column["values"].index(text)) if text in column["values"] else math.nan
    if text.lower() in MISSING:
        return math.nan
    for written in (text, text.replace(",", ".") if text.count(",") == 1 and "." not in text else ""):
        try:
            value = float(written)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None


def read_samples(path: str | Path, about: dict[str, Any]) -> list[tuple[str, Tensor, str]]:
    """The samples of a file, with a name and what had to be changed: the rows of a table, else the file itself."""
    is_table = Path(path).suffix.lower() in (".csv", ".tsv", ".parquet")
    if about["kind"] == "table" and Path(path).suffix.lower() in (".csv", ".tsv"):
        note = decode_table(Path(path))[1]
        return [(f"{path}:{line}", row, note) for line, row in read_rows(path, about)]
    if about["kind"] in ("table", "vectors") or is_table or (about.get("seconds") and about["kind"] == "image"):
        takes = {"table": "CSV files", "text": "one text per file", "image": "image files"}.get(about["kind"])
        takes = "spectra of recordings" if about.get("seconds") else takes or about["input"]
        raise ValueError(f"cannot read {path}: this program takes {takes}; `chase predict` reads more")
    return [(str(path), *read_file(path, about))]


def read_file(path: str | Path, about: dict[str, Any]) -> tuple[Tensor, str]:
    """An image or text file as the model takes it, and what had to be changed; a ``ValueError`` names a bad file."""
    if about["kind"] == "image":
        return read_image(path, about["shape"], about.get("scale", (0, 255)))
    try:
        return read_text(Path(path).read_text(encoding="utf-8").removesuffix("\n"), about)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"cannot read text {path}: {reason}") from None


def main() -> None:
    """Print the class and its probability of every file, or row of a table, named; what cannot be read is said."""
    model, failed = load(), False
    for name in sys.argv[1:]:
        try:
            samples = read_samples(name, model.about)
        except ValueError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        for sample, inputs, changed in samples:
            probabilities = model.probabilities(inputs[None])[0]
            best = int(probabilities.argmax())
            print(sample, model.classes[best], f"{float(probabilities[best]):.4f}", changed, sep="\t")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
