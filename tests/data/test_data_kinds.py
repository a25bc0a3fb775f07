"""Vectors and table rows as samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from chase.core.errors import DataError
from chase.data.cache import cached
from chase.data.decoded import DataPart, Decoded
from chase.data.resident import Column, Samples

COLUMNS = (Column("age"), Column("ward", "categorical", ("a", "b", "c")))


def test_vectors_are_standardised_by_column() -> None:
    samples = Samples(torch.tensor([[1.0, 10.0], [3.0, 30.0]]), "vectors", mean=(1.0, 20.0), std=(2.0, 10.0))
    assert samples.shape == (2,)
    assert samples.ready(torch.tensor([1, 0])).tolist() == [[1.0, 1.0], [0.0, -1.0]]


def test_a_table_row_becomes_value_missing_flag_and_one_flag_per_category() -> None:
    cells = torch.tensor([[30.0, 2.0], [float("nan"), float("nan")]])
    samples = Samples(cells, "table", mean=(20.0, 0.0), std=(10.0, 1.0), columns=COLUMNS)
    assert samples.shape == (5,)
    assert samples.ready(torch.tensor([0, 1])).tolist() == [[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]]


def test_a_table_without_its_columns_is_refused() -> None:
    with pytest.raises(DataError, match="2 columns comes with 1 descriptions"):
        Samples(torch.zeros(3, 2), "table", columns=COLUMNS[:1])


def test_the_columns_of_a_table_stay_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path))
    part = DataPart(np.zeros((2, 2), dtype=np.float32), np.array([0, 1]))
    made = Decoded("wards", "table", part, part, ("no", "yes"), columns=COLUMNS)
    assert cached("wards", "key", lambda: made).columns == COLUMNS
    again = cached("wards", "key", lambda: pytest.fail("decoded twice"))
    assert again.columns == COLUMNS
    assert again.data_set().train.columns == COLUMNS
