"""How to build the model that settings name: a network, or a closed-form model."""

from __future__ import annotations

from chase.closed_form.catalog import BY_KIND
from chase.closed_form.feature_map import InputSpec
from chase.closed_form.model import NAME, FeatureSpec
from chase.data.resident import Samples
from chase.models.catalog import NetSpec
from chase.settings import Settings


def net_spec(settings: Settings, samples: Samples, num_classes: int) -> NetSpec:
    """The model for these samples."""
    if settings.learner == "network":
        return NetSpec.of(settings.net, samples, num_classes, settings.dropout, settings.init)
    return closed_form_spec(settings, InputSpec.of(samples), samples.shape, num_classes)


def closed_form_spec(settings: Settings, inputs: InputSpec, shape: tuple[int, ...], num_classes: int) -> NetSpec:
    """The closed-form model for samples of this kind and shape."""
    about = FeatureSpec(
        features=BY_KIND[inputs.kind] if settings.features == "auto" else settings.features,
        inputs=inputs,
        filters=settings.filters,
        passes=settings.fit_passes,
        text_features=settings.text_features,
        levels=settings.levels,
        seed=settings.feature_seed,
        net=settings.net if settings.features == "net" else "",
        init=settings.init,
    )
    return NetSpec(NAME, shape, num_classes, 0.0, inputs.vocabulary, settings.init, about.to_text())
