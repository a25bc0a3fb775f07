"""The settings of a run: one flat, validated, frozen value, its fields in groups.

Settings come from a preset or a TOML file, then from ``--strategy`` and ``--set key=value``. A file may
hold flat keys (``lr = 0.1``), groups (``[training]`` and below it ``lr = 0.1``) or both.
``Settings.resolved`` fills in what a method leaves open, so the file that is written into a run
directory says everything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from chase.acquisition.catalog import METHODS, find_method
from chase.acquisition.hybrid import DEFAULT_KEYS
from chase.acquisition.strategy import AcquisitionStrategy
from chase.acquisition.uncertainty import LIVE
from chase.core import plugins
from chase.core.errors import SettingsError, unknown
from chase.data.options import DataOptions, Normalisation
from chase.learning.losses import AlignOn
from chase.models.layers import Init
from chase.server.aggregation import SERVERS, ClientWeights, find_server

PRESETS = Path(__file__).parent / "presets"

LOGGERS = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}
"""What ``log_to`` may name, and the module that each is imported from."""

RECOMMENDED = "recommended"
"""A strategy's name that stands for ``RECOMMENDATION``."""
RECOMMENDATION: dict[str, Any] = {"learner": "closed-form", "strategy": "balanced-margin"}
"""What the study ``recommend`` found best; docs/decisions/0062 says how, and how far the choice is provisional."""
FEATURES = ("patches", "hashed-text", "table", "given", "net")
"""Feature maps of the closed-form learner."""

ALL_CLIENTS = -1
"""``page_client`` for a page on which people label every client."""

AlignMode = Literal["none", "local", "global", "both", "all-global"]


PARTITIONS = {
    "classes": "classes_per_client classes per client",
    "dirichlet": "shares of each class drawn from Dirichlet(alpha)",
    "iid": "every client alike",
    "natural": "by the owners that the data names",
    "shards-reference": "shards as in the authors' code; clients share samples",
}
LOSSES = {"cross-entropy": "mean cross-entropy", "kcfu": "KAFAL's knowledge-compensatory loss"}
ANNOTATORS = {
    "oracle": "simulated: the true labels, with wrong_labels and answer_delay",
    "page": "a person labels one client on the labelling page",
}
"""What these settings may name besides things of one's own."""


