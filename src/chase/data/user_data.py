"""A user's own data: a folder of images, or a CSV or parquet file with a text or image column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from chase.core.errors import DataError
from chase.data import folders, tables
from chase.data.assemble import Raw, assemble
from chase.data.cache import cached, content_key
from chase.data.decoded import Decoded
from chase.data.options import DataOptions
from chase.data.pictures import RAW

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
USUAL = {
    "image": ("image", "img", "image_path", "path", "file", "filename"),
    "text": ("text", "sentence", "comment", "content"),
    "label": ("label", "class", "category"),
    "site": ("site", "owner", "client"),
}
"""Column names that are understood without a setting."""


def load_own(path: Path, options: DataOptions) -> Decoded:
    """The data set at a path, through the cache."""
    train, test = _parts(path, options)
    if train.is_dir():
        return _cached_folder(path, train, test, options)
    return _cached_table(path, train, test, options)


def _parts(path: Path, options: DataOptions) -> tuple[Path, Path | None]:
    """Where the training and the test part are."""
    if not path.exists():
        raise DataError(f"{path} does not exist: give a folder of images, a CSV or a parquet file")
    given = Path(options.test_data) if options.test_data else None
    if given is not None and not given.exists():
        raise DataError(f"test_data = {given} does not exist")
    if path.is_file():
        if path.suffix not in TABLE_SUFFIXES:
            raise DataError(f"{path} is none of {', '.join(TABLE_SUFFIXES)} and no folder of images")
        return path, given
    for suffix in TABLE_SUFFIXES:
        if (path / f"train{suffix}").is_file():
            beside = path / f"test{suffix}"
            return path / f"train{suffix}", given or (beside if beside.is_file() else None)
    train, test = folders.parts_of(path)
    return train, given or test


def _cached_folder(path: Path, train: Path, test: Path | None, options: DataOptions) -> Decoded:
    listed = [(root, folders.image_files(root)[0]) for root in (train, test) if root is not None]
    files = [file for _, found in listed for file in found]
    names = [str(file.relative_to(root)) for root, found in listed for file in found]

    def make() -> Decoded:
        return _assemble(path, options, folders.read_folder, train, test)

    return cached(path.name, content_key(files, "folder", options.key(), *names), make)


def _cached_table(path: Path, train: Path, test: Path | None, options: DataOptions) -> Decoded:
    options = fill_columns(tables.read_table(train), options)
    files = [train] if test is None else [train, test]
    read: Callable[[Path, DataOptions], Raw] = tables.read_images if options.image_column else tables.read_texts
    beside = [p for file in files for p in _images_beside(file, options)]

    def make() -> Decoded:
        return _assemble(path, options, read, train, test)

    return cached(path.name, content_key([*files, *beside], "table", options.key()), make)


def _assemble(
    path: Path, options: DataOptions, read: Callable[[Path, DataOptions], Raw], train: Path, test: Path | None
) -> Decoded:
    names = options.classes
    if not names:
        names = folders.class_folders(train) if train.is_dir() else ()
    if not names and train.is_file():
        names = tables.class_names(tables.read_table(train), options.label_column)
    first = read(train, options)
    return assemble(
        path.name,
        first,
        None if test is None else read(test, as_read(first, options)),
        classes=names,
        test_share=options.test_share,
        mean=options.mean or None,
        std=options.std or None,
    )


def as_read(first: Raw, options: DataOptions) -> DataOptions:
    """Options under which a second part comes out as the first did: the same channels and the same scale."""
    return replace(options, channels=first.inputs.shape[1], scale=first.scale) if first.kind == "image" else options


def _images_beside(file: Path, options: DataOptions) -> list[Path]:
    """Image files that a table names and that are there; the others are reported when they are read."""
    if not options.image_column:
        return []
    raws: list[RAW | None] = tables.image_cells(tables.read_table(file), options.image_column)[0]
    return [raw for raw in raws if isinstance(raw, Path) and raw.is_file()]


def fill_columns(table: tables.TableFile, options: DataOptions) -> DataOptions:
    """Options with the usual column names where the user named none; a table with no content is refused."""
    found = {what: next((n for n in names if n in table.rows.column_names), "") for what, names in USUAL.items()}
    label = options.label_column or found["label"]
    site = options.site_column or found["site"]
    image, text = options.image_column, options.text_column
    if image and text:
        raise DataError(f"image_column = {image} and text_column = {text}: give one of them")
    if not image and not text:
        image, text = found["image"], "" if found["image"] else found["text"]
    if not image and not text:
        names = ", ".join(table.rows.column_names)
        raise DataError(f"{table.path}: name its text_column or image_column; it has: {names}")
    return replace(options, image_column=image, text_column=text, label_column=label, site_column=site)
