"""Methods by name: a strategy together with the parts of CHASe that it uses by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chase.acquisition.epistemic import EpistemicVariation, NumberClass, WithGlobalVariation
from chase.acquisition.random import Random
from chase.acquisition.strategy import AcquisitionStrategy
from chase.core.errors import SettingsError, unknown
from chase.models.catalog import load_object


@dataclass(frozen=True)
class Method:
    """What a name stands for; the settings align, freeze and subset override the defaults."""

    about: str
    strategy: Callable[[], AcquisitionStrategy]
    align: str = "none"
    freeze: bool = False
    subset: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """What the strategy needs kept."""
        return frozenset(self.strategy().needs)


METHODS: dict[str, Method] = {
    "chase": Method("EV, alignment, freeze-awaken, subset", EpistemicVariation, "both", True, True),
    "ev": Method("CHASe without alignment", EpistemicVariation, "none", True, True),
    "number-class": Method("ev, scored EV + distinct classes", NumberClass, "none", True, True),
    "+gev": Method("ev, scored EV + |H(global) - H(local)|", WithGlobalVariation, "none", True, True),
    "random": Method("random selection (FedRandom)", Random),
}


def find_method(name: str) -> Method:
    """A method by name, or a strategy of one's own as ``package.module:Class``."""
    if ":" in name:
        made = load_object("strategy", name)
        if not hasattr(made, "select") or not hasattr(made, "needs"):
            raise SettingsError(f"strategy '{name}' needs an attribute `needs` and a method `select`")
        return Method(name, made)
    if name not in METHODS:
        raise SettingsError(unknown("strategy", name, METHODS))
    return METHODS[name]
