"""Where a network has its dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Form:
    """Dropout of 1/2 after the first and the second convolution and after the first hidden layer."""

    first: bool
    second: Literal["none", "element", "channel"]
    hidden: bool
