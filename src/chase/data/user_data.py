"""A user's own data as a whole: a folder of images, or a CSV or parquet file, with its test part, through the cache."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from chase.core.errors import DataError, MissingData
from chase.data import folders
from chase.data.assemble import Raw, assemble
from chase.data.cache import cached, content_key
from chase.data.columns import NONE, fill_columns, found_columns
from chase.data.decoded import Decoded
from chase.data.options import DataOptions
from chase.data.pictures import RAW
from chase.data.readers import PartFiles, read_part
from chase.data.table_cells import image_cells
from chase.data.tabular_files import TABLE_SUFFIXES, class_names, is_table_name, read_tables

TABLE = "table 2"
"""Part of the key of a cached table: changed when its samples are named or described otherwise."""
SHARD = re.compile(r"(train|test)(-\d+-of-\d+)?")
"""Names of table files that make up a part; the second form is that of the Hugging Face hub."""


def load_own(path: Path, options: DataOptions) -> Decoded:
    """The data set at a path, through the cache."""
    folders.refuse_names((str(path), options.test_data))
    train, test = parts_of(path, options)
    parts = [train] if test is None else [train, test]
    if train.tables:
        table = read_tables(train.tables, options.encoding)
        filled = fill_columns(table, options)
        options = replace(filled, id_column=NONE) if options.id_column == NONE else filled
        classes = options.classes or class_names(table, options.label_column)
        names = [TABLE, *(file.name for part in parts for file in part.tables)]
    else:
        classes = options.classes or folders.class_folders(train.root)
        folders.refuse_names(classes)
        names = ["folder", *(str(f.relative_to(path)) for p in parts if not p.tables for f in _images(p, path))]
    files = [file for part in parts for file in _files(part, options)]

    def make() -> Decoded:
        first = read_part(train, options)
        second = None if test is None else read_part(test, as_read(first, options), first.columns)
        share, mean, std = options.test_share, options.mean or None, options.std or None
        whole = assemble(path.name, first, second, classes=classes, test_share=share, mean=mean, std=std)
        return replace(whole, reading=found_columns(options)) if train.tables else whole

    return cached(path.name, content_key(files, options.key(), *names), make)


def parts_of(path: Path, options: DataOptions) -> tuple[PartFiles, PartFiles | None]:
    """Where the training and the test part are."""
    if not path.exists():
        raise MissingData(f"{path} does not exist: give a folder of images, a CSV or a parquet file")
    given = Path(options.test_data) if options.test_data else None
    if given is not None and not given.exists():
        raise MissingData(f"test_data = {given} does not exist")
    test = None if given is None else _one_part(given)
    if path.is_file():
        return _one_part(path), test
    folder, tables = tables_in(path)
    if "train" in tables:
        beside = PartFiles(folder, tables["test"]) if "test" in tables else None
        return PartFiles(folder, tables["train"]), test or beside
    train, second = folders.parts_of(path)
    beside = None if second is None else PartFiles(second, named_from=path)
    return PartFiles(train, named_from=path), test or beside


def pictures_of(path: Path, options: DataOptions) -> list[RAW]:
    """The pictures of both parts, not yet decoded; none where the data is of another kind."""
    found: list[RAW] = []
    for part in parts_of(path, options):
        if part is not None and not part.tables:
            found += folders.image_files(part.root)[0]
        elif part is not None:
            table = read_tables(part.tables, options.encoding)
            column = fill_columns(table, options).image_column
            found += [raw for raw in (image_cells(table, column)[0] if column else []) if raw is not None]
    return found


def _one_part(path: Path) -> PartFiles:
    if path.is_dir():
        return PartFiles(path)
    if not is_table_name(path):
        raise DataError(f"{path} is neither a table ({', '.join(TABLE_SUFFIXES)}) nor a folder of images")
    return PartFiles(path.parent, (path,))


def tables_in(path: Path) -> tuple[Path, dict[str, tuple[Path, ...]]]:
    """The tables ``train`` and ``test`` of a folder or of ``data`` in it, and where they are; nothing without any."""
    for folder in (path, path / "data"):
        found = _tables_in(folder)
        if "train" in found:
            return folder, found
    return path, {}


def shards_of(file: Path) -> tuple[Path, ...]:
    """All files of the part that a table file is a shard of; itself where it is alone."""
    parts = _tables_in(file.parent).values()
    return next((part for part in parts if file.name in [shard.name for shard in part]), (file,))


def _tables_in(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The files of each part, in order; of several kinds of files the first kind counts."""
    inside = sorted(file for file in folder.iterdir() if is_table_name(file)) if folder.is_dir() else []
    for suffix in TABLE_SUFFIXES:
        found: dict[str, list[Path]] = {}
        for file in inside:
            named = SHARD.fullmatch(file.stem.lower())
            if named and file.suffix.lower() == suffix:
                found.setdefault(named[1], []).append(file)
        if found:
            return {part: tuple(files) for part, files in found.items()}
    return {}


def _images(part: PartFiles, path: Path) -> list[Path]:
    files = folders.image_files(part.root)[0]
    return [file if file.is_relative_to(path) else path / file.relative_to(part.root) for file in files]


def _files(part: PartFiles, options: DataOptions) -> list[Path]:
    """All files whose content makes up a part; image files that are missing are reported when they are read."""
    if not part.tables:
        return folders.image_files(part.root)[0]
    if not options.image_column:
        return list(part.tables)
    raws = image_cells(read_tables(part.tables, options.encoding), options.image_column)[0]
    return [*part.tables, *(raw for raw in raws if isinstance(raw, Path) and raw.is_file())]


def as_read(first: Raw, options: DataOptions) -> DataOptions:
    """Options under which a second part comes out as the first did: the same channels, scale and length."""
    if first.kind != "image":
        return options
    return replace(options, channels=first.inputs.shape[1], scale=first.scale, audio_seconds=first.seconds)
