"""Looking after a federation: health, certificates, monitoring, damaged samples."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from site_room.sites import first_order, now, play, tiny_settings, tiny_site
from support import small_settings
from typer.testing import CliRunner

from chase.cli.federation import change_run
from chase.cli.federation_say import say_gathering
from chase.cli.main import app
from chase.core.errors import ChaseError, CheckpointError, FederationError, LabelError, RunDirectoryError
from chase.core.messages import RoundOrder
from chase.federation.diary import Diary, events
from chase.federation.health import federation_problems, metrics_text, site_problems
from chase.federation.ops import certificates, keys
from chase.federation.rules import FederationDirectory, Rules
from chase.federation.status_view import lateness, phase_now, rounds_of, snapshot, told
from chase.home.inbox import Given
from chase.run.record import Record
from chase.site import turn
from chase.site.place import Site


@pytest.fixture
def federation(tmp_path: Path) -> FederationDirectory:
    federation = FederationDirectory.create(tmp_path / "fed", Rules(), True, "127.0.0.1", 1)
    keys.server_certificate(federation.path / "keys", ["fed.example.org", "127.0.0.1"])
    Record.create(federation.run, small_settings(), kind="federation")
    return federation


def test_a_federation_that_is_down_is_not_healthy_whatever_it_said_last(federation: FederationDirectory) -> None:
    Diary(federation.run).show(phase="round", round=2, sites={"site-a": "training"})
    found = federation_problems(federation)
    assert any("nothing is served" in line for line in found)
    assert any("although the last recorded phase is 'round'" in line for line in found)
    assert phase_now(federation.run, "round") == "stopped (was: round)"
    assert snapshot(federation)["sites"] == {"site-a": "not known (was: training)"}
    with Record.open(federation.run).held():
        assert snapshot(federation)["sites"] == {"site-a": "training"}
    Diary(federation.run).show(phase="failed", why="the disk is full")
    assert "the run has failed: the disk is full" in federation_problems(federation)
    runner = CliRunner()
    assert runner.invoke(app, ["federation", "health", str(federation.path)]).exit_code == 1
    assert runner.invoke(app, ["federation", "status", str(federation.path)]).exit_code == 1


def test_a_certificate_that_ends_soon_is_reported_and_renewed_from_the_same_ca(
    federation: FederationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = federation.path / "keys"
    monkeypatch.setattr(keys, "DAYS", 30)
    for name in ("server.pem", "server.key"):
        (place / name).unlink()
    ca_key = certificates.load_pem_private_key((place / "ca.key").read_bytes(), None)
    ca = certificates.read_certificate(place / "ca.crt")
    key = keys.ec.generate_private_key(keys.CURVE())
    names = [keys.alternative_name("fed.example.org")]
    short = keys.signed_by(ca_key, ca.subject, keys._name("fed.example.org"), names, key.public_key())
    (place / "server.pem").write_bytes(short.public_bytes(keys.Encoding.PEM))
    keys.write_private(place / "server.key", b"old")
    assert any("server.pem ends in 2" in line for line in federation_problems(federation))
    before = certificates.fingerprint(place / "ca.crt")
    monkeypatch.setattr(keys, "DAYS", 825)
    assert certificates.renew(place) > 800
    assert certificates.fingerprint(place / "ca.crt") == before
    assert (place / "server.key").stat().st_mode & 0o777 == 0o600
    assert (place / "server.key.old").read_bytes() == b"old"
    certificates.read_certificate(place / "server.pem").verify_directly_issued_by(ca)
    assert certificates.read_certificate(place / "server.pem").not_valid_after_utc <= ca.not_valid_after_utc
    assert not any("server.pem" in line for line in federation_problems(federation))


def test_health_names_sites_that_do_not_take_part_while_rounds_are_under_way(federation: FederationDirectory) -> None:
    diary = Diary(federation.run)
    diary.note(2, "refused", "site-b", "use the same version of chase")
    words = {"site-a": "answered", "site-b": "refused", "site-c": "away"}
    diary.show(phase="round", round=3, sites=words)
    found = federation_problems(federation)
    assert "site-b is refused: use the same version of chase" in found
    assert "site-c is not connected" in found
    assert not any("site-a" in line for line in found)
    diary.show(phase="gathering", sites={"site-a": "ready", "site-b": "refused"})
    waiting = say_gathering(federation, "")
    assert waiting.startswith("waiting for sites: 1 of ")
    assert f"(site-a); site-b is refused (`chase federation health {federation.path}` says why)" in waiting
    diary.show(phase="finished")
    assert not any("site-" in line for line in federation_problems(federation))


def test_health_names_sites_that_never_came_and_not_those_that_were_removed(federation: FederationDirectory) -> None:
    roster = federation.roster
    for name in ("site-a", "site-b", "site-c", "site-d"):
        roster = roster.admit(name)
    federation.keep(roster.dismiss("site-b").dismiss("site-d"))
    diary = Diary(federation.run)
    diary.show(phase="round", round=3, sites={"site-a": "answered", "site-b": "away", "site-d": "refused"})
    named = [line for line in federation_problems(federation) if "site-" in line]
    assert named == ["site-c has not connected since the server was started"]
    diary.show(phase="gathering", sites={"site-a": "ready"})  # a moment ago: it may still come
    assert not any("site-c" in line for line in federation_problems(federation))
    later = json.loads((federation.run / "state.json").read_text())
    (federation.run / "state.json").write_text(json.dumps(later | {"time": later["time"] - 100}))
    assert any("site-c" in line for line in federation_problems(federation))


def test_an_event_is_a_line_with_its_round() -> None:
    event = {"round": 4, "site": "", "what": "finished", "why": "all 4 rounds done"}
    assert told(event) == "round 4: finished all 4 rounds done"
    assert told({"round": 0, "site": "site-a", "what": "joined", "why": ""}) == "site-a joined"


def test_status_counts_rounds_in_which_a_site_was_clipped_or_refused() -> None:
    lines = [{"sites": {"refused": {"a": "why"}, "clipped": {"b": 7.0}}}, {"sites": {"refused": {"a": "x"}}}, {}]
    assert rounds_of(lines, "refused") == {"a": 2}
    assert rounds_of(lines, "clipped") == {"b": 1}


def test_rules_change_between_runs_all_or_none(federation: FederationDirectory) -> None:
    before = federation.path.joinpath("federation.toml").read_text()
    change_run(federation, ["rounds=7"], ["secure=true", "deadline=30"])
    assert (federation.rules.secure, federation.rules.deadline, federation.rules.quorum) == (True, 30, 0)
    assert federation.address == ("127.0.0.1", 1)
    assert federation.secure
    assert Record.open(federation.run).settings.rounds == 7
    for changes, rules, why in (
        (["rounds=9"], ["securr=true"], "did you mean 'secure'"),
        (["rounds=9"], ["quorum=-1"], "quorum = -1 is invalid"),
        (["rounds=9"], ["dp_epsilon=8"], "dp_epsilon needs client_weights = equal"),
        (["lr=0.5"], ["quorum=2"], "was begun with lr"),
        ([], ["quorum"], "--rule takes key=value, not 'quorum'; for example --rule quorum=3"),
        ([], ["secure=maybe"], "secure = 'maybe' is invalid: give true or false"),
    ):
        with pytest.raises(ChaseError, match=why):
            change_run(federation, changes, rules)
        assert Record.open(federation.run).settings.rounds == 7
        assert federation.rules.quorum == 0
    assert before != federation.path.joinpath("federation.toml").read_text()
    with Record.open(federation.run).held(), pytest.raises(RunDirectoryError):
        change_run(federation, [], ["quorum=2"])
    assert federation.rules.quorum == 0


def test_a_ca_that_ends_soon_cannot_renew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "CA_DAYS", 30)
    keys.server_certificate(tmp_path, ["localhost"])
    with pytest.raises(FederationError, match="the CA certificate itself expires in 29 days"):
        certificates.renew(tmp_path)
    assert datetime.timedelta(days=certificates.AHEAD) > datetime.timedelta(days=29)


def test_a_monitor_reads_the_state(federation: FederationDirectory) -> None:
    text = metrics_text(federation)
    assert "# TYPE chase_up gauge\nchase_up 0\n" in text
    assert "# TYPE chase_late_total counter\nchase_late_total 0\n" in text
    assert "chase_rounds_done 0\n" in text
    assert "chase_certificate_days_left 82" in text
    assert CliRunner().invoke(app, ["federation", "metrics", str(federation.path)]).stdout == text
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(FederationError, match="another process listens there; end it, or choose another --port"):
            CliRunner().invoke(
                app, ["federation", "metrics", str(federation.path), "--port", port], catch_exceptions=False
            )


def test_flipped_bits_in_a_sample_are_found_named_at_the_site_and_refused_by_the_handshake(tmp_path: Path) -> None:
    site = tiny_site(tmp_path / "home", 1)
    assert not any("damaged" in line for line in site_problems(site))
    arrays = site.read("samples")
    inputs = arrays["inputs"].copy()
    inputs.reshape(inputs.shape[0], -1)[3, 0] ^= 1
    site.write("samples", {**arrays, "inputs": inputs})
    assert any("1 sample is damaged" in line for line in site_problems(site))
    settings = tiny_settings()
    own = turn.contract_of(settings, site.samples(), site.classes)
    assert turn.objections(site, settings, own) == [
        "1 sample is damaged at the site: `chase site health` there names them"
    ]


def test_health_of_a_site_names_a_full_disk_also_where_its_inbox_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    tiny_site(home, 1).close()

    def full(*_: object, **__: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", full)
    done = CliRunner().invoke(app, ["site", "health", str(home)])
    assert isinstance(done.exception, LabelError)  # space is left: the file itself is bad
    assert "cannot be read as an inbox: disk I/O error" in str(done.exception)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    done = CliRunner().invoke(app, ["site", "health", str(home)])
    assert done.exit_code == 1
    assert f"only 0 MB are free on the disk of {home}\n" in done.output
    assert "cannot be opened: no space is left on the disk: free some" in done.output


def answer_all(site: Site) -> dict[int, int]:
    """Somebody answers every open question; what was answered."""
    given = {q["sample"]: q["sample"] % 2 for q in site.home.ledger.open_questions()}
    anna = site.home.people.named("anna").id
    for sample, label in given.items():
        site.home.inbox.answer(Given(sample, label, anna, key=f"key-{sample}"))
    return given


def held(site: Site) -> dict[int, int]:
    state = now(site)
    return dict(zip(state.pools.labeled.tolist(), state.labels_of(state.pools.labeled).tolist(), strict=True))


@pytest.mark.parametrize("how", ["older copy", "flipped bit"])
def test_a_site_whose_state_is_older_or_damaged_takes_every_label_from_its_inbox(tmp_path: Path, how: str) -> None:
    site, given = tiny_site(tmp_path / "home", 1, "page"), dict[int, int]()
    for round in range(1, 6):
        play(site, round)
        given |= answer_all(site)
    play(site, 6)
    assert len(given) >= 6
    assert given.items() <= held(site).items()
    turns = now(site).turn
    if how == "older copy":
        with site.home.database.transaction() as db:  # what a copy of two turns ago had
            db.execute("DELETE FROM turns WHERE version > (SELECT MIN(version) FROM turns)")
    else:
        for file in sorted((site.path / "state").iterdir())[1:]:
            raw = bytearray(file.read_bytes())
            raw[-1] ^= 1
            file.write_bytes(raw)
        with pytest.raises(CheckpointError, match="checksum"):
            play(site, 7)
        assert any("2 of the kept turns are damaged: run `chase site recover" in line for line in site_problems(site))
        site.close()
        done = CliRunner().invoke(app, ["site", "recover", str(site.path)])
        assert (done.exit_code, done.stdout[:23]) == (0, "2 damaged turns removed")
        site = Site(site.path)
    assert now(site).turn < turns
    assert not given.items() <= held(site).items()
    settings = tiny_settings()
    order = RoundOrder("run", 7, 0, first_order(site, settings).weights)
    turn.take_turn(site, settings, 0, order, recover=how == "older copy")
    assert given.items() <= held(site).items()
    assert not given.keys() & {q["sample"] for q in site.home.ledger.open_questions()}  # nothing is asked twice


def test_who_is_late_and_how_slow_is_told_by_site() -> None:
    lines = [
        {"sites": {"seconds": {"a": 1.0, "b": 75.0}, "late": ["b"], "missing": []}},
        {"sites": {"seconds": {"a": 2.0}, "late": [], "missing": ["b"]}},
    ]
    assert lateness(lines) == {"a": (2.0, 0), "b": (75.0, 2)}


def test_events_after_a_line_that_a_full_disk_has_cut_are_still_told(federation: FederationDirectory) -> None:
    diary = Diary(federation.run)
    diary.note(1, "joined", "site-a")
    with (federation.run / "events.jsonl").open("a") as file:
        file.write('{"time": 17948, "round": 0, ')
    diary.note(2, "refused", "site-b", "why")
    diary.note(3, "finished")
    assert [(e["round"], e["what"]) for e in events(federation.run)] == [(1, "joined"), (2, "refused"), (3, "finished")]
    assert "chase_events_total 3\n" in metrics_text(federation)
