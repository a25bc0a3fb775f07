"""The data sets that are known by name: where they are on the hub, their columns and their normalisation.

Mean and standard deviation are those of the full training sets, per channel, as usual in the field. Beside them
stand the values that the code of the paper's authors uses, where it differs or says them (normalisation = authors).
"""

from __future__ import annotations

from dataclasses import dataclass

from chase.data.options import DataOptions


@dataclass(frozen=True)
class Known:
    """One named data set."""

    about: str
    hub: str
    """Hugging Face hub id, with the configuration after a colon where there is one."""
    options: DataOptions
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    authors: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation in the code of the paper's authors; None where it does not use the data set."""
    by_role: bool = False
    """Windows of text by speaking role, see ``roles``."""
    idx: bool = False
    """The hub has gzip-compressed IDX files (emnist-byclass-train-images-idx3-ubyte.gz and so on)."""


def _images(image: str, label: str, channels: int, site: str = "") -> DataOptions:
    return DataOptions(image_column=image, label_column=label, channels=channels, site_column=site)


KNOWN: dict[str, Known] = {
    "mnist": Known(
        "handwritten digits, 28x28 grey, 10 classes",
        "ylecun/mnist",
        _images("image", "label", 1),
        (0.1307,),
        (0.3081,),
        authors=((0.1307,), (0.3081,)),
    ),
    "fashion-mnist": Known(
        "pieces of clothing, 28x28 grey, 10 classes",
        "zalando-datasets/fashion_mnist",
        _images("image", "label", 1),
        (0.2860,),
        (0.3530,),
    ),
    "emnist": Known(
        "handwritten digits and letters (byclass), 28x28 grey, 62 classes",
        "Royc30ne/emnist-byclass",
        _images("image", "label", 1),
        (0.1736,),
        (0.3317,),
        authors=((0.1307,), (0.3081,)),
        idx=True,
    ),
    "femnist": Known(
        "EMNIST by writer, 28x28 grey, 62 classes",
        "flwrlabs/femnist",
        _images("image", "character", 1, "writer_id"),
        (0.1736,),
        (0.3317,),
    ),
    "cifar10": Known(
        "photographs, 32x32 colour, 10 classes",
        "uoft-cs/cifar10",
        _images("img", "label", 3),
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        authors=((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ),
    "cifar100": Known(
        "photographs, 32x32 colour, 100 classes",
        "uoft-cs/cifar100",
        _images("img", "fine_label", 3),
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        authors=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ),
    "shakespeare": Known(
        "next character of 80, by speaking role",
        "flwrlabs/shakespeare",
        DataOptions(text_column="x", label_column="y", site_column="character_id", text_length=80),
        by_role=True,
    ),
}
