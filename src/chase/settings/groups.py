"""The groups of settings: a new setting is one line in its group."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from chase.acquisition.hybrid import DEFAULT_KEYS
from chase.acquisition.uncertainty import LIVE
from chase.data.options import Normalisation
from chase.learning.losses import AlignOn
from chase.models.layers import Init
from chase.server.aggregation import SERVERS, ClientWeights
from chase.settings.choices import ALL_CLIENTS, AlignMode


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
    image_size: int = Field(0, ge=0, le=1024, description="resize images to this height and width (0 = unchanged)")
    channels: Literal[0, 1, 3] = Field(0, description="own images: 1 grey, 3 colour, 0 unchanged")
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
        0.0, ge=0, le=600, description="own WAV recordings: length in seconds (0 = that of the longest, at most 10)"
    )
    bad_images: Literal["fail", "skip"] = Field("fail", description="what to do with unreadable images")
    tokens: Literal["auto", "words", "characters", "bytes"] = Field(
        "auto",
        description="own texts: what is kept of them: words (hashed), characters, bytes (the text itself, for words "
        "and parts of words as features); auto = bytes for the closed-form learner, words for networks",
    )
    text_length: int = Field(
        64, ge=1, le=4096, description="own texts: number of words or characters kept per text (8 times as many bytes)"
    )


class ClientSettings(SettingsGroup):
    """How many clients, and which samples and first labels each holds."""

    clients: int = Field(10, ge=1, le=100_000, description="number of clients K")
    partition: str = Field("classes", description="how samples are divided among the clients")
    classes_per_client: int = Field(2, ge=1, description="C_k, for partition = classes")
    data_share: float = Field(
        1.0, gt=0, le=1, description="share of each client's samples that is used, for quick tests"
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
        "auto",
        description="closed-form: feature map by name (see `chase list 'feature maps'`); auto = by the kind of data",
    )
    filters: int = Field(200, ge=8, le=1000, description="closed-form: patch filters of images")
    fit_passes: int = Field(6, ge=0, le=50, description="closed-form: passes of k-means over the clients' patches")
    text_features: int = Field(
        768, ge=16, le=4096, description="closed-form: features of a text; the system to solve has this size"
    )
    levels: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description="closed-form: share of brightness in the features of images, for classes that differ in it (0.2 is "
        "a good start); patches are seen without their own brightness",
    )
    feature_seed: int = Field(
        0, ge=0, le=2**62, description="closed-form: seed of the features, the same for every `seed`"
    )
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
        description="how initial weights are drawn: xavier (Xavier normal, biases 0.01, as in the paper) or normal "
        "(N(0, 0.05), biases 0, as the authors' VGG-19)",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability of the network")


class TrainingSettings(SettingsGroup):
    """How a client trains in its turn."""

    augment: bool = Field(False, description="random crops and flips of training images")
    local_epochs: int = Field(10, ge=1, description="local epochs E")
    batch_size: int = Field(10, ge=1, description="labelled samples per step")
    lr: float = Field(0.01, gt=0, description="learning rate of local SGD")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="local optimiser; adam needs a smaller lr, e.g. 0.001")
    class_weights: Literal["none", "balanced"] = Field(
        "none",
        description="balanced = every class of a client's labels counts the same in training; for learner = network",
    )
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of local SGD")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of local SGD")
    prox: float = Field(0.0, ge=0, description="FedProx: weight of prox/2 ||w - w_start||^2 in local training")
    loss: str | None = Field(None, description="labelled loss; unset = the method's default")
    align: AlignMode | None = Field(None, description="alignment loss; unset = the method's default")
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
    freeze: bool | None = Field(None, description="freeze samples of EV 0; unset = the method's default")
    awaken: bool | None = Field(None, description="awaken frozen samples when few are left; unset = as freeze")
    subset: bool | None = Field(None, description="watch a random subset only; unset = the method's default")
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
    alone_epochs: int = Field(
        50, ge=1, description="largest number of epochs of the local-only model, for strategy = logo and fairfal"
    )


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
        "oracle",
        description="who labels: oracle (simulated, true labels), team (simulated, several people per client who err) "
        "or page (a person labels one client)",
    )
    people: int = Field(5, ge=1, le=100, description="team: people per client")
    skill: float = Field(0.9, ge=0, le=1, description="team: mean chance of a right answer of a rested person")
    skill_spread: float = Field(
        0.1, ge=0, le=1, description="team: how far the best and the worst person are above and below that"
    )
    confusion: float = Field(
        0.0, ge=0, le=1, description="team: share of a person's wrong answers that go to one class, by the true class"
    )
    fatigue: float = Field(0.0, ge=0, le=1, description="team: skill lost until a rest, which comes after 20 answers")
    second_opinions: int = Field(
        0,
        ge=0,
        description="most second opinions per request, for annotator = team or page: labels that are probably wrong "
        "are asked again, of somebody else, in the place of new samples that are trusted more (0 = none)",
    )
    page_client: int = Field(
        0, ge=-1, description="the client a person labels, for annotator = page; all (or -1) = all of them on one page"
    )
    live: bool = Field(
        False,
        description="closed-form: on the labelling page, re-rank the waiting questions after each answer; for strategy "
        "= " + ", ".join(LIVE),
    )
    wait: float | None = Field(
        None,
        ge=0,
        description="seconds that a round waits for that person's answers; unset = without limit where people are the "
        "only annotators (one client, or page_client = all), else 0",
    )
    test_answers: int = Field(
        0,
        ge=0,
        description="for annotator = page with page_client = all: samples that are drawn at random before the first "
        "round, are asked first and never trained with; the answers measure the model where there is no test set",
    )
    patience: int = Field(0, ge=0, description="turns until an unanswered sample returns (0 = never)")

    @field_validator("page_client", mode="before")
    @classmethod
    def _all_clients(cls, value: object) -> object:
        return ALL_CLIENTS if value == "all" else value


class FederationSettings(SettingsGroup):
    """Who takes part in a round, and what the server does with the updates."""

    form: Literal["continued", "cycles", "reset", "isolated"] = Field(
        "continued",
        description="continued (one model throughout), cycles (fresh start and one request per cycle), "
        "reset (fresh start every round) or isolated (every client alone)",
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
        1.0,
        gt=0,
        le=1,
        description="largest share of the average that one of three or more clients may have; 1 = no limit",
    )
    combine: Literal["mean", "median", "trimmed-mean"] = Field(
        "mean",
        description="how updates are combined: mean (weighted), or coordinate by coordinate and without weights the "
        "median, or the mean without the largest and smallest values",
    )
    trim: float = Field(0.2, ge=0, lt=0.5, description="share of the values that trimmed-mean discards at each end")
    server: str = Field("fedavg", description="how updates become the global model: " + ", ".join(SERVERS))
    server_lr: float | None = Field(None, gt=0, description="server learning rate; unset = the server rule's default")
    server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum (beta 1) of fedavgm and fedadam")
    server_beta2: float = Field(0.99, ge=0, lt=1, description="second-moment decay of fedadam")
    server_tau: float = Field(1e-3, gt=0, description="adaptivity of fedadam: keeps small moments from large steps")


class RunSettings(SettingsGroup):
    """How long a run takes, its seed and its evaluation."""

    rounds: int = Field(200, ge=1, description="communication rounds R")
    seed: int = Field(0, ge=0, le=2**62, description="seed of everything random")
    main_metric: Literal["accuracy", "balanced-accuracy", "macro-f1", "auc"] = Field(
        "accuracy",
        description="metric on the test set that is shown and compared first, is compared with `target` and decides "
        "the best model; auc: area under the ROC curve, one class against the rest, mean over the classes",
    )
    target: float = Field(
        0.0,
        ge=0,
        le=1,
        description="stop when the main metric reaches this (0 = never; once called `target_accuracy`)",
    )
    total_budget: int = Field(
        0, ge=0, description="ask for at most this many labels in all, and end when they are given (0 = no limit)"
    )
    eval_every: int = Field(1, ge=1, description="evaluate on the test set every this many rounds")


class EngineSettings(SettingsGroup):
    """What computes; it decides the speed, not the result."""

    engine: Literal["auto", "inprocess", "workers", "ray"] = Field(
        "auto", description="how clients are run: worker processes where there are cores for them; ray = on a cluster"
    )
    ray_address: str = Field("", description="Ray cluster for engine = ray (empty = one started on this machine)")
    workers: int = Field(0, ge=0, le=1024, description="worker processes (0 = one per core)")
    kernels: Literal["auto", "compiled", "fused", "plain"] = Field(
        "auto",
        description="what computes the small networks: the compiled kernel, fused steps in torch, plain = autograd; "
        "auto = compiled where it was built and the processor has AVX2, else fused (a run keeps what it began with)",
    )
    device: str = Field("cpu", description="where training runs: cpu, or cuda (then in one process)")


class OutputSettings(SettingsGroup):
    """What is written besides the run directory."""

    keep_best: bool = Field(True, description="also keep the model of the round with the best main metric")
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


def about_group(name: str) -> str:
    """What the settings of a group are about, in a line."""
    text = (GROUPS[name].__doc__ or "").splitlines()[0].rstrip(".")
    return text[0].lower() + text[1:]


def group_of(key: str) -> str:
    """The group of a setting."""
    return next(name for name, group in GROUPS.items() if key in group.model_fields)
