"""Data tests have a cache of their own and see no data of the machine."""

from __future__ import annotations

import os

import pytest

REAL_DATA = os.environ.get("CHASE_DATA", "")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CHASE_DATA", raising=False)


@pytest.fixture
def real_data(monkeypatch):
    """The directory of real files; decoded into the user's own cache, once."""
    if not REAL_DATA:
        pytest.skip("CHASE_DATA is not set")
    monkeypatch.delenv("CHASE_CACHE")
    monkeypatch.setenv("CHASE_DATA", REAL_DATA)
    return REAL_DATA
