"""The page's server: what it hands out, and to whom."""

from __future__ import annotations

import http.client
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from homes import ask, image_home, originals_home, served, text_home
from PIL import Image

from chase.core.errors import LabelError
from chase.home import views
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.page.app import cookie_name
from chase.home.page.guard import MAX_BODY
from chase.home.page.serving import Address, hosts, is_loopback, origin
from chase.home.views import HomeView


class Annotator(httpx.Client):
    """What a browser does: it loads a sample before it answers, and sends its receipt."""

    def given(self, want: int = 10) -> list[int]:
        return [q["sample"] for q in self.post("/api/next", json={"want": want, "shown": want}).json()["queue"]]

    def seen(self, sample: int) -> str:
        return str(self.get(f"/api/samples/{sample}").headers.get("x-chase-seen", ""))

    def answer(self, *answers: dict, **more: object) -> dict:
        """Look at the samples and answer."""
        body = {"answers": [{"seen": self.seen(one["sample"])} | one for one in answers]} | more
        response = self.post("/api/answer", json=body)
        assert response.status_code == 200, response.text
        found: dict = response.json()
        return found


@contextmanager
def browser(where: str) -> Iterator[Annotator]:
    headers = {"origin": where, "content-type": "application/json"}
    with Annotator(base_url=where, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = image_home(tmp_path / "home", initial={0: 1})
    ask(made, range(5, 15))
    yield made
    made.close()


@pytest.fixture
def where(home: Home) -> Iterator[str]:
    with served(home) as address:
        yield address


def enter(client: httpx.Client, home: Home, name: str) -> httpx.Response:
    return client.post("/api/enter", json={"token": home.people.invite(name)})


@pytest.fixture
def anna(home: Home, where: str) -> Iterator[Annotator]:
    with browser(where) as client:
        assert enter(client, home, "anna").status_code == 200
        client.given()
        yield client


@pytest.fixture
def ben(home: Home, where: str) -> Iterator[Annotator]:
    with browser(where) as client:
        assert enter(client, home, "ben").status_code == 200
        yield client


@pytest.fixture
def nobody(where: str) -> Iterator[httpx.Client]:
    with browser(where) as client:
        yield client


def raw_status(where: str, path: str, client: httpx.Client) -> int:
    """The status of a path sent as it is: clients tidy paths up before they send them."""
    connection = http.client.HTTPConnection(where.removeprefix("http://"))
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.putheader("cookie", "; ".join(f"{name}={value}" for name, value in client.cookies.items()))
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_token_becomes_a_strict_cookie_that_scripts_cannot_read(home: Home, nobody: httpx.Client) -> None:
    response = enter(nobody, home, "anna")
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie, "over plain http on loopback"
    assert nobody.get("/api/me").json()["annotator"] == "anna"


def test_a_session_lasts_as_long_as_it_is_used(anna: Annotator) -> None:
    assert "max-age=2592000" in anna.get("/api/me").headers["set-cookie"].lower()


def test_two_homes_on_one_machine_keep_their_sessions_apart(home: Home, anna: Annotator, tmp_path: Path) -> None:
    other = image_home(tmp_path / "other")
    with served(other) as there, browser(there) as client:
        client.cookies = anna.cookies  # as a browser does: a cookie knows its host but not its port
        assert client.get("/api/me").status_code == 401
        assert enter(client, other, "ben").status_code == 200
        anna.cookies = client.cookies
        assert client.get("/api/me").json()["annotator"] == "ben"
        assert anna.get("/api/me").json()["annotator"] == "anna"
    assert Home(home.path).database.identity == home.database.identity
    assert cookie_name(home, True).startswith("__Host-")


def test_a_wrong_or_used_token_is_refused(home: Home, nobody: httpx.Client, where: str) -> None:
    token = home.people.invite("ben")
    with browser(where) as first:
        assert first.post("/api/enter", json={"token": token}).status_code == 200
    for bad in (token, "wrong", ""):
        response = nobody.post("/api/enter", json={"token": bad})
        assert response.status_code == 401
        assert "link" in response.json()["error"]
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/me"),
        ("GET", "/api/history"),
        ("GET", "/api/samples/5"),
        ("POST", "/api/next"),
        ("POST", "/api/answer"),
        ("POST", "/api/undo"),
        ("POST", "/api/settings"),
    ],
)
def test_nobody_gets_anything_without_a_session(home: Home, nobody: httpx.Client, method: str, path: str) -> None:
    for cookies in ({}, {cookie_name(home, False): "guess"}):
        nobody.cookies.update(cookies)
        response = nobody.request(method, path)
        assert response.status_code == 401
        assert set(response.json()) == {"error", "kind"}
    assert home.ledger.counts()["shown"] == 0


