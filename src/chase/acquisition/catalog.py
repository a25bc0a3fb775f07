"""Methods by name: a strategy together with the parts of CHASe that it uses by default."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from chase.acquisition.badge import Badge
from chase.acquisition.balanced_margin import BalancedMargin
from chase.acquisition.bald import Bald
from chase.acquisition.coreset import CoreSet
from chase.acquisition.entropy import Entropy
from chase.acquisition.epistemic import EpistemicVariation, NumberClass, WithGlobalVariation
from chase.acquisition.fairfal import FairFal
from chase.acquisition.feal import Feal
from chase.acquisition.hybrid import Hybrid
from chase.acquisition.ifal import Ifal
from chase.acquisition.ksas import Ksas
from chase.acquisition.least_confidence import LeastConfidence
from chase.acquisition.ll4al import LearningLoss
from chase.acquisition.logo import LoGo, LoGoChase
from chase.acquisition.margin import Margin
from chase.acquisition.posterior import Posterior
from chase.acquisition.random import Random
from chase.acquisition.strategy import NEEDS, AcquisitionStrategy
from chase.acquisition.tod import TemporalDiscrepancy
from chase.acquisition.typical import Typical
from chase.core import plugins
from chase.core.errors import SettingsError, unknown


@dataclass(frozen=True)
class MethodEntry:
    """What a name stands for; the settings align, freeze, subset and loss override the defaults."""

    about: str
    strategy: Callable[..., AcquisitionStrategy]
    align: str = "none"
    freeze: bool = False
    subset: bool = False
    loss: str = "cross-entropy"
    options: tuple[str, ...] = ()
    """Settings that the strategy is made with."""

    def make(self, settings: Mapping[str, Any]) -> AcquisitionStrategy:
        """The strategy, with its options out of the settings."""
        return self.strategy(**{name: settings[name] for name in self.options})


METHODS: dict[str, MethodEntry] = {
    "chase": MethodEntry(
        "highest epistemic variation (EV), with alignment loss, freezing and subsets",
        EpistemicVariation,
        "both",
        True,
        True,
    ),
    "ev": MethodEntry("CHASe without alignment", EpistemicVariation, "none", True, True),
    "number-class": MethodEntry("ev, scored EV + distinct classes", NumberClass, "none", True, True),
    "+gev": MethodEntry("ev, scored EV + |H(global) - H(local)|", WithGlobalVariation, "none", True, True),
    "hybrid": MethodEntry(
        "ev, its ties broken by hybrid_keys", Hybrid, freeze=True, subset=True, options=("hybrid_keys",)
    ),
    "random": MethodEntry("random selection (FedRandom)", Random),
    "entropy": MethodEntry("highest entropy (FedEntropy; model = global: FAL)", Entropy),
    "margin": MethodEntry("smallest difference of the two likeliest classes", Margin),
    "balanced-margin": MethodEntry("margin, evenly over predicted classes, few labels first", BalancedMargin),
    "least-confidence": MethodEntry("lowest probability of the likeliest class", LeastConfidence),
    "coreset": MethodEntry("k-centre greedy on features (FedCoreset; model = global: FAL)", CoreSet),
    "ll4al": MethodEntry("highest predicted loss (FedLL4AL; model = global: FAL)", LearningLoss),
    "bald": MethodEntry("disagreement of passes with dropout", Bald, options=("mc_passes", "mc_dropout")),
    "badge": MethodEntry("k-means++ seeding on last-layer gradients", Badge),
    "posterior": MethodEntry("largest posterior variance of a ridge model, updated after each pick", Posterior),
    "typical": MethodEntry("covers the client's own density (MaxHerding); needs no label", Typical),
    "tod": MethodEntry("temporal output discrepancy", TemporalDiscrepancy),
    "ksas": MethodEntry("disagreement of local and global model in own classes", Ksas),
    "kafal": MethodEntry("ksas with the loss KCFU", Ksas, loss="kcfu"),
    "logo": MethodEntry("clusters of a local-only model, entropy of the global", LoGo),
    "logo-chase": MethodEntry("logo with the previous local model and plain features", LoGoChase),
    "feal": MethodEntry("evidential uncertainty of both models, near neighbours passed over", Feal),
    "fairfal": MethodEntry("equal quotas of pseudo-classes, then diverse gradients", FairFal),
    "ifal": MethodEntry("disagreement of neighbours in local, global and distilled features", Ifal),
}


def _copied(name: str, strategy: AcquisitionStrategy) -> AcquisitionStrategy:
    """A new copy for every use: what it kept from turn to turn would differ between engines."""
    try:
        return copy.deepcopy(strategy)
    except Exception as error:
        raise SettingsError(
            f"strategy '{name}' cannot be copied ({type(error).__name__}: {error}): leave what cannot be copied out of "
            "it, or pass its class"
        ) from error


def find_method(name: str) -> MethodEntry:
    """A method by name, or a strategy of one's own: an object, of another package, or ``package.module:Class``."""
    if name in METHODS:
        return METHODS[name]
    made = plugins.find("strategy", name, METHODS)
    if isinstance(made, MethodEntry):
        return made
    if isinstance(made, functools.partial):
        made = made()
    if not hasattr(made, "select") or not hasattr(made, "needs"):
        raise SettingsError(f"strategy '{name}' needs an attribute `needs` and a method `select`")
    odd = sorted(set(made.needs) - set(NEEDS)) if isinstance(made.needs, frozenset | set) else []
    if odd:
        raise SettingsError(unknown(f"need of strategy '{name}'", odd[0], NEEDS))
    return MethodEntry(name, cast(Any, made) if inspect.isclass(made) else lambda: _copied(name, made))
