"""A folder of images: one subfolder per class, and ``unlabeled/`` for those that nobody has labelled.

Images that lie beside the subfolders have no label either. With subfolders ``train`` and ``test`` (also ``Train``,
``training``, ``testing``) and no others, each of these is such a folder. Links to folders are followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from chase.core.errors import DataError

UNLABELED = ("unlabeled", "unlabelled")
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".dcm", ".wav"},
)
PARTS = ("train", "test", "validation")
ROLES = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(
    ("val", "valid", "validation", "dev"), "validation"
)
"""Which of ``PARTS`` subfolders called like this are, in any case of letters."""
ARCHIVERS = "__MACOSX"
"""A folder that macOS puts into ZIP archives, with a file of metadata for each image."""


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is not looked at."""
    return name.startswith(".") or name == ARCHIVERS


def subfolders(root: Path) -> list[str]:
    """Names of the folders inside, hidden ones apart."""
    try:
        return sorted(p.name for p in root.iterdir() if p.is_dir() and not is_hidden(p.name))
    except OSError as error:
        raise DataError(f"cannot read folder {root}: {error.strerror or error}") from None


def parts_of(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and, if there is one, the folder to test on."""
    names = subfolders(root)
    roles = {name: ROLES.get(name.lower(), "") for name in names}
    if not _is_divided(root, roles):
        return root, None
    if sorted(roles.values()) == ["test", "train"]:
        first, second = sorted(names, key=lambda name: roles[name], reverse=True)
        return root / first, root / second
    known = sorted((name for name in names if roles[name]), key=lambda name: PARTS.index(roles[name]))
    train = known[0]
    second = next((name for name in known if roles[name] != roles[train]), "")
    do = f"give {root / train} as the data" + (f" and {root / second} as the setting test_data" if second else "")
    odd = [name for name in names if name not in (train, second)]
    if odd and roles[train] == "train" and roles.get(second) == "test":
        do = f"move {', '.join(odd)} elsewhere, or {do}"
    raise DataError(
        f"{root} has the folders {', '.join(names)}, which look like parts of a data set and not like classes; only "
        f"one for training and one for testing are read: {do}"
    )


def _is_divided(root: Path, roles: dict[str, str]) -> bool:
    """Whether the subfolders are parts of a data set, by their names and by what is in them; else they are classes."""
    found = set(roles.values()) - {""}
    deep = any(role and subfolders(root / name) for name, role in roles.items())
    if all(role or name in UNLABELED for name, role in roles.items()):
        return bool(found) and (deep or {"train"} < found)  # without folders inside, "dev" and "test" may be classes
    return deep and {"train"} < found


def image_files(root: Path) -> tuple[list[Path], tuple[str, ...]]:
    """All image files, sorted, hidden ones apart, and what else is there."""
    inside = sorted(_files_below(root))
    files = [p for p in inside if p.suffix.lower() in SUFFIXES]
    if not files:
        raise DataError(
            f"{root} holds no images: put them into {root}/CLASS/ and {root}/unlabeled/ "
            f"as {', '.join(sorted(SUFFIXES))}"
        )
    problems: list[str] = []
    filled = {p.relative_to(root).parts[0] for p in files}
    problems += [f"folder {root / name} holds no image" for name in subfolders(root) if name not in filled]
    loose = sum(p.parent == root for p in files)
    if loose and len(filled) > loose:
        problems.append(f"{loose} images lie in {root} itself, outside of the class folders: they have no label")
    odd = [p for p in inside if p.suffix.lower() not in SUFFIXES]
    if odd:
        problems.append(
            f"{len(odd)} files do not have an image file name (first: {_shown(str(odd[0].relative_to(root)))})"
        )
    return files, tuple(problems)


def _files_below(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All files that are not hidden; a link to a folder is followed unless it leads back to one that it lies in."""
    here = os.path.realpath(folder)
    if here in above:
        return
    try:
        names = os.listdir(folder)
    except OSError:  # nothing is found in it, and that is reported
        return
    for place in (folder / name for name in names if not is_hidden(name)):
        if os.path.isdir(place):  # unlike Path.is_dir it is false for what must not be looked at
            yield from _files_below(place, above | {here})
        elif os.path.isfile(place):
            yield place


def refuse_names(names: Iterable[str]) -> None:
    """Refuse a file or folder whose name is not UTF-8: it could be neither printed nor found again by its name."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(f"the file name {_shown(name)} is not UTF-8: rename it") from None


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def label_of(file: Path, root: Path) -> str | None:
    """The class that an image's folder is called like; None for the unlabelled."""
    parts = file.relative_to(root).parts
    return None if len(parts) < 2 or parts[0] in UNLABELED else parts[0]


def class_folders(root: Path) -> tuple[str, ...]:
    """Class names by folder."""
    return tuple(name for name in subfolders(root) if name not in UNLABELED)