def test_the_shell_holds_no_sample_no_label_and_nothing_from_outside(nobody: httpx.Client) -> None:
    page = nobody.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    static = Path(__file__).parents[2] / "src/chase/home/page/static"
    for file in static.iterdir():
        body = nobody.get(f"/static/{file.name}")
        assert body.content == file.read_bytes()
        outside = body.text.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in outside, f"{file.name} names another machine"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/home.py",
        "/static//etc/passwd",
        "/static/....//app.py",
        "/../../etc/passwd",
        "/api/samples/../../inbox.sqlite",
        "/api/samples/5%2f..%2f..",
        "/inbox.sqlite",
        "/client.json",
    ],
)
def test_paths_lead_nowhere_else(anna: Annotator, where: str, path: str) -> None:
    assert raw_status(where, "/api/samples/5", anna) == 200
    assert raw_status(where, path, anna) == 404


def test_only_samples_that_were_asked_for_are_shown(anna: Annotator) -> None:
    shown = anna.get("/api/samples/5")
    assert shown.headers["content-type"] == "image/png"
    assert shown.content.startswith(b"\x89PNG")
    assert shown.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for sample in ("0", "20", "999", "99999999999999999999", "9" * 5000, "-5", "five"):
        assert anna.get(f"/api/samples/{sample}").status_code == 404


def test_requests_from_other_sites_are_refused(home: Home, anna: Annotator, where: str) -> None:
    body = {"answers": [{"sample": 5, "label": 1}]}
    for bad in ("http://evil.example", "null", where.replace("http:", "https:"), "http://127.0.0.1:9"):
        assert anna.post("/api/answer", json=body, headers={"origin": bad}).status_code == 403
    del anna.headers["origin"]
    assert anna.post("/api/answer", json=body).status_code == 403
    anna.headers["origin"] = where
    assert anna.post("/api/answer", content="{}", headers={"content-type": "text/plain"}).status_code == 415
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert anna.post("/api/answer", content="a=1", headers=form).status_code == 415
    assert anna.get("/api/me", headers={"host": "evil.example"}).status_code == 421
    assert anna.request("DELETE", "/api/answer").status_code == 405
    assert anna.request("OPTIONS", "/api/answer", headers={"origin": "http://evil.example"}).status_code == 405
    assert home.ledger.counts()["answered"] == 0


def test_oversized_and_malformed_requests_are_refused(home: Home, anna: Annotator) -> None:
    assert anna.post("/api/answer", content=b"x" * (MAX_BODY + 1)).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 4096

    assert anna.post("/api/answer", content=endless()).status_code == 413
    for bad in (b"{", b"[]", b"\xff\xfe", b"[" * 5000, b'"text"'):
        response = anna.post("/api/answer", content=bad)
        assert response.status_code == 400, bad[:10]
        assert response.json()["error"]
    answers = [
        [],
        "x",
        [1],
        [{}],
        [{"sample": "5", "label": 1}],
        [{"sample": 5, "label": 1.5}],
        [{"sample": 5, "label": True}],
        [{"sample": -1, "label": 1}],
        [{"sample": 2**60, "label": 1}],
        [{"sample": 5, "label": None, "reason": 3}],
        [{"sample": 5, "label": 1, "key": "k" * 300}],
        [{"sample": 5, "label": 1}] * 101,
    ]
    for bad_answers in answers:
        assert anna.post("/api/answer", json={"answers": bad_answers}).status_code == 400, bad_answers
    half = b'"\\ud800"'
    for bad in (b'"key": ' + half, b'"label": null, "reason": ' + half):
        body = b'{"answers": [{"sample": 5, "label": 1, ' + bad + b"}]}"
        assert anna.post("/api/answer", content=body).status_code == 400, bad
    assert anna.post("/api/enter", content=b'{"token": ' + half + b"}").status_code == 400
    assert anna.post("/api/next", json={"want": 10**9}).status_code == 400
    assert anna.get(f"/api/history?before=-{10**30}").status_code == 400
    assert anna.get("/api/history?before=x").status_code == 400
    assert anna.post("/api/settings", json={"reveal": "always"}).status_code == 422
    assert home.ledger.counts()["answered"] == 0


