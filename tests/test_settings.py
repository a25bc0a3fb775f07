from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from chase.core.errors import SettingsError
from chase.settings import GROUPS, Settings, about_group, from_mapping, load, parse_changes, presets, to_toml, values_of


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_loads_and_reads_back_to_itself(name: str, tmp_path: Path) -> None:
    settings = load(name)
    (tmp_path / "settings.toml").write_text(to_toml(settings), encoding="utf-8")
    assert load(str(tmp_path / "settings.toml")) == settings


PAPER = {
    "local_epochs": 10,
    "batch_size": 10,
    "momentum": 0.5,
    "weight_decay": 0.0,
    "tau": 0.5,
    "subset_size": 500,
    "beta": 0.4,
    "rounds": 200,
}
CNN, AUTHORS = {**PAPER, "dropout": 0.5, "lr": 0.001, "mu": 0.1}, {"normalisation": "authors"}
FLAT: dict[str, dict[str, object]] = {
    "digits": {
        "data": "digits",
        "clients": 10,
        "partition": "classes",
        "classes_per_client": 2,
        "initial_labels": 0.04,
        "net": "tiny-cnn",
        "dropout": 0.0,
        "lr": 0.02,
        "mu": 0.1,
        "rounds": 200,
    },
    "mnist": {
        **CNN,
        **AUTHORS,
        "data": "mnist",
        "clients": 10,
        "partition": "classes",
        "classes_per_client": 2,
        "initial_labels": 0.0133,
        "net": "mnist-cnn",
    },
    "emnist": {
        **CNN,
        **AUTHORS,
        "data": "emnist",
        "clients": 100,
        "partition": "classes",
        "classes_per_client": 10,
        "initial_labels": 0.02,
        "net": "emnist-cnn",
    },
    "cifar10": {
        **CNN,
        **AUTHORS,
        "data": "cifar10",
        "clients": 10,
        "partition": "classes",
        "classes_per_client": 5,
        "initial_labels": 0.04,
        "net": "cifar-cnn",
        "mu": 1.0,
    },
    "cifar100": {
        **PAPER,
        **AUTHORS,
        "data": "cifar100",
        "clients": 10,
        "partition": "dirichlet",
        "alpha": 0.01,
        "initial_labels": 0.1,
        "net": "vgg19",
        "dropout": 0.0,
        "augment": True,
        "lr": 0.01,
        "mu": 1.0,
    },
    "femnist": {
        **CNN,
        "data": "femnist",
        "owners": "all",
        "partition": "natural",
        "share_of_clients": 0.01,
        "initial_labels": 0.04,
        "initial_per_class": 1,
        "net": "emnist-cnn",
        "lr": 0.01,
    },
    "shakespeare": {
        **PAPER,
        "data": "shakespeare",
        "clients": 100,
        "partition": "natural",
        "min_owned": 10000,
        "initial_labels": 0.04,
        "net": "char-lstm",
        "dropout": 0.2,
        "lr": 1.47,
        "momentum": 0.0,
        "mu": 0.3,
    },
}
"""What the presets say, as flat keys."""


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_shows_its_groups_and_says_what_the_flat_keys_said(name: str) -> None:
    grouped = tomllib.loads(presets()[name].read_text(encoding="utf-8"))
    assert set(grouped) <= set(GROUPS)
    assert values_of(name) == FLAT[name]
    assert load(name) == from_mapping(FLAT[name]).resolved()


def test_odd_values_survive_the_file(tmp_path: Path) -> None:
    settings = from_mapping({"lr": 1e-7, "data_dir": 'C:\\data "käse" 🧀', "seed": 2**62, "freeze": True}).resolved()
    (tmp_path / "s.toml").write_text(to_toml(settings), encoding="utf-8")
    assert load(str(tmp_path / "s.toml")) == settings


@pytest.mark.parametrize(
    ("strategy", "parts"),
    [
        ("chase", ("both", True, True, True)),
        ("ev", ("none", True, True, True)),
        ("number-class", ("none", True, True, True)),
        ("+gev", ("none", True, True, True)),
        ("random", ("none", False, False, False)),
    ],
)
def test_a_method_brings_its_parts(strategy: str, parts: tuple) -> None:
    full = from_mapping({"strategy": strategy}).resolved()
    assert (full.align, full.freeze, full.awaken, full.subset) == parts


def test_what_is_set_goes_before_what_the_method_brings() -> None:
    full = from_mapping({"strategy": "chase", "freeze": False, "align": "local"}).resolved()
    assert (full.align, full.freeze, full.awaken, full.subset) == ("local", False, False, True)
    assert from_mapping({"strategy": "random", "freeze": True}).resolved().tracks_ev
    assert not from_mapping({"strategy": "chase", "mu": 0}).resolved().aligns


