"""A folder of images: one subfolder per class, and ``unlabeled/`` for those that nobody has labelled.

Images that lie beside the subfolders have no label either. With subfolders ``train`` and ``test`` and no others, each
of these is such a folder.
"""

from __future__ import annotations

from pathlib import Path

from chase.core.errors import DataError

UNLABELED = ("unlabeled", "unlabelled")
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".dcm", ".wav"},
)


def subfolders(root: Path) -> list[str]:
    """Names of the folders inside, hidden ones apart."""
    try:
        return sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise DataError(f"cannot read folder {root}: {error.strerror or error}") from None


def parts_of(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and, if there is one, the folder to test on."""
    if set(subfolders(root)) == {"train", "test"}:
        return root / "train", root / "test"
    return root, None


def image_files(root: Path) -> tuple[list[Path], tuple[str, ...]]:
    """All image files, sorted, hidden ones apart, and what else is there."""
    inside = sorted(p for p in root.rglob("*") if p.is_file())
    inside = [p for p in inside if not any(part.startswith(".") for part in p.relative_to(root).parts)]
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
        problems.append(f"{len(odd)} files do not have an image file name (first: {odd[0].relative_to(root)})")
    return files, tuple(problems)


def label_of(file: Path, root: Path) -> str | None:
    """The class that an image's folder is called like; None for the unlabelled."""
    parts = file.relative_to(root).parts
    return None if len(parts) < 2 or parts[0] in UNLABELED else parts[0]


def class_folders(root: Path) -> tuple[str, ...]:
    """Class names by folder."""
    return tuple(name for name in subfolders(root) if name not in UNLABELED)