def test_answers_pass_the_same_door(home: Home, anna: Annotator) -> None:
    sent = [
        {"sample": 5, "label": 1, "seconds": 2.5, "key": "a"},
        {"sample": 6, "label": 9},
        {"sample": 999, "label": 1},
        {"sample": 7, "label": None, "reason": "bad sample", "seconds": -3},
        {"sample": 5, "label": 2, "key": "b"},
        {"sample": 8, "label": 1, "seconds": 10**400},
        {"sample": 9, "label": 1, "seconds": -(10**400)},
    ]
    result = anna.answer(*sent)
    assert [a["sample"] for a in result["accepted"]] == [5, 7, 8, 9]
    assert [r["kind"] for r in result["refused"]] == ["unknown class", "unknown sample", "already answered"]
    again = anna.answer(sent[0])
    assert again["accepted"][0]["answer"] == result["accepted"][0]["answer"]
    lines = {line["sample"]: line for line in home.ledger.labels()}
    assert (lines[5]["label"], lines[5]["seconds"], lines[5]["annotator"]) == (1, 2.5, "anna")
    assert (lines[7]["label"], lines[7]["reason"], lines[7]["seconds"]) == (None, "bad sample", 0)
    assert (lines[8]["seconds"], lines[9]["seconds"]) == (86400, 0)


def test_what_the_model_thought_comes_after_the_answer_unless_set_otherwise(home: Home, anna: Annotator) -> None:
    top = [[0, 0.625], [1, 0.25]]
    assert anna.post("/api/next", json={"want": 3}).json()["queue"][0]["thoughts"] == []
    result = anna.answer({"sample": 5, "label": 1})
    assert result["accepted"][0]["thoughts"] == top
    assert result["queue"][0]["thoughts"] == []
    anna.post("/api/settings", json={"reveal": "before"})
    assert anna.post("/api/next", json={}).json()["queue"][0]["thoughts"] == top
    anna.answer({"sample": 6, "label": 1})
    assert [line["saw_model"] for line in home.ledger.labels()] == [0, 0, 1]
    anna.post("/api/settings", json={"reveal": "never"})
    result = anna.answer({"sample": 7, "label": 1})
    assert result["accepted"][0]["thoughts"] == []
    assert all(a["thoughts"] == [] for a in anna.get("/api/history").json()["answers"])


def test_who_answers_again_has_seen_what_the_model_thought(home: Home, anna: Annotator, ben: Annotator) -> None:
    def saw(client: Annotator, **more: object) -> int:
        number = client.answer({"sample": 5, "label": 1} | more)["accepted"][0]["answer"]
        with home.database.reading() as db:
            return int(db.execute("SELECT saw_model FROM answers WHERE id = ?", (number,)).fetchone()[0])

    assert saw(anna) == 0
    assert saw(anna, label=2, revise=True) == 1
    for _ in range(2):
        anna.post("/api/undo", json={})
    home.people.revoke("anna")  # what she held goes free
    assert 5 in ben.given()
    assert saw(ben) == 0
    ben.post("/api/undo", json={})
    enter(anna, home, "anna")
    assert saw(anna) == 1


def test_undo_and_history_are_one_s_own(anna: Annotator, ben: Annotator) -> None:
    anna.answer({"sample": 5, "label": 1})
    assert ben.post("/api/undo", json={}).json()["undone"] == []
    assert ben.get("/api/history").json()["answers"] == []
    assert [a["sample"] for a in anna.get("/api/history").json()["answers"]] == [5]
    refused = ben.post("/api/answer", json={"answers": [{"sample": 5, "label": 2, "revise": True}]}).json()["refused"]
    assert refused[0]["kind"] == "not given"
    undone = anna.post("/api/undo", json={}).json()
    assert undone["undone"][0]["sample"] == 5
    assert undone["queue"][0]["sample"] == 5


def test_leaving_ends_the_session(anna: Annotator) -> None:
    kept = dict(anna.cookies)
    anna.post("/api/leave", json={})
    assert not anna.cookies
    anna.cookies.update(kept)
    assert anna.get("/api/me").status_code == 401


def test_texts_are_shown_as_text_and_originals_stay_below_their_directory(tmp_path: Path) -> None:
    home = text_home(tmp_path / "home", ["to be or not", "<script>alert(1)</script>"], ("a", "b"))
    ask(home, [0, 1])
    with served(home) as where, browser(where) as client:
        enter(client, home, "anna")
        client.given()
        shown = client.get("/api/samples/1")
    assert shown.text == "<script>alert(1)</script>"
    assert shown.headers["content-type"].startswith("text/plain")

    (tmp_path / "files").mkdir()
    (tmp_path / "files/one.txt").write_text("the original")
    (tmp_path / "secret.txt").write_text("secret")
    home.inbox.add_samples({0: "one.txt", 1: "../secret.txt"})
    card = home.path / "client.json"
    card.write_text(card.read_text().replace('"originals": ""', f'"originals": "{tmp_path / "files"}"'))
    view = HomeView(Home(home.path))
    assert view.show(0).body == b"the original"
    assert b"secret" not in view.show(1).body
    with pytest.raises(LabelError, match="no sample 7"):
        view.show(7)


