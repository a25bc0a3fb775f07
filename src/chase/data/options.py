"""How a data set is read: the settings that concern data alone, as one frozen value."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from chase.data.texts import Tokens

Normalisation = Literal["statistics", "authors", "half"]
"""Mean and deviation of the training set; those in the code of the paper's authors; 0.5 and 0.5."""


@dataclass(frozen=True)
class DataOptions:
    """What a user may say about a data set; empty and zero mean "as the data set says"."""

    data_dir: str = ""
    """Directory of NAME/train.parquet files; goes before CHASE_DATA."""
    test_data: str = ""
    """Own data: a second path of the same kind, for testing."""
    test_share: float = 0.2
    """Share held out for testing where the data has no test part."""
    image_column: str = ""
    text_column: str = ""
    label_column: str = ""
    site_column: str = ""
    id_column: str = ""
    """The user's own name of each row; else its path, else its place in the file."""
    columns: tuple[str, ...] = ()
    """Columns of numbers and categories, or one column of vectors; ``name:category`` says what a column is."""
    encoding: str = ""
    """Encoding of CSV files that are not UTF-8."""
    classes: tuple[str, ...] = ()
    """Class names in order; a label outside the list is refused."""
    image_size: int = 0
    """Height and width to which images are resized, once."""
    channels: int = 0
    """1 grey, 3 colour."""
    mean: tuple[float, ...] = ()
    """Per channel, of values from 0 to 1; own data has its training part's."""
    std: tuple[float, ...] = ()
    scale: tuple[float, float] | tuple[()] = ()
    """The lowest and the highest value of wide images; own data has that of its training part."""
    normalisation: Normalisation = "statistics"
    """Which mean and deviation the pixels are normalised with; applied after decoding."""
    audio_seconds: float = 0.0
    """Length of recordings; longer ones are cut, shorter ones end in silence. 0 = as the longest, at most 10."""
    bad_images: Literal["fail", "skip"] = "fail"
    tokens: Tokens = "words"
    text_length: int = 64
    """Words or characters kept per text; 8 times as many bytes."""

    def key(self) -> str:
        """The options that decide what is decoded, as text for the cache key."""
        values = dataclasses.asdict(self)
        del values["data_dir"], values["test_data"], values["normalisation"]
        return json.dumps(values, sort_keys=True)
