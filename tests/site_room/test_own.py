from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from site_room.sites import tiny_settings
from typer.testing import CliRunner

from chase.cli.main import app
from chase.client.build import build_net
from chase.core.errors import ChaseError, DataError
from chase.core.messages import RoundOrder
from chase.federation.ops.supervisor import ProcessSpec, Supervisor
from chase.home.originals import original_name
from chase.home.views import HomeView
from chase.models.net import get_weights
from chase.site import samples
from chase.site.contract import contract_of
from chase.site.place import Site, SiteCard
from chase.site.status import status
from chase.site.turn import take_turn

CLASSES = ("cat", "dog")


def pictures(root: Path, folder: str, count: int, value: int, size: int = 8) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = np.full((size, size), value + number % 7, dtype=np.uint8)
        Image.fromarray(pixels).save(root / folder / f"{folder}-{number}.png")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    root = tmp_path / "scans"
    pictures(root, "cat", 10, 20)
    pictures(root, "dog", 10, 120)
    pictures(root, "unlabeled", 30, 60)
    (root / "unlabeled" / "notes.txt").write_text("not an image")
    (root / "unlabeled" / "torn.png").write_bytes(b"\x89PNG torn")
    return root


def run(*arguments: object) -> str:
    """A command as typed; errors as they are."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_site_of_its_own_images_from_init_to_forget(tmp_path: Path, scans: Path) -> None:
    home = tmp_path / "home"
    said = run("site", "init", home, "--data", scans, "--id", "site-a", "--hold-out", "0.2", "--budget", "4")
    assert "50 samples" not in said  # four are held out
    assert "46 samples, 16 labelled, 4 held out" in said
    assert "torn.png" in said
    assert (home / "node.key").stat().st_mode & 0o777 == 0o600
    found = json.loads(run("site", "status", home, "--json"))
    assert (found["classes"], found["annotator"], found["held_out"]) == (["cat", "dog"], "page", 4)
    more = tmp_path / "more"
    pictures(more, "unlabelled", 3, 90)
    assert "3 samples added, 0 of them labelled" in run("site", "add", home, more)
    said = run("site", "add", home, more)
    assert "3 samples were skipped because the site has identical ones" in said
    assert "0 samples added" in said
    assert "1 sample forgotten" in run("site", "forget", home, "unlabelled/unlabelled-1.png")
    with pytest.raises(ChaseError, match="no sample called"):
        run("site", "forget", home, "unlabelled/unlabelled-1.png")
    assert status(Site(home))["samples"] == 48


def test_what_is_held_out_is_known_by_name_and_by_content(tmp_path: Path, scans: Path) -> None:
    home = tmp_path / "home"
    said = run("site", "init", home, "--data", scans, "--id", "site-a", "--hold-out", "0.2")
    assert "held-out samples equal one that may be trained on" in said  # ten pictures of seven shades
    held = Site(home).held_out()
    assert held is not None
    name = held.names[0]
    said = run("site", "add", home, scans / name, scans / "cat" / "cat-1.png")
    assert "2 samples were skipped" in said
    assert "0 samples added" in said
    assert "1 sample forgotten" in run("site", "forget", home, name)
    assert status(Site(home))["held_out"] == 3
    left = Site(home).held_out()
    assert left is not None
    assert name not in left.names


def test_texts_that_are_added_are_read_by_people_too(tmp_path: Path) -> None:
    first, more = tmp_path / "notes.csv", tmp_path / "more.csv"
    first.write_text("text,label\ngood news,yes\nbad news,no\n")
    more.write_text("text,label\ngood news,yes\nno news,no\n")
    samples.init(tmp_path / "home", SiteCard("site-t"), [first], samples.DataOptions(text_length=8))[0].close()
    assert "1 sample added, 1 of them labelled" in run("site", "add", tmp_path / "home", more)
    site = Site(tmp_path / "home")
    sample = site.home.inbox.sample_named("more.csv:3")
    assert sample is not None
    assert HomeView(site.home).show(sample).body == b"no news"
    assert not (tmp_path / "home" / "originals" / original_name("more.csv:2")).exists()


@pytest.mark.parametrize("folder", ["Cat", "later"])
def test_a_folder_that_is_no_class_is_named(tmp_path: Path, scans: Path, folder: str) -> None:
    home, more = tmp_path / "home", tmp_path / "more"
    pictures(more, folder, 3, 90)
    says = f"folder '{folder}' is not one of the 2 classes cat, dog: rename it to its class, or to unlabeled"
    with pytest.raises(DataError, match=says):
        run("site", "init", home, "--data", more, "--id", "site-a", "--classes", "cat,dog")
    assert not home.exists()
    run("site", "init", home, "--data", scans, "--id", "site-a", "--classes", "cat,dog")
    with pytest.raises(DataError, match=says):
        run("site", "add", home, more)


def test_a_site_without_the_means_to_make_a_key_is_not_begun(
    tmp_path: Path, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "chase.federation.ops.keys", None)
        with pytest.raises(ChaseError, match="keys need Flower"):
            run("site", "init", home, "--data", scans, "--id", "site-a")
        assert not home.exists()
    run("site", "init", home, "--data", scans, "--id", "site-a")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ChaseError, match="a federation needs Flower"):
            run("site", "connect", home, "--server", "x:1", "--insecure")


def test_a_new_key_for_a_site(tmp_path: Path, scans: Path) -> None:
    home = tmp_path / "home"
    run("site", "init", home, "--data", scans, "--id", "site-a")
    first = (home / "node.key").read_bytes()
    said = run("site", "key", home)
    assert (home / "node.key.pub").read_text().strip() in said
    assert (home / "node.key").read_bytes() != first
    assert (home / "node.key.old").read_bytes() == first
    assert [(home / name).stat().st_mode & 0o777 for name in ("node.key", "node.key.old")] == [0o600, 0o600]
    (home / "node.key").unlink()  # lost
    run("site", "key", home)
    assert not list(home.glob("node.key.new*"))
    with Supervisor(home / "processes.json") as supervisor:
        supervisor.start(ProcessSpec("site-a", ("sleep", "60"), tmp_path / "log"))
        with pytest.raises(ChaseError, match="first run `chase site disconnect"):
            run("site", "key", home)


@pytest.mark.parametrize(
    "server", ["nonsense", "fed.example.org", "x:0", "x:65536", "x:y", ":8443", "https://x:443", "a b:1", "::1:8443"]
)
def test_a_server_that_cannot_be_one_is_refused_at_once(tmp_path: Path, server: str) -> None:
    with pytest.raises(ChaseError, match="--server takes HOST:PORT"):
        run("site", "connect", tmp_path, "--server", server, "--insecure")


@pytest.mark.parametrize("server", ["x:1", "fed.example.org:8443", "127.0.0.1:9091", "[::1]:8443", "my_host:65535"])
def test_a_server_that_can_be_one_is_tried(tmp_path: Path, server: str) -> None:
    with pytest.raises(ChaseError, match="not a site"):
        run("site", "connect", tmp_path, "--server", server, "--insecure")


def test_a_contract_that_cannot_be_followed_is_refused_in_a_sentence(tmp_path: Path, scans: Path) -> None:
    home, agreed = tmp_path / "home", tmp_path / "contract.json"
    run("site", "init", home, "--data", scans, "--id", "site-a")
    body = json.loads(run("site", "contract", home, "digits"))
    agreed.write_text(json.dumps(body | {"shape": [8, 8]}))
    with pytest.raises(ChaseError, match=r"its shape is \[8, 8\], not channels, height, width"):
        run("site", "init", tmp_path / "other", "--data", scans, "--id", "site-b", "--contract", agreed)


def test_sites_that_follow_a_contract_agree(tmp_path: Path, scans: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    run("site", "init", home, "--data", scans, "--id", "site-a")
    agreed = tmp_path / "contract.json"
    agreed.write_text(run("site", "contract", home, "digits", "--set", "clients=2"))
    pictures(tmp_path / "big", "dog", 5, 100, size=20)
    run("site", "init", other, "--data", tmp_path / "big", "--id", "site-b", "--contract", agreed)
    settings = tiny_settings()
    views = [contract_of(settings, Site(p).samples(), Site(p).classes) for p in (home, other)]
    assert views[0] == views[1]
    assert Site(other).samples().shape == (1, 8, 8)


def test_texts_are_read_by_people_and_trained_on_as_numbers(tmp_path: Path) -> None:
    table = tmp_path / "notes.csv"
    rows = [f"good news number {n},yes" if n % 2 else f"bad news {n},no" for n in range(20)]
    table.write_text("text,label\n" + "\n".join(rows) + "\nnobody knows this one,\n")
    site, problems = samples.init(tmp_path / "home", SiteCard("site-t"), [table], samples.DataOptions(text_length=8))
    assert problems == ()
    assert site.classes == ("no", "yes")
    assert site.home.card.vocabulary > 0
    sample = site.home.inbox.sample_named("notes.csv:22")
    assert sample is not None
    assert HomeView(site.home).show(sample).body == b"nobody knows this one"
    settings = tiny_settings(net="text-bag")
    weights = get_weights(build_net(settings, site.samples(), 2))
    update = take_turn(site, settings, 0, RoundOrder("run", 1, 0, weights))
    assert update.num_labeled == 20
    run("site", "forget", tmp_path / "home", "notes.csv:22")
    assert not (tmp_path / "home" / "originals" / original_name("notes.csv:22")).exists()


def test_the_first_turn_and_the_first_questions_of_a_site_with_people(tmp_path: Path, scans: Path) -> None:
    card = SiteCard("site-a", budget=4, period=1)
    site, _ = samples.init(tmp_path / "home", card, [scans], samples.DataOptions())
    settings = tiny_settings()
    weights = get_weights(build_net(settings, site.samples(), 2))
    for round in (1, 2):
        take_turn(site, settings, 0, RoundOrder("run", round, 0, weights))
    assert status(site)["open_questions"] == 4  # the site's own budget, not the server's
    assert status(site)["pools"]["asked"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "nowhere", "--id", "site-a"], "does not exist"),
        (["--data", "scans", "--id", "Site A"], "is invalid as the name"),
        (["--data", "scans", "--id", "site-a", "--annotator", "robot"], "page or simulated"),
        (["--data", "scans", "--id", "site-a", "--contract", "nowhere.json"], "cannot read"),
        (["--data", "empty", "--id", "site-a"], "holds no images"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    tmp_path: Path, scans: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ChaseError, match=says):
        run("site", "init", "home", *arguments)
    assert not (tmp_path / "home" / "site.json").exists()


def test_a_site_cut_from_a_data_set_takes_no_files(tmp_path: Path) -> None:
    from site_room.sites import tiny_site

    with pytest.raises(DataError, match="was made from a part of a data set"):
        samples.read_more(tiny_site(tmp_path / "home"), [tmp_path])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["connect", "home", "--server", "x:1"], "give --ca"),
        (["connect", "home", "--server", "x:1", "--ca", "nowhere.crt"], "no certificate"),
        (["status", "home"], "not a site"),
        (["forget", "home", "x"], "not a site"),
    ],
)
def test_a_place_that_is_no_site_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChaseError, match=says):
        run("site", *arguments)


@pytest.mark.parametrize("name", ["Reports.CSV", "Reports.Csv"])
def test_a_table_in_capital_letters_is_a_table_at_a_site_too(tmp_path: Path, name: str) -> None:
    rows = "".join(f"{n},a short text number {n},{CLASSES[n % 2]}\n" for n in range(20))
    (tmp_path / name).write_text("id,text,label\n" + rows)
    home = tmp_path / "home"
    assert "20 samples, 20 labelled" in run("site", "init", home, "--data", tmp_path / name, "--id", "site-a")
    (tmp_path / f"More{name[-4:]}").write_text("id,text,label\n90,another text,cat\n")
    assert "1 sample added, 1 of them labelled" in run("site", "add", home, tmp_path / f"More{name[-4:]}")