def test_another_interface_needs_tls(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("")
    for host in ("0.0.0.0", "::", "192.168.1.4", "labels.example"):
        with pytest.raises(LabelError, match="--tls-cert and --tls-key"):
            Address(host).check()
        Address(host, name="labels.example", cert=pem, key=pem).check()
    for every in ("0.0.0.0", "::"):
        with pytest.raises(LabelError, match="give the name with --name"):
            Address(every, cert=pem, key=pem).check()
    with pytest.raises(LabelError, match="not a PEM certificate"):
        Address("192.168.1.4", cert=pem, key=pem).check_certificate()
    Address().check()
    Address().check_certificate()
    assert is_loopback("::1")
    assert is_loopback("localhost")
    with pytest.raises(LabelError, match="both"):
        Address(cert=pem).check()
    with pytest.raises(LabelError, match="no file"):
        Address(cert=pem, key=tmp_path / "y.pem").check()
    assert origin(Address("0.0.0.0", name="labels.example", cert=pem, key=pem), 8443) == "https://labels.example:8443"
    assert hosts(Address("192.168.1.4", cert=pem, key=pem), 443) == {"192.168.1.4:443", "192.168.1.4"}
    named = Address("192.168.1.4", name="Labels.Example", cert=pem, key=pem)
    assert "labels.example:8443" in hosts(named, 8443), "browsers write host names small"
    assert origin(named, 8443) == "https://labels.example:8443"


def test_a_given_answer_may_be_corrected_through_history(home: Home, anna: Annotator) -> None:
    anna.answer({"sample": 5, "label": 1})
    found, last = home.inbox.hand_out(home.inbox.mark("taken"))
    home.inbox.set_taken(last)
    anna.answer({"sample": 5, "label": 2, "revise": True})
    assert [(a.label, a.by) for a in found + home.inbox.hand_out(last)[0]] == [(1, "anna"), (2, "anna")]
    assert anna.get("/api/history").json()["answers"][0]["label"] == 2
    with pytest.raises(LabelError):
        home.inbox.answer(Given(5, 0, home.people.named("anna").id))


def test_an_answer_needs_the_receipt_of_what_was_seen(home: Home, anna: Annotator, ben: Annotator) -> None:
    def refusal(client: Annotator, sample: int, seen: str) -> str:
        sent = {"answers": [{"sample": sample, "label": 1, "seen": seen}]}
        (refused,) = client.post("/api/answer", json=sent).json()["refused"]
        return str(refused["kind"])

    receipt = anna.seen(5)
    assert refusal(anna, 5, "") == "not seen"
    assert refusal(anna, 6, receipt) == "not seen", "the receipt of another sample"
    assert refusal(anna, 5, receipt[:-1] + "x") == "not seen"
    assert refusal(ben, 5, receipt) == "not given"
    assert home.ledger.counts()["answered"] == 0
    assert anna.answer({"sample": 5, "label": 1, "seen": receipt})["refused"] == []


def test_only_what_was_given_to_a_person_can_be_seen_or_answered_by_them(
    home: Home, anna: Annotator, ben: Annotator
) -> None:
    assert ben.given() == [], "anna holds all of them"
    assert ben.get("/api/samples/5").status_code == 404
    (refused,) = ben.post("/api/answer", json={"answers": [{"sample": 0, "label": 1}]}).json()["refused"]
    assert refused["kind"] == "not given"


def test_a_broken_file_is_a_bad_sample_and_takes_no_label(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "image-0").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    made = image_home(tmp_path / "home", count=2)
    made.close()
    card = made.path / "client.json"
    card.write_text(card.read_text().replace('"originals": ""', f'"originals": "{files}"'))
    home = Home(made.path)
    ask(home, [0])
    with served(home) as where, browser(where) as client:
        enter(client, home, "anna")
        client.given()
        shown = client.get("/api/samples/0")
        assert shown.status_code == 422
        assert "image-0 cannot be shown" in shown.json()["error"]
        (refused,) = client.answer({"sample": 0, "label": 1})["refused"]
        assert refused["kind"] == "not seen"
        (accepted,) = client.answer({"sample": 0, "label": None, "reason": "bad sample"})["accepted"]
        assert accepted["sample"] == 0
    assert home.ledger.labels()[0]["reason"] == "bad sample"


def test_a_picture_that_was_cut_short_is_not_shown_in_part(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    for ending in ("jpg", "png"):
        (tmp_path / ending / "files").mkdir(parents=True)
        Image.fromarray(noise).save(tmp_path / ending / "files" / f"whole.{ending}")
        half = (tmp_path / ending / "files" / f"whole.{ending}").read_bytes()
        home = originals_home(tmp_path / ending, {f"half.{ending}": half[: len(half) // 2]})
        view = HomeView(home)
        with pytest.raises(LabelError, match=f"half.{ending} cannot be shown"):
            view.show(0)
        assert view.show(1).body == half, "as it is"


def test_few_large_pictures_are_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4, 40, 40), dtype=np.uint8)
    home = originals_home(tmp_path, {f"{i}.png": noise[i] for i in range(4)})
    view = HomeView(home)
    size = len(view.show(0).body)
    monkeypatch.setattr("chase.home.views.HELD_BYTES", 2 * size + size // 2)
    read: list[str] = []
    plain = views.original
    monkeypatch.setattr(views, "original", lambda *given: read.append(given[2]) or plain(*given))
    for sample in (0, 1, 2, 1, 2, 0):
        view.show(sample)
    assert read == ["1.png", "2.png", "0.png"], "the two last are held, the third is read again"


def test_only_the_lead_makes_links_and_ends_access(home: Home, where: str, anna: Annotator) -> None:
    home.people.set_role("kim", "lead")
    for path in ("/api/link", "/api/revoke"):
        refused = anna.post(path, json={"name": "ben"})
        assert (refused.status_code, refused.json()["kind"]) == (403, "role")
    with browser(where) as kim, browser(where) as ben:
        enter(kim, home, "kim")
        token = kim.post("/api/link", json={"name": " ben "}).json()["token"]
        assert ben.post("/api/enter", json={"token": token}).status_code == 200
        assert ben.get("/api/me").json()["annotator"] == "ben"
        assert kim.post("/api/revoke", json={"name": "ben"}).json() == {"ended": 1}
        assert ben.get("/api/me").status_code == 401
        for path, name, words in [
            ("/api/link", "", "printable"),
            ("/api/link", "initial", "cannot enter"),
            ("/api/revoke", "nobody", "there is no annotator"),
            ("/api/revoke", "kim", "your own access"),
        ]:
            refused = kim.post(path, json={"name": name})
            assert refused.status_code == 400, (path, name)
            assert words in refused.json()["error"]
        assert kim.get("/api/me").status_code == 200
    lines = [line for line in home.audit.lines() if line["what"] in ("link", "revoke")]
    assert [(line["who"], line["what"], line["detail"]) for line in lines] == [
        ("kim", "link", {"person": "ben"}),
        ("kim", "revoke", {"person": "ben", "ended": 1}),
    ]
    home.audit.verify()


def test_a_file_name_does_not_give_the_class_away(home: Home, anna: Annotator) -> None:
    """In a folder of classes the path names the class; files and exports keep it, the page does not show it."""
    home.inbox.add_samples({5: "dog/scan 5.png", 6: "ward B/dog/scan 6.png", 7: "dog", 8: "hotdog/8.png"})
    queue = {q["sample"]: q["name"] for q in anna.post("/api/next", json={"want": 10, "shown": 10}).json()["queue"]}
    assert [queue[s] for s in (5, 6, 7, 8)] == ["scan 5.png", "ward B/scan 6.png", "dog", "hotdog/8.png"]
    anna.answer({"sample": 5, "label": 0})
    assert anna.get("/api/history").json()["answers"][0]["name"] == "scan 5.png"
    undone = anna.post("/api/undo", json={}).json()["undone"][0]
    assert undone["question"]["name"] == "scan 5.png"
    assert home.inbox.sample_name(5) == "dog/scan 5.png"


@pytest.mark.parametrize(
    ("error", "status"), [(sqlite3.OperationalError("disk I/O error"), 503), (sqlite3.ProgrammingError("a bug"), 500)]
)
def test_only_a_failing_disk_is_told_as_one(
    home: Home, anna: Annotator, monkeypatch: pytest.MonkeyPatch, error: sqlite3.Error, status: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(home.inbox, "next_for", fails)
    response = anna.post("/api/next", json={})
    assert response.status_code == status
    assert ("cannot save anything" in response.text) == (status == 503)
