"""A real site's client is made where simulated ones are: people see the model's guess, and the site's device counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from site_room.sites import first_order, play, tiny_settings, tiny_site

from chase.core.errors import SettingsError
from chase.site.place import read_card
from chase.site.turn import client_of, take_turn, tally


def test_people_at_a_real_site_see_what_the_model_thinks(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home", annotator="page")
    play(site, 1, 2)
    with site.home.database.reading() as db:
        thoughts = [json.loads(row["thoughts"]) for row in db.execute("SELECT thoughts FROM questions")]
    assert len(thoughts) == tiny_settings().budget
    for guesses in thoughts:
        assert sorted(label for label, _ in guesses) == [0, 1]
        assert sum(chance for _, chance in guesses) == pytest.approx(1.0, abs=1e-3)


def test_nobody_looks_at_the_guess_of_a_simulated_site(tmp_path: Path) -> None:
    assert not client_of(tiny_site(tmp_path / "home"), tiny_settings(), 0).context.for_people


def test_a_site_computes_on_its_own_device(tmp_path: Path) -> None:
    site, settings = tiny_site(tmp_path / "home"), tiny_settings()
    order = first_order(site, settings)
    assert client_of(site, settings, 0).context.settings.device == "cpu"
    site.keep(replace(read_card(site.path), device="nowhere"))
    with pytest.raises(SettingsError, match="device = 'nowhere' cannot be used on this machine"):
        take_turn(site, settings, 0, order)
    with pytest.raises(SettingsError, match="device = 'nowhere' cannot be used on this machine"):
        tally(site, settings, order.weights)
