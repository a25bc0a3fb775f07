"""The value that decides a run: all groups in one, checked, with what a method leaves open filled in."""

from __future__ import annotations

import math
from typing import Any

from pydantic import model_validator

from chase.acquisition.catalog import find_method
from chase.acquisition.strategy import AcquisitionStrategy
from chase.acquisition.uncertainty import LIVE
from chase.core import plugins
from chase.core.errors import SettingsError, unknown
from chase.core.text import split_list
from chase.data.options import DataOptions
from chase.data.texts import Tokens
from chase.server.aggregation import find_server
from chase.settings.choices import ALL_CLIENTS, FEATURES, LOGGERS, NAMED, RECOMMENDATION, RECOMMENDED
from chase.settings.groups import (
    AnnotatorSettings,
    ClientSettings,
    DataSettings,
    EngineSettings,
    FederationSettings,
    ModelSettings,
    OutputSettings,
    RunSettings,
    SelectionSettings,
    TrainingSettings,
)


class Settings(  # the last group first: pydantic collects the fields of the last base first
    OutputSettings,
    EngineSettings,
    RunSettings,
    FederationSettings,
    AnnotatorSettings,
    SelectionSettings,
    TrainingSettings,
    ModelSettings,
    ClientSettings,
    DataSettings,
):
    """Everything that decides a run: the fields of all groups, flat."""

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        for kind, names in NAMED.items():
            value = getattr(self, kind)
            if value is not None:
                plugins.check_name(kind, value, names)
        for name in self.log_to:
            if name not in LOGGERS:
                raise ValueError(unknown("logger", name, LOGGERS))
        return self

    def resolved(self) -> Settings:
        """The same with the method's own choices filled in, and the choices checked together."""
        if self.strategy == RECOMMENDED:
            if self.learner == "network" and "learner" in self.model_fields_set:
                raise SettingsError(
                    f"strategy '{RECOMMENDED}' stands for learner = '{RECOMMENDATION['learner']}' with strategy "
                    f"'{RECOMMENDATION['strategy']}', and learner = 'network' was given: leave learner out, or name a "
                    "strategy (--strategy chase)"
                )
            return self.model_copy(update=RECOMMENDATION).resolved()
        method, whole_pool = find_method(self.strategy), self.form == "cycles"
        fill: dict[str, Any] = {
            "align": method.align if self.align is None else self.align,
            "freeze": method.freeze and not whole_pool if self.freeze is None else self.freeze,
            "subset": method.subset and not whole_pool if self.subset is None else self.subset,
            "loss": method.loss if self.loss is None else self.loss,
            "server_lr": find_server(self.server).lr if self.server_lr is None else self.server_lr,
        }
        if self.owners == "all":
            fill |= {"partition": "natural", "min_owned": 0}
        if self.learner == "closed-form":
            fill |= self._closed_form_choices()
        fill["awaken"] = fill["freeze"] if self.awaken is None else self.awaken
        full = self.model_copy(update=fill)
        full._check_together()
        return full

    def _closed_form_choices(self) -> dict[str, Any]:
        """What a method leaves open, where nothing is trained; choices that need a trained network are refused."""
        trained = {
            "head": self.head != "trained",
            "align": self.align not in (None, "none"),
            "loss": self.loss == "kcfu",
            "augment": self.augment,
            "prox": self.prox > 0,
            "form": self.form in ("cycles", "reset"),
            "server": self.server != "fedavg",
            "device": self.device != "cpu",
        }
        wrong = [key for key, given in trained.items() if given]
        if wrong:
            raise SettingsError(
                f"{wrong[0]} = {getattr(self, wrong[0])!r}, but learner = 'closed-form' trains no network: leave it out"
            )
        if self.class_weights != "none":
            raise SettingsError(
                f"class_weights = '{self.class_weights}' changes how a network is trained, but learner = 'closed-form' "
                "trains none: leave it out and set main_metric=balanced-accuracy, or choose a strategy other than "
                "recommended with learner=network"
            )
        if self.strategy in ("ll4al", "bald", "kafal"):
            raise SettingsError(
                f"strategy '{self.strategy}' needs a network that is trained, and learner = 'closed-form' has none: "
                "use margin, badge or another, or learner=network"
            )
        if self.features == "net" and not self.init_weights:
            raise SettingsError("features = 'net' use a trained network: set init_weights to its safetensors file")
        try:
            plugins.check_name("features", self.features, ("auto", *FEATURES))
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return {"align": "none", "loss": "cross-entropy", "model": "global"}

    def _check_together(self) -> None:
        if self.tokens == "bytes" and self.learner != "closed-form":
            raise SettingsError("tokens = 'bytes' is for learner = 'closed-form'; networks take words or characters")
        if self.engine == "ray" and (self.annotator == "page" or self.device != "cpu"):
            what = "annotator = 'page'" if self.annotator == "page" else f"device = '{self.device}'"
            raise SettingsError(
                f"{what} works on one machine only, but engine = 'ray': use engine=workers or inprocess"
            )
        if self.annotator == "page" and self.page_client >= self.clients:
            raise SettingsError(
                f"page_client = {self.page_client}, but clients are numbered 0 to {self.clients - 1}: choose one"
            )
        if self.test_answers and not (self.annotator == "page" and self.page_client == ALL_CLIENTS):
            raise SettingsError(
                f"test_answers = {self.test_answers} keeps answers of people apart to measure on, so people must label "
                "for all clients: use --annotator page --page-client all, or leave it out"
            )
        if self.local_epochs < 2 and (self.tracks_ev or self.observe_ev):
            why = "strategy" if "label_changes" in self.needs else "freeze, align, track_ev or observe_ev"
            raise SettingsError(
                f"local_epochs = {self.local_epochs}, but epistemic variation compares epochs and needs at "
                f"least 2 ({why} = {self.strategy if why == 'strategy' else 'on'}): set local_epochs=2 or more"
            )
        if self.head == "closed-form" and self.form == "isolated":
            raise SettingsError(
                "head = 'closed-form' is solved from sums over all clients, but form = 'isolated' keeps them apart: "
                "set only one of them"
            )
        if self.temperature == "leave-one-out" and (self.learner == "network" or self.form == "isolated"):
            raise SettingsError(
                "temperature = 'leave-one-out' is for learner = 'closed-form' and one global model: leave it out"
            )
        if self.live and self.learner == "network":
            raise SettingsError(
                "live = true re-ranks questions with a solved head, but learner = 'network' trains one: set "
                "learner=closed-form, or leave live out"
            )
        if self.live and self.strategy not in LIVE:
            raise SettingsError(
                f"live = true computes a strategy's order again after each answer, which strategy '{self.strategy}' "
                f"does not allow: use {', '.join(LIVE[:-1])} or {LIVE[-1]}, or leave live out"
            )
        if self.normalisation != "statistics" and (self.channel_mean or self.channel_std):
            raise SettingsError(
                f"normalisation = '{self.normalisation}' and channel_mean or channel_std are both set: remove one"
            )
        if self.loss != "cross-entropy" and "loss_module" in self.needs:
            raise SettingsError(
                f"loss = '{self.loss}', but strategy '{self.strategy}' trains with its own loss: leave `loss` out"
            )
        if self.model == "global" and "model" not in self.needs and self.learner == "network":
            raise SettingsError(
                f"model = 'global', but strategy '{self.strategy}' does not choose between the local and the "
                "global model: leave `model` out"
            )

    @property
    def acquisition(self) -> AcquisitionStrategy:
        """The strategy, made as these settings say."""
        method = find_method(self.strategy)
        return method.make({name: getattr(self, name) for name in method.options})

    @property
    def needs(self) -> frozenset[str]:
        """What the strategy needs kept."""
        return frozenset(self.acquisition.needs)

    @property
    def keeps_local_model(self) -> bool:
        """Whether a client keeps its last local weights."""
        if self.learner == "closed-form":
            return bool(self.needs & {"local_model", "before"}) or self.form == "isolated"
        reads_local = "model" in self.needs and self.model == "local"
        reads_before = "before" in self.needs
        return reads_local or reads_before or "local_model" in self.needs or self.aligns or self.form == "isolated"

    @property
    def keeps_model_before(self) -> bool:
        """Whether a client also keeps the local weights of the turn before."""
        return "before" in self.needs and self.model == "local"

    @property
    def data_options(self) -> DataOptions:
        """The settings that say how data is read."""
        return DataOptions(
            data_dir=self.data_dir,
            test_data=self.test_data,
            test_share=self.test_share,
            image_column=self.image_column,
            text_column=self.text_column,
            label_column=self.label_column,
            site_column=self.site_column,
            id_column=self.id_column,
            columns=split_list(self.columns),
            encoding=self.encoding,
            classes=split_list(self.classes),
            image_size=self.image_size,
            channels=self.channels,
            normalisation=self.normalisation,
            mean=_numbers("channel_mean", self.channel_mean),
            std=_numbers("channel_std", self.channel_std),
            scale=_range("pixel_range", self.pixel_range),
            audio_seconds=self.audio_seconds,
            bad_images=self.bad_images,
            tokens=self.kept_tokens,
            text_length=self.text_length,
        )

    @property
    def kept_tokens(self) -> Tokens:
        """What is kept of own texts."""
        if self.tokens != "auto":
            return self.tokens
        hashes = self.learner == "closed-form" and self.features in ("auto", "hashed-text")
        return "bytes" if hashes or self.strategy == RECOMMENDED else "words"

    @property
    def people_only(self) -> bool:
        """Whether people are the only annotators: no client is simulated beside them."""
        return self.annotator == "page" and (self.page_client == ALL_CLIENTS or self.clients == 1)

    @property
    def waits(self) -> float:
        """Seconds that a round waits for answers of people; infinite where they are the only annotators."""
        if self.wait is not None:
            return self.wait
        return math.inf if self.people_only else 0.0

    @property
    def aligns(self) -> bool:
        """Whether an alignment loss is part of training."""
        return self.align not in (None, "none") and self.mu > 0

    @property
    def needs_ev(self) -> bool:
        """Whether the method itself needs predictions tracked (only meaningful once resolved)."""
        return bool("label_changes" in self.needs or self.freeze or self.aligns)

    @property
    def tracks_ev(self) -> bool:
        """Whether training tracks predictions: because the method needs it, or only to observe it."""
        return self.needs_ev or self.track_ev

    @property
    def watches(self) -> bool:
        """Whether a client draws a set of samples to watch each turn."""
        return bool(self.tracks_ev or self.subset)


def _numbers(key: str, text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in split_list(text))
    except ValueError:
        raise SettingsError(f"{key} = {text!r} is invalid: give numbers separated by commas") from None


def _range(key: str, text: str) -> tuple[float, float] | tuple[()]:
    """Two rising numbers separated by a comma, or nothing."""
    numbers = _numbers(key, text)
    if not numbers:
        return ()
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise SettingsError(f"{key} = {text!r} is invalid: give the lowest and the highest value, for example 0,4095")
    return numbers[0], numbers[1]
