"""One part of a user's own data, whatever it is: a folder or files of images, or a table, read for a run or a site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chase.core.errors import DataError
from chase.data import columns, folders
from chase.data.assemble import Raw
from chase.data.images import Images, decode
from chase.data.options import DataOptions
from chase.data.resident import Column
from chase.data.table_cells import ids_as_text, image_cells, labels_as_text, owners_as_text, refuse_other_tasks
from chase.data.tabular_files import DataTable, read_tables
from chase.data.texts import kept_of_a_text, tokenize


@dataclass(frozen=True)
class PartFiles:
    """Where one part of a data set is: a folder or files of images below ``root``, or the files of a table."""

    root: Path
    tables: tuple[Path, ...] = ()
    images: tuple[Path, ...] | None = None
    """Image files by name; None = all in ``root``."""
    named_from: Path | None = None
    """Names of images are relative to this folder; None = ``root``."""


def read_part(part: PartFiles, options: DataOptions, known: tuple[Column, ...] = ()) -> Raw:
    """The samples of one part; ``known`` are the columns of an earlier one."""
    if not part.tables:
        return read_folder(part, options)
    table = read_tables(part.tables, options.encoding)
    told = options.id_column == columns.NONE
    options = columns.fill_columns(table, options)
    if table.rows.num_rows == 0:
        raise DataError(f"{table.path} has no rows")
    if not options.image_column and not options.text_column:
        return read_features(table, options, known)
    raw = read_images(table, options) if options.image_column else read_texts(table, options)
    return replace(raw, problems=(*raw.problems, *(() if told else columns.useless_ids(table, options))))


def read_folder(part: PartFiles, options: DataOptions) -> Raw:
    """Images and the labels that their folders give."""
    root, named_from = part.root, part.named_from or part.root
    files, problems = folders.image_files(root) if part.images is None else (list(part.images), ())
    inside = [file.is_relative_to(root) for file in files]
    names = [str(f.relative_to(named_from)) if here else f.name for f, here in zip(files, inside, strict=True)]
    folders.refuse_names(names)
    labels = [folders.label_of(f, root) if here else None for f, here in zip(files, inside, strict=True)]
    return _image_samples(decode(files, names, options), labels, names, [str(file) for file in files], problems)


def read_images(table: DataTable, options: DataOptions) -> Raw:
    """Images of a column, as bytes or as paths beside the file."""
    labels, owners = _labels(table, options), owners_as_text(table, options.site_column)
    raws, paths = image_cells(table, options.image_column)
    names = ids_as_text(table, options.id_column, paths)
    shown = [f"{path} ({table.where(row)})" if path else f"in {table.where(row)}" for row, path in enumerate(paths)]
    images = decode(raws, shown, options)
    where = [table.where(row) for row in range(len(raws))]
    files = [path or "" if isinstance(raw, Path) else "" for raw, path in zip(raws, paths, strict=True)]
    kept = images.kept.tolist()
    return replace(
        _image_samples(images, labels, names, where, table.problems),
        owners=None if owners is None else pick(owners, kept),
        files=pick(files, kept),
    )


def _image_samples(
    images: Images, labels: Sequence[str | None], names: Sequence[str], where: Sequence[str], problems: tuple[str, ...]
) -> Raw:
    """Those of the samples whose images could be read."""
    kept = images.kept.tolist()
    return Raw(
        "image",
        images.pixels,
        pick(labels, kept),
        pick(names, kept),
        where=pick(where, kept),
        problems=problems + images.problems,
        scale=images.scale,
        seconds=images.seconds,
    )


def read_texts(table: DataTable, options: DataOptions) -> Raw:
    """Texts as tokens; an empty text stays, as padding only."""
    labels, owners = _labels(table, options), owners_as_text(table, options.site_column)
    texts = ["" if cell is None else str(cell) for cell in table.cells(options.text_column, "text")]
    empty = sum(not text.strip() for text in texts)
    problems = [f"{empty} texts of {table.path.name} are empty"] if empty else []
    tokens, vocabulary, cut = tokenize(texts, options.tokens, options.text_length)
    if cut:
        problems.append(
            f"{cut} of {len(texts)} texts ({cut / len(texts):.0%}) are longer than "
            f"{kept_of_a_text(options.tokens, options.text_length)} and were cut there: set text_length"
        )
    return Raw(
        "text",
        tokens,
        labels,
        ids_as_text(table, options.id_column),
        where=[table.where(row) for row in range(len(texts))],
        owners=owners,
        problems=(*table.problems, *problems),
        vocabulary=vocabulary,
        texts=texts,
    )


def read_features(table: DataTable, options: DataOptions, known: tuple[Column, ...]) -> Raw:
    """Vectors, or rows of numbers and categories."""
    raw = Raw(
        "vectors",
        (),  # type: ignore[arg-type]  # filled below
        _labels(table, options),
        ids_as_text(table, options.id_column),
        where=[table.where(row) for row in range(table.rows.num_rows)],
        owners=owners_as_text(table, options.site_column),
        problems=table.problems,
    )
    if columns.is_vectors(table, options):
        return replace(raw, inputs=columns.read_vectors(table, options.columns[0]))
    read = columns.read_rows(table, options.columns, known)
    problems = (*raw.problems, *columns.left_out_ids(table, options), *read.problems)
    return replace(raw, kind="table", inputs=read.values, columns=read.columns, problems=problems)


def _labels(table: DataTable, options: DataOptions) -> list[str | None]:
    labels = labels_as_text(table, options.label_column)
    if options.label_column and not options.classes:
        refuse_other_tasks(table, options.label_column, labels)
    return labels


def pick(cells: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """The cells of these rows."""
    return [cells[row] for row in rows]
