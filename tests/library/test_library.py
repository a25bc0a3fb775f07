"""The public API: settings, objects and frames, in one process and with workers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import tomllib
import traceback
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import chase
from chase.core.errors import DataError, SettingsError

SMALL = {"data": "digits", "clients": 2, "rounds": 2, "local_epochs": 2, "test_limit": 50, "data_share": 0.2}


@dataclass
class Highest:
    """Asks for the samples whose likeliest class, to a power, is highest."""

    power: float = 1.0
    needs: frozenset[str] = field(default=frozenset({"model"}), repr=False)

    def select(self, pool: chase.PoolView, budget: int, rng: np.random.Generator) -> np.ndarray:
        return chase.top_k(pool.ids, pool.probs("global").max(axis=1) ** self.power, budget, rng)


class Line(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float) -> None:
        super().__init__()
        self.head = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


class Always:
    """Calls every sample class 1."""

    def __init__(self, desk: chase.Desk) -> None:
        self.desk, self.waiting = desk, []

    def ask(self, questions: list[chase.Question]) -> None:
        self.waiting += [question.sample for question in questions]

    def withdraw(self, samples: list[int]) -> None:
        self.waiting = [sample for sample in self.waiting if sample not in samples]

    def answers(self, turn: int) -> list[chase.Answer]:
        ready, self.waiting = self.waiting, []
        return [chase.Answer(sample, 1, "always") for sample in ready if sample in self.desk.truth]


def halves(settings: chase.Settings, data: chase.DataSet) -> list[np.ndarray]:
    return np.array_split(np.arange(len(data.train)), settings.clients)


def half_way(start, mean, state, plan):  # type: ignore[no-untyped-def]
    return {name: ((start[name] + mean[name]) / 2).astype(mean[name].dtype) for name in mean}, {}


def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, label_smoothing=0.1)


OBJECTS = {
    "strategy": Highest(2.0),
    "net": Line,
    "partition": halves,
    "server": half_way,
    "annotator": Always,
    "loss": smoothed,
}


def test_importing_chase_imports_no_torch_and_offers_its_names() -> None:
    code = "import chase, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules; print(dir(chase))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "run_experiment" in said
    for name in chase.__all__:
        assert getattr(chase, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'experiment_run'"):
        chase.experiment_run  # noqa: B018


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[chase.Run, list[int]]:
    """A run in which everything is an object, in this process."""
    seen: list[int] = []
    out = tmp_path_factory.mktemp("library") / "run"
    run = chase.run_experiment(
        SMALL, out, on_round=lambda m: seen.append(m["round"]), engine="inprocess", report=False, **OBJECTS
    )
    return run, seen


def test_everything_may_be_an_object(ran: tuple[chase.Run, list[int]]) -> None:
    run, seen = ran
    assert seen == [1, 2]
    kept = tomllib.loads((run.path / "settings.toml").read_text())
    assert kept["strategy"] == "object:Highest(power=2.0)"
    assert [kept[key] for key in ("net", "partition", "server", "annotator", "loss")] == [
        "object:Line",
        "object:halves",
        "object:half_way",
        "object:Always",
        "object:smoothed",
    ]
    assert set(run.selections["label"]) == {1}


def test_objects_go_to_workers_and_change_no_bit(ran: tuple[chase.Run, list[int]], tmp_path: Path) -> None:
    code = Path(__file__).read_text().split("def test_importing")[0]  # classes of __main__, as in a notebook
    code += (
        "if __name__ == '__main__':\n"
        "    more = {'engine': 'workers', 'workers': 2, 'report': False, **OBJECTS}\n"
        f"    chase.run_experiment(SMALL, {str(tmp_path / 'run')!r}, **more)\n"
    )
    (tmp_path / "cell.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "cell.py")], check=True)
    timed = [name for name in ran[0].metrics if name.startswith("seconds")]
    theirs = chase.read_run(tmp_path / "run").metrics.drop(columns=timed)
    assert theirs.equals(ran[0].metrics.drop(columns=timed))


def test_frames_and_figures(ran: tuple[chase.Run, list[int]]) -> None:
    run = chase.read_run(ran[0].path)
    assert run.metrics.index.tolist() == [1, 2]
    assert {"test_accuracy", "labels", "pool_labeled", "seconds_train"} <= set(run.metrics)
    assert run.clients.loc[(2, 1), "labels"] >= 0
    assert run.clients.groupby("round")["labels"].sum().tolist() == run.metrics["labels"].tolist()
    assert {"round", "client", "sample", "label"} <= set(run.selections)
    assert run.classes.shape == (2, 10)
    assert run.settings["clients"] == 2
    assert all(run.metrics[name].dtype.kind in "if" for name in run.metrics), run.metrics.dtypes
    assert repr(run) == f"<Run {run.path}: object:Highest(power=2.0) on digits, seed 0: 2 rounds>"
    assert run.figure("accuracy")._repr_svg_().startswith("<svg ")
    assert run.figure("labels").save(run.path / "labels.svg").read_text().rstrip().endswith("</svg>")
    assert "object:Highest(power=2.0) on digits" in run._repr_html_()
    with pytest.raises(chase.ChaseError, match="unknown figure 'acuracy'; did you mean 'accuracy'"):
        run.figure("acuracy")


def test_a_resume_needs_the_objects_again(ran: tuple[chase.Run, list[int]]) -> None:
    before = (ran[0].path / "settings.toml").read_bytes()
    with pytest.raises(SettingsError, match=r"'object:\w+.* was passed as an object from Python, which no file keeps"):
        chase.resume_experiment(ran[0].path, rounds=3)
    assert (ran[0].path / "settings.toml").read_bytes() == before
    run = chase.resume_experiment(ran[0].path, rounds=3, report=False, **OBJECTS)
    assert run.metrics.index.tolist() == [1, 2, 3]


def test_another_object_is_refused_on_resume(ran: tuple[chase.Run, list[int]]) -> None:
    with pytest.raises(chase.ChaseError, match=r"strategy = 'object:Highest\(power=2.0\)' was passed"):
        chase.resume_experiment(ran[0].path, rounds=4, **OBJECTS | {"strategy": Highest(3.0)})


def test_an_object_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()
    found = Highest()
    found.lock = lock  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=r"strategy 'object:Highest.*cannot be copied .TypeError"):
        chase.run_experiment(SMALL, tmp_path / "run", strategy=found, engine="workers", workers=2)

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        with lock:
            return F.cross_entropy(outputs, labels)

    with pytest.raises(SettingsError, match=r"loss 'loss' cannot be sent to worker processes .*engine='inprocess'"):
        chase.run_experiment(SMALL, tmp_path / "run", loss=loss, engine="workers", workers=2)


def test_the_caller_is_left_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    torch.manual_seed(5)
    np.random.seed(5)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)

    def state() -> list[object]:
        import signal

        return [
            torch.get_num_threads(),
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),
            dict(mpl.rcParams),
            mpl.get_backend(auto_select=False),
            list(warnings.filters),
            signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM),
            list(sys.path),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
        ]

    try:
        before = state()
        chase.run_experiment(SMALL | {"rounds": 1}, tmp_path / "run", engine="inprocess", net=Line)
        assert state() == before
        solved = {"rounds": 1, "learner": "closed-form", "strategy": "margin", "filters": 16}
        chase.run_experiment(SMALL | solved, tmp_path / "solved", engine="inprocess")
        assert state() == before
    finally:
        torch.set_num_threads(threads)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.full((1, 6, 6), row % 3 / 4), row % 3


def test_data_from_arrays_torch_and_hugging_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    images = np.arange(30 * 36, dtype=np.uint8).reshape(30, 6, 6)
    arrays = chase.make_data((images, np.arange(30) % 3), classes=("a", "b", "c"), owners=["x", "y"] * 15)
    assert (len(arrays.train), len(arrays.test), arrays.classes) == (24, 6, ("a", "b", "c"))
    assert arrays.train.shape == (1, 6, 6)
    assert arrays.group_names == ("x", "y")

    pairs = chase.make_data(Pairs(30), Pairs(9))
    assert (len(pairs.train), len(pairs.test), pairs.train.shape) == (30, 9, (1, 6, 6))
    assert float(pairs.train.inputs.max()) == 127.5

    vectors = chase.make_data((np.random.default_rng(0).normal(3, 2, (40, 5)), [0, 1] * 20), name="measured")
    assert vectors.train.kind == "vectors"
    ready = vectors.train.ready(torch.arange(len(vectors.train)))
    assert abs(float(ready.mean())) < 0.2

    missing = chase.make_data((np.ones((40, 5)), [0.0, 1.0, np.nan, -1] * 10))
    assert (missing.classes, int((missing.train_labels < 0).sum())) == (("0", "1"), 20)

    texts = chase.make_data((["good film", "bad film"] * 10, ["yes", "no"] * 10))
    assert (texts.train.kind, texts.classes) == ("text", ("no", "yes"))

    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    hugging = Dataset.from_dict({"text": ["good", "bad"] * 10, "label": [1, 0] * 10}, features=features)
    capfd.readouterr()
    made = chase.make_data(hugging, name="reviews")
    assert "parquet" not in capfd.readouterr().err, "no progress bar of the other library"
    assert repr(made).startswith("<DataSet 'reviews': text of 64, ")
    assert len(repr(made)) < 120
    assert (made.train.kind, made.classes, made.name) == ("text", ("neg", "pos"), "reviews")


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ((np.zeros((3, 4)), [0, 1]), "3 inputs come with 2 labels"),
        ((np.zeros((2, 4, 4)) - 1, [0, 1]), "images hold numbers from -1 to -1"),
        ((np.zeros((2, 5, 4, 4)), [0, 1]), "neither vectors"),
        (3, "is of type int: give"),
        ((np.zeros((2, 4)), [0.5, 1.0]), "label 0.5 is not a whole number"),
        ((np.zeros((2, 4)), [0, 7]), "label 7 is outside the 2 classes"),
    ],
)
def test_data_that_does_not_fit_is_named(part: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        chase.make_data(part, classes=("a", "b"))


def test_own_data_by_owner_runs_and_keeps_its_name(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = chase.make_data((draw.normal(size=(60, 4)), [0, 1] * 30), name="measured", owners=["x"] * 30 + ["y"] * 30)
    run = chase.run_experiment(
        {"rounds": 1, "clients": 2, "local_epochs": 2, "partition": "natural", "initial_labels": 0.2},
        tmp_path / "run",
        data=data,
        net=partial(Line),
        strategy="random",
        engine="inprocess",
    )
    assert run.settings["data"] == "object:measured"
    assert (run.path / "report.html").is_file()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": lambda settings, data: [np.arange(3)]}, "made 1 parts for 2 clients"),
        ({"partition": lambda settings, data: [np.arange(3), np.array([10**6])]}, "something else than row numbers"),
        ({"strategy": object()}, "needs an attribute `needs`"),
        ({"net": 3}, "is of type int: give a torch.nn.Module"),
        ({"server": 3}, "not a function of start, mean, state, plan"),
        ({"server": lambda start, mean: mean}, "is called with start, mean, state and plan, but too many positional"),
        ({"data": 3}, "not a DataSet"),
        ({"annotator": lambda desk: object(), "engine": "inprocess"}, "has no method ask"),
        ({"loss": lambda outputs, y: outputs, "engine": "inprocess"}, "must give one number"),
    ],
)
def test_an_object_that_does_not_fit_is_named(changes: dict, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(chase.ChaseError, match=sentence):
        chase.run_experiment(SMALL, tmp_path / "run", **changes)


def failing_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    raise KeyError("patient 7")


@pytest.mark.parametrize("engine", ["inprocess", "workers"])
def test_a_mistake_in_ones_own_code_keeps_its_traceback_and_says_where_it_happened(engine: str, tmp_path: Path) -> None:
    with pytest.raises((KeyError, RuntimeError)) as caught:
        chase.run_experiment(SMALL, tmp_path / "run", loss=failing_loss, engine=engine, workers=2)
    told = "".join(traceback.format_exception(caught.value))
    assert "in failing_loss" in told
    assert re.search(r"in client \d, round 1, training", told)


def test_settings_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('data = "digits"\n[training]\nlr = 0.5\n')
    assert chase.load_settings(tmp_path / "my.toml", rounds=3).lr == 0.5
    assert chase.load_settings("digits").freeze is None  # the method that is run decides
    from chase.library import values_of

    assert values_of({"training": {"lr": 0.5}}, {}) == {"lr": 0.5}
    assert values_of(chase.Settings(lr=0.5), {}) == {"lr": 0.5}
    assert values_of("digits", {})["clients"] == 10


def test_a_notebook_is_told_that_the_page_belongs_to_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="chase run digits --annotator page"):
        chase.run_experiment(SMALL, tmp_path / "run", annotator="page")
    assert not (tmp_path / "run").exists()


def test_own_data_by_its_path_runs_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    rows = [f"p{n},{n % 2 + n / 1000},{'ab'[n % 2]}" for n in range(100)]
    (tmp_path / "rows.csv").write_text("patient,score,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    settings = chase.load_settings("../rows.csv", rounds=3)
    assert (settings.rounds, settings.partition, settings.clients) == (3, "iid", 2)
    run = chase.run_experiment(Path("../rows.csv"), rounds=2, engine="inprocess")
    assert run.path.parent == Path("runs")
    assert run.path.name.startswith("rows-")
    assert len(run.metrics) == 2
