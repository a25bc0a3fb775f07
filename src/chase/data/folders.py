"""A folder of images: one subfolder a class, and ``unlabeled/`` for those that nobody has labelled.

With subfolders ``train`` and ``test`` and no others, each of these is such a folder.
"""

from __future__ import annotations

from pathlib import Path

from chase.core.errors import DataError
from chase.data.assemble import Raw
from chase.data.images import decode
from chase.data.options import DataOptions

UNLABELED = ("unlabeled", "unlabelled")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


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
    """All image files in class folders, sorted, and what else is there."""
    files: list[Path] = []
    problems: list[str] = []
    for name in subfolders(root):
        inside = sorted(p for p in (root / name).rglob("*") if p.is_file() and not p.name.startswith("."))
        images = [p for p in inside if p.suffix.lower() in SUFFIXES]
        files += images
        if not images:
            problems.append(f"folder {root / name} holds no image")
        if len(inside) > len(images):
            odd = next(p for p in inside if p.suffix.lower() not in SUFFIXES)
            problems.append(f"{len(inside) - len(images)} files are no images by their name (first: {odd})")
    if not files:
        raise DataError(
            f"{root} holds no images in subfolders: put them into {root}/CLASS/ and {root}/unlabeled/ "
            f"as {', '.join(sorted(SUFFIXES))}"
        )
    return files, tuple(problems)


def read_folder(root: Path, options: DataOptions) -> Raw:
    """Images and labels of one folder."""
    files, problems = image_files(root)
    images = decode(files, [str(f) for f in files], options)
    kept = [files[row].relative_to(root).parts[0] for row in images.kept.tolist()]
    labels = [None if name in UNLABELED else name for name in kept]
    return Raw("image", images.pixels, labels, None, problems + images.problems, scale=images.scale)


def class_folders(root: Path) -> tuple[str, ...]:
    """Class names by folder."""
    return tuple(name for name in subfolders(root) if name not in UNLABELED)