class SettingsGroup(BaseModel):
    """A group of settings; a new setting is one line in its group."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class DataSettings(SettingsGroup):
    """Which data set, and how its samples are read."""

    data: str = Field("digits", description="data set by name (see `chase list`), hub:owner/set or path")
    data_dir: str = Field("", description="directory of NAME/train.parquet files; also CHASE_DATA")
    image_column: str = Field("", description="own table: column of images or image paths")
    text_column: str = Field("", description="own table: column of texts")
    label_column: str = Field("", description="own table: column of labels; a cell may be empty")
    site_column: str = Field("", description="own table: column of owners, for partition = natural")
    id_column: str = Field("", description="own table: column of unique names of the rows (none = do not use one)")
    columns: str = Field(
        "", description="own table: columns to learn from, e.g. age,sex:category (empty = all but label, site and id)"
    )
    encoding: str = Field("", description="own CSV file that is not UTF-8: its encoding, e.g. cp1252")
    classes: str = Field("", description="own data: class names in order, separated by commas")
    test_data: str = Field("", description="own data: path of a test part")
    test_share: float = Field(0.2, gt=0, lt=1, description="own data: share held out where there is no test part")
    unlabeled: Literal["refuse", "leave-out"] = Field(
        "refuse", description="own data: what a simulated annotator does with samples that have no label"
    )
    test_limit: int = Field(0, ge=0, description="test on this many samples, drawn once (0 = all)")
    image_size: int = Field(0, ge=0, le=1024, description="resize images to this height and width (0 = as they are)")
    channels: Literal[0, 1, 3] = Field(0, description="own images: 1 grey, 3 colour, 0 as they are")
    channel_mean: str = Field(
        "", description="own images: normalisation mean per channel, from 0 to 1, separated by commas"
    )
    normalisation: Normalisation = Field(
        "statistics",
        description="images: statistics (mean and deviation of the training set), authors (the values in the code of "
        "the paper's authors) or half (0.5 and 0.5, so from -1 to 1)",
    )
    channel_std: str = Field(
        "", description="own images: normalisation standard deviation per channel, separated by commas"
    )
    pixel_range: str = Field(
        "", description="own images of more than 8 bits: lowest and highest value, for example 0,4095 (empty = found)"
    )
    audio_seconds: float = Field(
        0.0, ge=0, le=600, description="own WAV recordings: length (0 = as the longest, at most 10)"
    )
    bad_images: Literal["fail", "skip"] = Field("fail", description="what to do with unreadable images")
    tokens: Literal["words", "characters"] = Field("words", description="own texts: what a token is")
    text_length: int = Field(64, ge=1, le=4096, description="own texts: tokens kept of a text")


class ClientSettings(SettingsGroup):
    """How many clients, and which samples and first labels each holds."""

    clients: int = Field(10, ge=1, le=100_000, description="number of clients K")
    partition: str = Field("classes", description="how samples are divided among the clients")
    classes_per_client: int = Field(2, ge=1, description="C_k, for partition = classes")
    data_share: float = Field(
        1.0, gt=0, le=1, description="share of each client's samples that is used, for a quick look"
    )
    alpha: float = Field(0.1, gt=0, description="concentration, for partition = dirichlet")
    min_owned: int = Field(0, ge=0, description="natural: only owners with more samples than this")
    owners: Literal["some", "all"] = Field(
        "some",
        description="all = every owner that the data names is a client (sets partition = natural, clients and "
        "min_owned): 3,500 writers, 1,129 roles; some = as many as `clients` says",
    )
    initial_labels: float = Field(0.04, ge=0, le=1, description="share of each client labelled at the start")
    initial_per_class: int = Field(0, ge=0, description="at least this many initial labels of each class held")


class ModelSettings(SettingsGroup):
    """How a model is learnt: a network that the clients train, or fixed features and a head solved from sums."""

    learner: Literal["network", "closed-form"] = Field(
        "network",
        description="network (clients train by SGD, the server averages) or closed-form (fixed features; clients send "
        "sums over their labelled samples, the server solves a linear head)",
    )
    head: Literal["trained", "closed-form"] = Field(
        "trained",
        description="network: the last layer of the global model: trained (averaged like all others) or closed-form "
        "(solved every round from sums over the clients' labelled samples; clients train as before)",
    )
    features: str = Field(
        "auto", description="closed-form: feature map by name (see `chase list features`); auto = by the kind of data"
    )
    filters: int = Field(200, ge=8, le=1000, description="closed-form: patch filters of images")
    fit_passes: int = Field(6, ge=0, le=50, description="closed-form: passes of k-means over the clients' patches")
    feature_seed: int = Field(0, ge=0, le=2**62, description="closed-form: seed of what features draw, for all seeds")
    ridge: float = Field(
        0.0, ge=0, description="closed-form learner or head: ridge weight (0 = by generalised cross-validation)"
    )
    temperature: Literal["closed-form", "leave-one-out"] = Field(
        "closed-form",
        description="closed-form: how scores become probabilities: closed-form (from the sums alone) or leave-one-out "
        "(clients also send summed losses of their labelled samples, each left out; orders grow by features squared)",
    )
    min_labels: int = Field(
        0,
        ge=0,
        description="closed-form learner or head: labels that a client must have before it sends sums, for the learner "
        "also new ones that it must add (0 = 1 in simulation, 10 in a federation)",
    )
    net: str = Field("tiny-cnn", description="network by name, or package.module:function")
    init_weights: str = Field("", description="safetensors file to start from")
    init: Init = Field(
        "xavier",
        description="how first weights are drawn: xavier (Xavier normal, biases 0.01, as in the paper) or normal "
        "(N(0, 0.05), biases 0, as the authors' VGG-19)",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability of the network")


class TrainingSettings(SettingsGroup):
    """How a client trains in its turn."""

    augment: bool = Field(False, description="random crops and flips of training images")
    local_epochs: int = Field(10, ge=1, description="local epochs E")
    batch_size: int = Field(10, ge=1, description="labelled samples per step")
    lr: float = Field(0.01, gt=0, description="learning rate of local SGD")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="local optimiser; adam wants a smaller lr, e.g. 0.001")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced = every class of a client's labels counts the same in training"
    )
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of local SGD")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of local SGD")
    prox: float = Field(0.0, ge=0, description="FedProx: weight of prox/2 ||w - w_start||^2 in local training")
    loss: str | None = Field(None, description="labelled loss; unset = as the method says")
    align: AlignMode | None = Field(None, description="alignment loss; unset = as the method says")
    align_on: AlignOn = Field(
        "logits",
        description="what alignment compares: logits, or features (what the last layer sees: with vgg19-projection "
        "the projection's output, as in the authors' code)",
    )
    mu: float = Field(0.1, ge=0, description="weight of the alignment loss")
    tau: float = Field(0.5, gt=0, description="temperature of the alignment loss")


class SelectionSettings(SettingsGroup):
    """Which samples a client asks labels for, and which it watches and freezes."""

    strategy: str = Field("chase", description="method by name (see `chase list`), or package.module:Class")
    model: Literal["local", "global"] = Field(
        "local", description="which model a strategy scores with (the network itself is `net`)"
    )
    freeze: bool | None = Field(None, description="freeze samples of EV 0; unset = as the method says")
    awaken: bool | None = Field(None, description="awaken frozen samples when few are left; unset = as freeze")
    subset: bool | None = Field(None, description="watch a random subset only; unset = as the method says")
    subset_size: int = Field(500, ge=1, description="size N_s of the watched subset")
    beta: float = Field(0.4, gt=0, le=1, description="share of the dormant samples that is awakened")
    awaken_below: float = Field(3.0, ge=0, description="awaken when unlabelled < this times the budget")
    first_watch: int = Field(0, ge=0, description="cap on the watched samples of the first turn (0 = none)")
    track_ev: bool = Field(False, description="measure EV even where the method does not need it")
    observe_ev: int = Field(
        0,
        ge=0,
        description="also measure EV on this many samples of each client, the same for all methods",
    )
    hybrid_keys: list[str] = Field(list(DEFAULT_KEYS), description="keys in order, for strategy = hybrid")
    mc_passes: int = Field(20, ge=2, description="passes with dropout, for strategy = bald")
    mc_dropout: float = Field(0.5, gt=0, lt=1, description="dropout of those passes where the network has none")
    alone_epochs: int = Field(50, ge=1, description="most epochs of the local-only model, for strategy = logo")


class AnnotatorSettings(SettingsGroup):
    """Who labels, how many samples and how well."""

    behaviour: Literal["AbCo", "ReCo", "free"] = Field(
        "ReCo",
        description="how clients label: AbCo (absolute cooperation: `budget` in every turn), ReCo (relative "
        "cooperation: some little and rarely, some much and often) or free (`budget` every `period` turns)",
    )
    budget: int = Field(
        10,
        ge=0,
        description="labels per request, for behaviour = AbCo or free; 0 = no requests, with any behaviour",
    )
    period: int = Field(1, ge=1, description="turns between requests, for behaviour = free")
    wrong_labels: float = Field(0.0, ge=0, le=1, description="chance that an answer is wrong")
    answer_delay: int = Field(0, ge=0, description="turns until an answer comes")
    annotator: str = Field(
        "oracle", description="who labels: oracle (simulated, true labels) or page (a person labels one client)"
    )
    page_client: int = Field(
        0, ge=-1, description="the client a person labels, for annotator = page; all (or -1) = all of them on one page"
    )
    live: bool = Field(
        False,
        description="closed-form: on the labelling page, re-rank the waiting questions after each answer; for strategy "
        "= " + ", ".join(LIVE),
    )
    wait: float = Field(0.0, ge=0, description="seconds that a round waits for that person's answers")
    patience: int = Field(0, ge=0, description="turns until an unanswered sample returns (0 = never)")

    @field_validator("page_client", mode="before")
    @classmethod
    def _all_clients(cls, value: object) -> object:
        return ALL_CLIENTS if value == "all" else value


class FederationSettings(SettingsGroup):
    """Who takes part in a round, and what the server does with the updates."""

    form: Literal["continued", "cycles", "reset", "isolated"] = Field(
        "continued",
        description="one model throughout; fresh start and one request per cycle; fresh start per round; clients alone",
    )
    cycle_rounds: int = Field(25, ge=1, description="rounds per cycle, for form = cycles")
    cycle_budget: Literal["adaptive", "fixed"] = Field(
        "adaptive", description="labels per cycle: 0.05 % of the pool per round (1.25 % for 25), or fixed 2.5 %"
    )
    take_part: float = Field(1.0, gt=0, le=1, description="chance that a client takes part in a round")
    share_of_clients: float = Field(1.0, gt=0, le=1, description="exact share of the clients drawn each round")
    away: float = Field(
        0.0, ge=0, lt=1, description="clients come and go: share of them that is away at a time (the others take part)"
    )
    stay: int = Field(10, ge=1, description="rounds after which a client may come or go, for away above 0")
    client_weights: ClientWeights = Field(
        "labelled",
        description="weight of a client in the average: labelled (its number of labels, as in the paper), equal, or "
        "shuffled (label counts given to clients in random order, as the authors' code does)",
    )
    most_share: float = Field(
        1.0, gt=0, le=1, description="largest share of the average that one of three or more clients may have; 1 = any"
    )
    combine: Literal["mean", "median", "trimmed-mean"] = Field(
        "mean",
        description="how updates are combined: mean (weighted), or coordinate by coordinate and without weights the "
        "median, or the mean without the largest and smallest values",
    )
    trim: float = Field(0.2, ge=0, lt=0.5, description="share of the values that trimmed-mean discards at each end")
    server: str = Field("fedavg", description="how updates become the global model: " + ", ".join(SERVERS))
    server_lr: float | None = Field(None, gt=0, description="server learning rate; unset = as the server says")
    server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum (beta 1) of fedavgm and fedadam")
    server_beta2: float = Field(0.99, ge=0, lt=1, description="second-moment decay of fedadam")
    server_tau: float = Field(1e-3, gt=0, description="adaptivity of fedadam: keeps small moments from large steps")


class RunSettings(SettingsGroup):
    """How long a run takes, its seed and its evaluation."""

    rounds: int = Field(200, ge=1, description="communication rounds R")
    seed: int = Field(0, ge=0, le=2**62, description="seed of everything random")
    main_metric: Literal["accuracy", "balanced-accuracy", "macro-f1"] = Field(
        "accuracy", description="what decides on the test set: shown first, reached by `target_accuracy`, best by it"
    )
    target_accuracy: float = Field(
        0.0, ge=0, le=1, description="stop when the main metric reaches this on the test set (0 = never)"
    )
    total_budget: int = Field(
        0, ge=0, description="ask for at most this many labels in all, and end when they are given (0 = no limit)"
    )
    eval_every: int = Field(1, ge=1, description="evaluate on the test set every so many rounds")


class EngineSettings(SettingsGroup):
    """What computes; it decides the speed, not the result."""

    engine: Literal["auto", "inprocess", "workers", "ray"] = Field(
        "auto", description="how clients are run: worker processes where there are cores for them; ray = on a cluster"
    )
    ray_address: str = Field("", description="Ray cluster for engine = ray (empty = one started on this machine)")
    workers: int = Field(0, ge=0, le=1024, description="worker processes (0 = one per core)")
    kernels: Literal["auto", "plain"] = Field(
        "auto", description="plain = train the small networks by autograd, without the fused steps"
    )
    device: str = Field("cpu", description="where training runs: cpu, or cuda (then in one process)")


class OutputSettings(SettingsGroup):
    """What is written besides the run directory."""

    keep_best: bool = Field(True, description="also keep the model of the round with the highest test accuracy")
    gallery: bool | None = Field(
        None, description="show samples in report.html; unset = only those of data sets known by name"
    )
    log_to: list[str] = Field([], description="also log to: tensorboard, mlflow (extras)")


GROUPS: dict[str, type[SettingsGroup]] = {
    "data": DataSettings,
    "clients": ClientSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "selection": SelectionSettings,
    "annotator": AnnotatorSettings,
    "federation": FederationSettings,
    "run": RunSettings,
    "engine": EngineSettings,
    "output": OutputSettings,
}
"""The groups by the name that they have in TOML, in help and in docs; the docstring says what a group is about."""


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
        if self.engine == "ray" and (self.annotator == "page" or self.device != "cpu"):
            what = "annotator = 'page'" if self.annotator == "page" else f"device = '{self.device}'"
            raise SettingsError(
                f"{what} works on one machine only, but engine = 'ray': use engine=workers or inprocess"
            )
        if self.annotator == "page" and self.page_client >= self.clients:
            raise SettingsError(
                f"page_client = {self.page_client}, but clients are numbered 0 to {self.clients - 1}: choose one"
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
                "leave one out"
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
                f"normalisation = '{self.normalisation}' and channel_mean or channel_std are both given: leave one out"
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
            columns=_listed(self.columns),
            encoding=self.encoding,
            classes=_listed(self.classes),
            image_size=self.image_size,
            channels=self.channels,
            normalisation=self.normalisation,
            mean=_numbers("channel_mean", self.channel_mean),
            std=_numbers("channel_std", self.channel_std),
            scale=_range("pixel_range", self.pixel_range),
            audio_seconds=self.audio_seconds,
            bad_images=self.bad_images,
            tokens=self.tokens,
            text_length=self.text_length,
        )

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


def _listed(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(key: str, text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in _listed(text))
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


NAMED: dict[str, Mapping[str, Any]] = {
    "strategy": {RECOMMENDED: None, **METHODS},
    "server": SERVERS,
    "partition": PARTITIONS,
    "loss": LOSSES,
    "annotator": ANNOTATORS,
}
"""Settings that name a thing, and what is built in; ``net`` and ``data`` are checked where they are used."""


def about_group(name: str) -> str:
    """What the settings of a group are about, in a line."""
    text = (GROUPS[name].__doc__ or "").splitlines()[0].rstrip(".")
    return text[0].lower() + text[1:]


def group_of(key: str) -> str:
    """The group of a setting."""
    return next(name for name, group in GROUPS.items() if key in group.model_fields)


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat keys from values that may be grouped: ``{"training": {"lr": 0.1}}`` is ``{"lr": 0.1}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = value if isinstance(value, Mapping) and name in GROUPS else {name: value}
        for key, one in inner.items():
            if inner is value and key not in GROUPS[name].model_fields:
                raise SettingsError(_not_in_group(name, key))
            if key in flat:
                raise SettingsError(f"{key} is given twice, in [{group_of(key)}] and outside it: keep one")
            flat[key] = one
    return flat


def _not_in_group(group: str, key: str) -> str:
    if key in Settings.model_fields:
        return f"{key} is a setting of [{group_of(key)}], not of [{group}]: move it there"
    return unknown(f"setting in [{group}]", key, GROUPS[group].model_fields)


def from_mapping(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, flat or grouped; every problem is named, a misspelt key with the nearest known."""
    values = flatten(values)
    for key in values:
        if key not in Settings.model_fields:
            raise SettingsError(unknown("setting", key, Settings.model_fields))
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(e) for e in error.errors())) from None


