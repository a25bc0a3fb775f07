"""Data sets from what a program holds in memory: arrays, a torch data set, a Hugging Face data set."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError
from chase.data.assemble import Raw, assemble
from chase.data.decoded import Inputs
from chase.data.options import DataOptions
from chase.data.resident import DataSet, Kind
from chase.data.texts import Tokens, kept_of_a_text, tokenize
from chase.data.user_data import load_own

UserPart = Any
"""``(inputs, labels)``, a torch data set of ``(input, label)``, or a Hugging Face ``Dataset``."""


def make_data(
    train: UserPart,
    test: UserPart | None = None,
    *,
    name: str = "own",
    classes: Sequence[str] = (),
    owners: Sequence[Any] | None = None,
    test_share: float = 0.2,
    image_column: str = "",
    text_column: str = "",
    label_column: str = "",
    site_column: str = "",
    text_length: int = 64,
    tokens: Tokens = "words",
) -> DataSet:
    """A data set that ``run_experiment`` takes; without ``test``, ``test_share`` of the labelled samples are held out.

    Inputs: images (n, h, w), (n, h, w, c) or (n, c, h, w), as bytes or as numbers from 0 to 1; vectors
    (n, width); or a list of texts. Labels: class numbers or names; None, "" or -1 where nobody knows.
    ``owners`` (one per training sample) are for partition = natural. ``tokens``: words for networks, bytes for
    texts and the closed-form learner.
    """
    if _is_hugging_face(train):
        options = DataOptions(
            test_share=test_share,
            image_column=image_column,
            text_column=text_column,
            label_column=label_column,
            site_column=site_column,
            classes=tuple(classes),
            text_length=text_length,
            tokens=tokens,
        )
        return _from_hugging_face(train, test, name, options)
    first = _raw(train, classes, owners, (tokens, text_length), f"{name}, training part")
    second = None if test is None else _raw(test, classes, None, (tokens, text_length), f"{name}, test part")
    mean = std = None
    if first.kind == "vectors":
        mean, std = _moments(first.inputs)
    return assemble(
        name, first, second, classes=tuple(map(str, classes)), test_share=test_share, mean=mean, std=std
    ).data_set()


def _is_hugging_face(part: UserPart) -> bool:
    return (hasattr(part, "column_names") and hasattr(part, "to_parquet")) or _is_dictionary_of_parts(part)


def _is_dictionary_of_parts(part: UserPart) -> bool:
    return isinstance(part, dict) and "train" in part


def _from_hugging_face(train: UserPart, test: UserPart | None, name: str, options: DataOptions) -> DataSet:
    """Through a parquet file, which the reader of one's own tables knows."""
    if _is_dictionary_of_parts(train):
        train, test = train["train"], test if test is not None else train.get("test")
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / name.replace("/", "-")
        where.mkdir()
        for part, file in ((train, "train.parquet"), (test, "test.parquet")):
            if part is not None:
                with _no_progress_bar():
                    part.to_parquet(str(where / file))
        return load_own(where, options).data_set()


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Without the bars of the Hugging Face library, which stay as the caller has set them."""
    bars = sys.modules.get("datasets.utils")
    if bars is None or bars.are_progress_bars_disabled():
        yield
        return
    bars.disable_progress_bars()
    try:
        yield
    finally:
        bars.enable_progress_bars()


def _raw(
    part: UserPart, classes: Sequence[str], owners: Sequence[Any] | None, kept: tuple[Tokens, int], where: str
) -> Raw:
    """Inputs and labels as the assembling of data sets takes them."""
    inputs, labels = _pair(part, where)
    if len(inputs) != len(labels):
        raise DataError(f"{where}: {len(inputs)} inputs come with {len(labels)} labels")
    if len(inputs) == 0:
        raise DataError(f"{where} has no sample")
    if owners is not None and len(owners) != len(labels):
        raise DataError(f"{where}: {len(labels)} samples come with {len(owners)} owners")
    said = [_label(label, classes, where) for label in labels]
    who = None if owners is None else [str(owner) for owner in owners]
    if isinstance(inputs[0], str):
        texts = [str(text) for text in inputs]
        tokens, vocabulary, cut = tokenize(texts, *kept)
        problems = (f"{cut} texts are longer than {kept_of_a_text(*kept)} and are cut",) if cut else ()
        return Raw("text", tokens, said, owners=who, problems=problems, vocabulary=vocabulary, texts=texts)
    kind, array = _as_inputs(_stack(inputs, where), where)
    return Raw(kind, array, said, owners=who)


def _pair(part: UserPart, where: str) -> tuple[Any, Any]:
    """(inputs, labels) of arrays, or of a torch data set that is read item by item."""
    if isinstance(part, tuple | list) and len(part) == 2:
        inputs, labels = (_numpy(side) for side in part)
        return inputs, labels
    if hasattr(part, "__getitem__") and hasattr(part, "__len__"):
        items = [part[row] for row in range(len(part))]
        if all(isinstance(item, tuple | list) and len(item) >= 2 for item in items):
            return [_numpy(item[0]) for item in items], [_numpy(item[1]) for item in items]
    raise DataError(
        f"{where} is of type {type(part).__name__}: give (inputs, labels), a torch data set of (input, label) pairs, "
        "or a Hugging Face Dataset"
    )


def _numpy(value: Any) -> Any:
    """Tensors and pictures as arrays, anything else as it is."""
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    if hasattr(value, "getbands"):  # a PIL picture
        return np.asarray(value)
    return value


def _stack(inputs: Any, where: str) -> NDArray[Any]:
    try:
        array = np.stack([np.asarray(one) for one in inputs]) if isinstance(inputs, list) else np.asarray(inputs)
    except ValueError as error:
        raise DataError(f"{where}: the inputs are not all of one shape ({error})") from None
    if array.dtype.kind not in "buif":
        raise DataError(f"{where}: inputs of type {array.dtype} are neither numbers nor texts")
    return array


def _as_inputs(array: NDArray[Any], where: str) -> tuple[Kind, Inputs]:
    """The kind of samples, and the array as it is kept."""
    if array.ndim == 2:
        vectors = array.astype(np.float32)
        if not np.isfinite(vectors).all():
            raise DataError(f"{where}: {int((~np.isfinite(vectors)).sum())} numbers are not finite")
        return "vectors", vectors
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise DataError(
            f"{where}: inputs of shape {tuple(array.shape)} are neither vectors (n, width) nor images (n, h, w), "
            "(n, h, w, 1 or 3) or (n, 1 or 3, h, w)"
        )
    return "image", _pixels(array, where)


def _pixels(array: NDArray[Any], where: str) -> Inputs:
    """Bytes as they are; numbers from 0 to 1 or from 0 to 255 as float32 from 0 to 255."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 255):
        raise DataError(
            f"{where}: images hold numbers from {low:g} to {high:g}; give bytes, or numbers from 0 to 1 (undo a "
            "normalisation: chase normalises by itself)"
        )
    scale = 255.0 if array.dtype.kind == "f" and high <= 1 else 1.0
    return np.ascontiguousarray(array.astype(np.float32) * np.float32(scale))


def _label(label: Any, classes: Sequence[str], where: str) -> str | None:
    """A label as text: a number stands for the class of that place, where classes are named."""
    if label is None or (isinstance(label, str) and not label):
        return None
    if isinstance(label, str):
        return label
    if label != label:  # NaN, as pandas writes a missing cell
        return None
    number = int(label)
    if number != label:
        raise DataError(f"{where}: label {label} is not a whole number: give class numbers or names (no regression)")
    if number < 0:
        return None
    if not classes:
        return str(number)
    if number >= len(classes):
        raise DataError(f"{where}: label {number} is outside the {len(classes)} classes that are named")
    return str(classes[number])


def _moments(vectors: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of every column; a column that never changes keeps its deviation of 1."""
    mean, std = vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64)
    return tuple(map(float, mean)), tuple(float(value) if value > 0 else 1.0 for value in std)