@pytest.mark.parametrize("changes", [{}, {"strategy": "ev"}, {"strategy": "random", "track_ev": True}])
def test_one_epoch_is_too_few_for_ev(changes: dict) -> None:
    with pytest.raises(SettingsError, match=r"local_epochs = 1, .* needs at least 2 .*set local_epochs=2 or more"):
        from_mapping({"local_epochs": 1, **changes}).resolved()


def test_one_epoch_is_enough_where_ev_is_not_needed() -> None:
    assert from_mapping({"local_epochs": 1, "strategy": "random"}).resolved().local_epochs == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"round": 5}, "unknown setting 'round'; did you mean 'rounds'"),
        ({"rounds": 0}, "rounds = 0 is invalid: input should be greater than or equal to 1"),
        ({"rounds": "many"}, "rounds = 'many' is invalid: input should be a valid integer"),
        ({"beta": 1.5}, "beta = 1.5 is invalid"),
        ({"dropout": 1.0}, "dropout = 1.0 is invalid"),
        ({"lr": float("nan")}, "lr = nan is invalid"),
        ({"mu": float("inf")}, "mu = inf is invalid"),
        ({"behaviour": "Lazy"}, "behaviour = 'Lazy' is invalid: input should be 'AbCo', 'ReCo' or 'free'"),
        ({"strategy": "chse"}, "unknown strategy 'chse'; did you mean 'chase'"),
        ({"model": "tiny-cnn"}, "the network is the setting `net`"),
        ({"rounds": 0, "clients": -1}, "rounds = 0 .*; clients = -1|clients = -1 .*; rounds = 0"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values: dict, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        from_mapping(values)


def test_changes_are_read_as_toml_or_as_text() -> None:
    pairs = ["rounds=20", "lr = 0.5", "freeze=true", "strategy=+gev", 'net="tiny-cnn"', "local-epochs=3", "data=a=b"]
    assert parse_changes(pairs) == {
        "rounds": 20,
        "lr": 0.5,
        "freeze": True,
        "strategy": "+gev",
        "net": "tiny-cnn",
        "local_epochs": 3,
        "data": "a=b",
    }


@pytest.mark.parametrize("pair", ["rounds", "=5", ""])
def test_a_change_without_key_or_value_is_refused(pair: str) -> None:
    with pytest.raises(SettingsError, match="--set takes key=value"):
        parse_changes([pair])


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().rounds = 3


def test_every_setting_is_in_one_group_and_the_file_shows_the_groups() -> None:
    inside = [key for group in GROUPS.values() for key in group.model_fields]
    assert inside == list(Settings.model_fields)
    text = to_toml(Settings().resolved())
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [f"# {name}: {about_group(name)}" for name in GROUPS]
    assert text.index("# training") < text.index("lr = 0.01") < text.index("# selection")


def test_grouped_and_flat_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "grouped.toml").write_text(
        'seed = 3\n[training]\nlr = 0.5\n[data]\ndata = "digits"\n[model]\nnet = "mlp"\n'
    )
    (tmp_path / "flat.toml").write_text('seed = 3\nlr = 0.5\ndata = "digits"\nnet = "mlp"\n')
    assert load(str(tmp_path / "grouped.toml")) == load(str(tmp_path / "flat.toml"))
    assert parse_changes(["training.lr=0.5", "lr=0.5"]) == {"lr": 0.5}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"training": {"net": "mlp"}}, r"net is a setting of \[model\], not of \[training\]: move it there"),
        ({"training": {"lrr": 1}}, r"unknown setting in \[training\] 'lrr'; did you mean 'lr'"),
        ({"lr": 1, "training": {"lr": 2}}, r"lr is given twice, in \[training\] and outside it"),
        ({"training": 3}, "unknown setting 'training'"),
    ],
)
def test_a_group_that_is_invalid_is_named(values: dict, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        from_mapping(values)


@pytest.mark.parametrize("name", ["mnist", "digits"])
def test_the_name_of_a_data_set_in_a_file_stays_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "named.toml").write_text(f'data = "{name}"\n')
    (tmp_path / "folder.toml").write_text(f'data = "./{name}"\ntest_data = "{name}"\n')
    assert values_of(str(tmp_path / "named.toml"))["data"] == name
    found = values_of(str(tmp_path / "folder.toml"))
    assert (found["data"], found["test_data"]) == (f"{tmp_path}/{name}", f"{tmp_path}/{name}")
    monkeypatch.chdir(tmp_path)
    assert values_of("named.toml")["data"] == name
    assert values_of("folder.toml")["data"] == f"./{name}", "not the name itself, which is that of a data set"


@pytest.mark.parametrize("typed", ["2020", "0", "007", "1_000", "1.50", "2020-01-31", "true", "nan"])
def test_a_setting_that_is_a_text_is_kept_as_it_was_typed(typed: str) -> None:
    changes = parse_changes([f"label_column={typed}", f"data.classes = {typed} ", 'id_column="2020"'])
    assert changes == {"label_column": typed, "classes": typed, "id_column": "2020"}
    assert from_mapping(changes).classes == typed
