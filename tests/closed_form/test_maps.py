"""Feature maps: additive, the same for every partition bit for bit, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chase.closed_form.catalog import make_map
from chase.closed_form.feature_map import (
    GRID,
    LEAST_RIDGE,
    FeatureMap,
    InputSpec,
    decode,
    encode,
    fit,
    least_ridge,
    mixed,
    moments,
    standard,
    transform,
)
from chase.closed_form.hashed_text import SPREAD, HashedText
from chase.closed_form.patches import Patches, _Kernel
from chase.closed_form.ridge import Centred, solve
from chase.closed_form.sums import Sums
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import rng
from chase.core.weights import digest
from chase.data.resident import Column, Samples
from chase.models.catalog import NetSpec, build

COLUMNS = (Column("age"), Column("fever"), Column("ward", "categorical", ("a", "b", "c")))


def images(count: int = 36, channels: int = 1, height: int = 12, width: int = 14) -> Samples:
    pixels = rng(0, "images").integers(0, 256, (count, channels, height, width))
    return Samples(torch.from_numpy(pixels.astype(np.uint8)))


def texts(count: int = 40) -> Samples:
    tokens = rng(0, "texts").integers(1, 50, (count, 9)).astype(np.int16)
    tokens[:, 6:] = 0
    return Samples(torch.from_numpy(tokens), "text", vocabulary=8192)


def rows_of_a_table(count: int = 40) -> Samples:
    draw = rng(0, "table")
    cells = np.stack([draw.normal(50, 9, count), draw.normal(38, 1, count), draw.integers(0, 3, count)], axis=1)
    cells[3, 0] = np.nan
    return Samples(torch.from_numpy(cells.astype(np.float32)), "table", columns=COLUMNS)


def vectors(count: int = 40) -> Samples:
    values = rng(0, "vectors").normal(3.0, 2.0, (count, 7)).astype(np.float32)
    values[:, 2] = 5.0
    return Samples(torch.from_numpy(values), "vectors")


def small_map(samples: Samples, name: str = "auto", levels: float = 0.0) -> FeatureMap:
    net = build(NetSpec("resnet-gn", samples.shape, 2, 0.0), 0) if name == "net" else None
    return make_map(name, InputSpec.of(samples), filters=10, passes=2, net=net, levels=levels)


CASES = [("image", images()), ("colour", images(channels=3)), ("text", texts()), ("table", rows_of_a_table())]
CASES += [("vectors", vectors())]


@pytest.mark.parametrize(("name", "samples"), CASES, ids=[name for name, _ in CASES])
def test_every_partition_gives_the_same_parameters_and_features_bit_for_bit(name: str, samples: Samples) -> None:
    feature_map, everything = small_map(samples), torch.arange(len(samples))
    one = fit(feature_map, [(samples, everything)])
    shuffled = torch.from_numpy(rng(1, "parts").permutation(len(samples)))
    parts = [(samples, part.sort().values) for part in torch.split(shuffled, 11)]
    many = fit(feature_map, parts[::-1])
    if name == "table":  # raw cells are not on a grid, so their sums agree to rounding
        assert all(np.allclose(one[key], many[key], atol=1e-6) for key in one)
        return
    assert digest(one) == digest(many)
    whole = transform(feature_map, one, samples, everything)
    assert whole.shape == (len(samples), feature_map.width)
    some = torch.tensor([11, 2, 5])
    assert np.array_equal(transform(feature_map, one, samples, some), whole[some.numpy()])


@pytest.mark.parametrize(("name", "samples"), CASES, ids=[name for name, _ in CASES])
def test_features_are_standardised(name: str, samples: Samples) -> None:
    feature_map, everything = small_map(samples), torch.arange(len(samples))
    values = decode(transform(feature_map, fit(feature_map, [(samples, everything)]), samples, everything))
    if name == "text":  # one deviation for all: frequent words count for more than rare ones
        assert values.mean(axis=0) == pytest.approx(0.0, abs=0.01)
        assert float(values[:, values.std(axis=0) > 0].var(axis=0).mean()) == pytest.approx(1.0, abs=0.05)
        return
    varies = values.std(axis=0) > 0
    assert varies.mean() > 0.5
    assert np.abs(values.mean(axis=0)).max() < 0.05
    assert values[:, varies].std(axis=0) == pytest.approx(np.ones(varies.sum()), abs=0.1)


def test_the_kernel_of_patches_equals_the_plain_definition() -> None:
    """Cut every patch, normalise its contrast, whiten, respond, threshold on both sides, average over quarters."""
    samples = images(4, 3, 9, 8)
    made = Patches(InputSpec.of(samples), filters=5, passes=1, size=4)
    params = fit(made, [(samples, torch.arange(4))])
    stepped = made.solve(0, {}, made.sums(0, {}, samples, torch.arange(4)))
    stepped = made.solve(1, stepped, made.sums(1, stepped, samples, torch.arange(4)))
    pixels = samples.inputs[2].double().numpy() / 255.0
    expected = np.zeros((2, 4, 5))
    down, across = made.grid
    seen = np.zeros(4)
    for y in range(down):
        for x in range(across):
            patch = pixels[:, y : y + 4, x : x + 4].ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + 10.0 / 255**2)
            response = stepped["directions"] @ (stepped["whiten"] @ (patch - stepped["patch_mean"]))
            quarter = 2 * (y >= down // 2) + (x >= across // 2)
            expected[0, quarter] += np.maximum(0.0, response - 0.25)
            expected[1, quarter] += np.maximum(0.0, -response - 0.25)
            seen[quarter] += 1
    found = made.raw(params, samples, torch.tensor([2]))[0]
    assert found[:40].reshape(2, 4, 5) == pytest.approx(expected / seen[:, None], abs=1e-4)
    corner = pixels[:, :5, :4].reshape(3, -1)  # quarters of nine rows overlap in the middle one
    assert found[40:52:4] == pytest.approx(corner.mean(axis=1), abs=1e-5)
    assert found[52::4] == pytest.approx(corner.std(axis=1), abs=1e-5)
    assert isinstance(_Kernel(made, torch.zeros(48, 5), torch.zeros(5)), _Kernel)


@pytest.mark.parametrize(("name", "samples"), CASES, ids=[name for name, _ in CASES])
def test_plain_torch_gives_the_same_features_for_export(name: str, samples: Samples) -> None:
    samples = replace(samples, mean=(0.3,), std=(0.7,)) if name not in ("text", "colour") else samples
    samples = replace(samples, mean=(0.3, 0.4, 0.5), std=(0.7, 0.6, 0.5)) if name == "colour" else samples
    feature_map, some = small_map(samples), torch.tensor([3, 11, 2])
    params = fit(feature_map, [(samples, torch.arange(len(samples)))])
    assert {key: array.shape for key, array in params.items()} == feature_map.shapes
    plain = feature_map.embed({key: torch.from_numpy(array) for key, array in params.items()}, samples.ready(some))
    assert plain.numpy() == pytest.approx(feature_map.raw(params, samples, some), abs=2e-4)


def test_a_table_of_numbers_may_be_given_vectors() -> None:
    """Embeddings in many columns, as a CSV has them, give what a column of lists gives."""
    lists = vectors()
    names = tuple(Column(f"e{n}") for n in range(7))
    table = replace(lists, kind="table", columns=names, mean=(0.3,) * 7, std=(0.7,) * 7)
    made, plain = make_map("given", InputSpec.of(table)), make_map("given", InputSpec.of(lists))
    rows = torch.arange(len(lists))
    params = fit(made, [(table, rows)])
    assert digest(params) == digest(fit(plain, [(lists, rows)]))
    assert np.array_equal(made.raw(params, table, rows), plain.raw(params, lists, rows))
    seen = made.embed({key: torch.from_numpy(array) for key, array in params.items()}, table.ready(rows))
    assert seen.numpy() == pytest.approx(made.raw(params, table, rows), abs=1e-5)
    with pytest.raises(SettingsError, match="column 'ward' holds categories"):
        make_map("given", InputSpec.of(rows_of_a_table()))
    with pytest.raises(DataError, match="and the model expects e0, e1"):
        made.raw(params, replace(table, columns=names[::-1]), rows)


def test_directions_have_length_one_and_point_at_what_is_there() -> None:
    samples = images(30)
    made = Patches(InputSpec.of(samples), filters=10, passes=3)
    params = dict[str, np.ndarray]()
    for step in range(4):
        params = made.solve(step, params, made.sums(step, params, samples, torch.arange(30)))
    assert np.linalg.norm(params["directions"], axis=1) == pytest.approx(np.ones(10))
    drawn = made.solve(0, {}, made.sums(0, {}, samples, torch.arange(30)))["directions"]
    assert np.abs(drawn - params["directions"]).max() > 0.1


def test_large_images_are_averaged_down_and_tiny_ones_get_small_patches() -> None:
    large = Patches(InputSpec("image", (3, 100, 60)))
    assert (large.shrink, large.image, large.side) == (3, (3, 33, 20), 6)
    tiny = Patches(InputSpec("image", (1, 8, 8)))
    assert (tiny.side, tiny.grid) == (4, (5, 5))
    with pytest.raises(DataError, match="fewer than 2x2 patches"):
        Patches(InputSpec("image", (1, 2, 2)))


def test_net_features_come_from_the_network() -> None:
    samples = Samples(images(12, 3, 16, 16).inputs)
    feature_map = small_map(samples, "net")
    values = transform(feature_map, fit(feature_map, [(samples, torch.arange(12))]), samples, torch.arange(12))
    assert values.shape == (12, feature_map.width)
    with pytest.raises(SettingsError, match="init_weights"):
        make_map("net", InputSpec.of(samples))


def test_texts_with_the_same_words_are_nearer_than_others() -> None:
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5], [6, 7, 8, 9]], dtype=torch.int16)
    samples = Samples(tokens, "text", vocabulary=8192)
    feature_map = small_map(samples)
    assert isinstance(feature_map, HashedText)
    params = fit(feature_map, [(samples, torch.arange(3))])
    weights = np.vstack([part.toarray() for part in feature_map._weights(params, samples, torch.arange(3))])
    assert (weights**2).sum(axis=1) == pytest.approx(np.ones(3))
    assert weights[0] @ weights[1] > 3 * abs(weights[0] @ weights[2])
    values = feature_map.raw(params, samples, torch.arange(3))
    for one, other in ((0, 1), (0, 2), (1, 2)):  # as many directions as texts differ in: nothing is lost
        apart = SPREAD * np.linalg.norm(weights[one] - weights[other])
        assert np.linalg.norm(values[one] - values[other]) == pytest.approx(apart, rel=0.01)


def test_a_constant_column_is_zero_and_a_missing_cell_is_no_error() -> None:
    samples = vectors()
    values = decode(
        transform(small_map(samples), fit(small_map(samples), [(samples, torch.arange(40))]), samples, torch.arange(40))
    )
    assert (values[:, 2] == 0).all()
    table = rows_of_a_table()
    raw = small_map(table).raw(fit(small_map(table), [(table, torch.arange(40))]), table, torch.tensor([3]))
    assert np.isfinite(raw).all()
    assert raw[0, :2].tolist() == [0.0, 1.0]


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    samples = vectors()
    feature_map = small_map(samples)
    short = Samples(samples.inputs[:, :5], "vectors")
    with pytest.raises(DataError, match="these vectors have 5 numbers, and the model expects 7"):
        feature_map.sums(0, {}, short, torch.arange(4))
    with pytest.raises(DataError, match="row 4 holds NaN"):
        feature_map.sums(
            0, {}, Samples(samples.inputs.clone().index_fill_(0, torch.tensor([4]), np.nan), "vectors"), torch.arange(9)
        )
    table = rows_of_a_table()
    wrong = table.inputs.clone()
    wrong[2, 1] = np.inf
    with pytest.raises(DataError, match="column 'fever' holds infinity"):
        small_map(table).sums(0, {}, replace(table, inputs=wrong), torch.arange(9))
    with pytest.raises(DataError, match="names, kinds and categories must be the same"):
        small_map(table).sums(0, {}, replace(table, columns=COLUMNS[::-1]), torch.arange(9))
    with pytest.raises(DataError, match="fitted for"):
        small_map(images()).raw({}, images(height=13), torch.arange(2))
    with pytest.raises(SettingsError, match="are for images"):
        make_map("patches", InputSpec.of(samples))
    with pytest.raises(SettingsError, match="did you mean 'patches'"):
        make_map("patchs", InputSpec.of(images()))


def test_codes_round_and_clip() -> None:
    assert encode(np.array([GRID, 1.4 * GRID, -1e9])).tolist() == [1, 1, -32767]
    assert decode(np.array([2], dtype=np.int16)) == pytest.approx([2 * GRID])


def test_moments_are_exact_and_add_up() -> None:
    values = np.array([[1.0, 2.0], [3.0, 2.0]])
    both = standard(moments(values))
    assert both["mean"].tolist() == [2.0, 2.0]
    assert both["std"].tolist() == [1.0, 1.0]  # the second is constant
    assert mixed(np.array([7]), 1) != mixed(np.array([7]), 2)


def test_texts_that_occur_twice_do_not_switch_the_ridge_off() -> None:
    """Cross-validation sees no error on a sample whose copy it keeps, so it would choose nearly no ridge."""
    samples = texts()
    feature_map, labels = small_map(samples), rng(0, "labels").integers(0, 3, 40)
    codes = transform(feature_map, fit(feature_map, [(samples, torch.arange(40))]), samples, torch.arange(40))
    twice = Sums.of(np.concatenate([codes, codes]), np.concatenate([labels, labels]), 3)
    unit = float(np.trace(Centred.of(twice).scatter)) / 79
    assert solve(twice).ridge < 0.01 * unit
    assert solve(twice, least=least_ridge(feature_map)).ridge == pytest.approx(unit * 10**-0.5)
    assert least_ridge(small_map(images())) == LEAST_RIDGE


def grey_levels(count: int = 120) -> tuple[Samples, np.ndarray]:
    """Noise of three levels, the second between the others."""
    labels = np.arange(count) % 3
    pixels = rng(0, "levels").normal(80.0 + 40.0 * labels[:, None, None, None], 10.0, (count, 1, 16, 16))
    return Samples(torch.from_numpy(np.clip(pixels, 0, 255).astype(np.uint8))), labels


def test_levels_tell_apart_classes_that_differ_in_brightness_alone() -> None:
    samples, labels = grey_levels()
    rows, right = torch.arange(120), {}
    for share in (0.0, 0.2):
        feature_map = small_map(samples, levels=share)
        codes = transform(feature_map, fit(feature_map, [(samples, rows)]), samples, rows)
        scores = solve(Sums.of(codes[:48], labels[:48], 3)).scores(decode(codes[48:]).astype(np.float64))
        right[share] = float((scores.argmax(axis=1) == labels[48:]).mean())
    assert right[0.0] < 0.8
    assert right[0.2] > 0.95


def test_levels_have_their_share_of_the_variance_and_the_same_bits_in_every_partition_and_batch() -> None:
    samples, rows = images(channels=3), torch.arange(36)
    feature_map = small_map(samples, levels=0.2)
    params = fit(feature_map, [(samples, rows)])
    parts = [(samples, part) for part in torch.split(rows, 7)]
    assert digest(fit(feature_map, parts[::-1])) == digest(params)
    codes = transform(feature_map, params, samples, rows)
    assert np.array_equal(transform(feature_map, params, samples, torch.tensor([11, 2])), codes[[11, 2]])
    variance = decode(codes).var(axis=0)
    assert variance[-64:].sum() / variance.sum() == pytest.approx(0.2, abs=0.02)
    seen = feature_map.embed({key: torch.from_numpy(array) for key, array in params.items()}, samples.ready(rows))
    assert seen.numpy() == pytest.approx(feature_map.raw(params, samples, rows), abs=5e-4)
    without = small_map(samples)
    plain = fit(without, [(samples, rows)])
    assert np.array_equal(transform(without, plain, samples, rows), codes[:, : without.width])
    nobody = feature_map.sums(0, {}, samples, rows[:0])
    assert {name: array.shape for name, array in nobody.items()} == {
        name: array.shape for name, array in feature_map.sums(0, {}, samples, rows).items()
    }
