"""Named data sets from parquet files, and their cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import image_parquet, pixels

from chase.core.errors import DataError, SettingsError
from chase.data import sources
from chase.data.options import DataOptions
from chase.data.resident import DataSet, Samples


def make_cifar10(place: Path, seed: int = 0) -> np.ndarray:
    labels = np.arange(30) % 10
    images = pixels(30, (3, 32, 32), labels, seed)
    names = [f"class {c}" for c in range(10)]
    image_parquet(place / "cifar10" / "train.parquet", images[:20], labels[:20].tolist(), names, "img")
    image_parquet(place / "cifar10" / "test.parquet", images[20:], labels[20:].tolist(), names, "img")
    return images


def test_images_are_decoded_bit_for_bit(tmp_path):
    images = make_cifar10(tmp_path)
    data = sources.load("cifar10", str(tmp_path))
    assert np.array_equal(data.train.inputs.numpy(), images[:20])
    assert np.array_equal(data.test.inputs.numpy(), images[20:])
    assert data.train_labels.tolist() == [*range(10), *range(10)]
    assert data.classes[3] == "class 3"


def test_a_named_data_set_is_resized_where_that_is_asked_for(tmp_path):
    make_cifar10(tmp_path)
    sizes = {size: sources.load("cifar10", str(tmp_path), DataOptions(image_size=size)) for size in (0, 64)}
    assert sizes[0].train.inputs.shape == (20, 3, 32, 32)
    assert sizes[64].train.inputs.shape == (20, 3, 64, 64)
    assert sizes[64].test.inputs.shape == (10, 3, 64, 64)
    means = [data.train.inputs.float().mean(dim=(2, 3)) for data in sizes.values()]
    assert torch.allclose(means[0], means[1], atol=3.0), "the same images, larger"


def test_normalisation_is_what_the_setting_says(tmp_path):
    make_cifar10(tmp_path)
    found = {
        kind: sources.load("cifar10", str(tmp_path), DataOptions(normalisation=kind))
        for kind in ("statistics", "authors", "half")
    }
    assert {kind: (data.train.mean, data.train.std) for kind, data in found.items()} == {
        "statistics": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "authors": ((0.5,) * 3, (0.5,) * 3),
        "half": ((0.5,), (0.5,)),
    }
    assert all(data.train.mean == data.test.mean for data in found.values())
    ready = {kind: data.train.ready(torch.arange(20)) for kind, data in found.items()}
    assert torch.equal(ready["authors"], ready["half"])
    assert torch.allclose(ready["half"], found["half"].train.inputs[:20].float() / 127.5 - 1, atol=1e-6)
    assert not torch.allclose(ready["statistics"], ready["half"], atol=0.1)


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("mnist", (0.1307,), (0.3081,)),
        ("emnist", (0.1307,), (0.3081,)),
        ("cifar10", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("cifar100", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ],
)
def test_the_authors_values_of_every_data_set_of_theirs(name: str, mean: tuple[float, ...], std: tuple[float, ...]):
    channels = len(mean)
    part = Samples(torch.zeros((2, channels, 4, 4), dtype=torch.uint8), mean=(0.0,) * channels, std=(1.0,) * channels)
    labels = np.array([0, 1])
    made = sources.normalised(DataSet(name, part, labels, part, labels, ("a", "b")), name, "authors")
    assert (made.train.mean, made.train.std) == (made.test.mean, made.test.std) == (mean, std)


def test_the_authors_values_are_refused_where_they_have_none():
    with pytest.raises(SettingsError, match="only for mnist, emnist, cifar10, cifar100"):
        sources.load("digits", options=DataOptions(normalisation="authors"))
    assert sources.load("digits", options=DataOptions(normalisation="half")).train.mean == (0.5,)


def test_grey_images_of_a_colour_format_stay_exact(tmp_path):
    labels = np.arange(10)
    images = pixels(10, (1, 28, 28), labels)
    for part in ("train", "test"):
        image_parquet(tmp_path / "mnist" / f"{part}.parquet", images, labels.tolist(), list("0123456789"))
    data = sources.load("mnist", str(tmp_path))
    assert np.array_equal(data.train.inputs.numpy(), images)
    assert "10 of 10 test samples are also in the training part" in data.problems


def test_second_load_reads_the_cache_and_new_content_does_not(tmp_path, monkeypatch):
    make_cifar10(tmp_path)
    first = sources.load("cifar10", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("chase.data.readers.read_images", lambda *args: pytest.fail("decoded again"))
        again = sources.load("cifar10", str(tmp_path))
    assert np.array_equal(again.train.inputs.numpy(), first.train.inputs.numpy())
    make_cifar10(tmp_path, seed=1)
    changed = sources.load("cifar10", str(tmp_path))
    assert not np.array_equal(changed.train.inputs.numpy(), first.train.inputs.numpy())


def test_a_damaged_cache_entry_is_made_again(tmp_path):
    images = make_cifar10(tmp_path)
    sources.load("cifar10", str(tmp_path))
    (entry,) = (tmp_path / "cache" / "decoded").iterdir()
    file = entry / "train.inputs.npy"
    file.write_bytes(file.read_bytes()[:1000])
    assert np.array_equal(sources.load("cifar10", str(tmp_path)).train.inputs.numpy(), images[:20])


def test_without_a_writable_cache_loading_still_works(tmp_path, monkeypatch):
    images = make_cifar10(tmp_path)
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "file"))
    data = sources.load("cifar10", str(tmp_path))
    assert np.array_equal(data.train.inputs.numpy(), images[:20])
    assert any("every start decodes again" in problem for problem in data.problems)


def test_the_setting_goes_before_the_environment(tmp_path, monkeypatch):
    make_cifar10(tmp_path / "one", seed=1)
    images = make_cifar10(tmp_path / "two", seed=2)
    monkeypatch.setenv("CHASE_DATA", str(tmp_path / "one"))
    assert np.array_equal(sources.load("cifar10", str(tmp_path / "two")).train.inputs.numpy(), images[:20])


def test_no_local_copy_names_layout_and_command(tmp_path):
    with pytest.raises(DataError, match=r"chase data get mnist.*mnist/train\.parquet"):
        sources.load("mnist", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "train", "test", "classes", "first", "brightness"),
    [
        ("mnist", 60000, 10000, 10, [5, 0, 4, 1, 9], 0.1307),
        ("cifar10", 50000, 10000, 10, [6, 9, 9, 4, 1], 0.4734),
        ("emnist", 100000, 16323, 62, None, 0.1736),
        ("cifar100", 10000, 5000, 100, None, 0.4782),
    ],
)
def test_real_files(name, train, test, classes, first, brightness, real_data):
    data = sources.load(name)
    assert (len(data.train), len(data.test), data.num_classes) == (train, test, classes)
    assert set(np.unique(data.train_labels)) == set(range(classes))
    assert first is None or data.train_labels[:5].tolist() == first
    assert data.train.inputs.float().mean().item() / 255 == pytest.approx(brightness, abs=4e-3)


def test_real_shakespeare(real_data):
    data = sources.load("shakespeare")
    assert data.train.shape == (80,)
    assert data.num_classes == 80 == data.train.vocabulary
    assert len(data.group_names) == 100
    assert min(data.group_sizes) > 10_000
    for role in (0, 57):
        size = data.group_sizes[role]
        train, test = (data.groups == role).sum(), (data.test_groups == role).sum()
        assert train == int(0.9 * size)
        assert train + test + 79 == size
    row = np.flatnonzero(data.groups == 3)[:2]
    first, second = data.train.inputs[row].numpy()
    assert np.array_equal(first[1:], second[:-1])
    assert data.train_labels[row[0]] == second[-1]


def test_digits_are_those_of_scikit_learn_from_their_file_or_from_its_function(monkeypatch):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    expected = np.column_stack([bunch.data, bunch.target])
    assert np.array_equal(sources.digits_table(), expected)
    monkeypatch.setattr(sources, "find_spec", lambda name: None)  # as in a package without such a file
    assert np.array_equal(sources.digits_table(), expected)