def _sentence(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "settings"
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    text = f"{key} = {error['input']!r} is invalid: {message[0].lower()}{message[1:]}"
    if key == "model":
        text += " (the network is the setting `net`)"
    return text


def presets() -> dict[str, Path]:
    """Preset files by name."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.toml"))}


def read_file(path: Path) -> dict[str, Any]:
    """The values of one TOML file, flat."""
    try:
        return flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def values_of(name: str) -> dict[str, Any]:
    """What a preset or a TOML file says, as plain values."""
    known = presets()
    if name in known:
        return read_file(known[name])
    if name in plugins.offered("preset"):
        return flatten(plugins.find("preset", name))
    if name.endswith(".toml"):
        values = read_file(Path(name))
        if "data" not in values:
            raise SettingsError(f'{name} does not say which data to use: add a line such as data = "digits" or a path')
        return beside(Path(name), values)
    names = plugins.known_names("preset", known)
    raise SettingsError(unknown("preset", name, names) + "; or give a TOML file, a folder of images or a table")


def beside(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, with paths of data that lie beside it leading there from wherever it is run."""
    found = {}
    for key in ("data", "test_data", "data_dir", "init_weights"):
        value = values.get(key)
        if isinstance(value, str) and value and not Path(value).is_absolute() and (file.parent / value).exists():
            found[key] = str(file.parent / value)
    return values | found


def load(name: str, changes: Mapping[str, Any] | None = None) -> Settings:
    """Settings from a preset name or a TOML file, with changes on top, resolved."""
    return from_mapping({**values_of(name), **(changes or {})}).resolved()


def parse_changes(pairs: list[str]) -> dict[str, Any]:
    """``key=value`` pairs; the value is read as TOML and, where that fails, taken as text."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise SettingsError(f"--set takes key=value, not '{pair}'; for example --set rounds=20")
        group, dot, inner = key.partition(".")
        if dot and group in GROUPS:
            (key,) = flatten({group: {inner: text}})
        try:
            changes[key] = tomllib.loads(f"v = {text.strip()}")["v"]
        except tomllib.TOMLDecodeError:
            changes[key] = text.strip()
    return changes


def to_toml(settings: Settings) -> str:
    """The settings as TOML that ``load`` reads back to an equal value: flat keys, a comment above each group."""
    values = {key: value for key, value in settings.model_dump().items() if value is not None}
    parts = []
    for name, group in GROUPS.items():
        inside = {key: values[key] for key in group.model_fields if key in values}
        parts.append(f"# {name}: {about_group(name)}\n{tomli_w.dumps(inside)}")
    return "\n".join(parts)
