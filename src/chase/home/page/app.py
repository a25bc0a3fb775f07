"""What the page can ask for. Without a session nobody gets a sample or a label.

POST /api/enter     a link's token -> a session cookie
POST /api/leave     end the session
GET  /api/me        who I am, the classes, my settings, progress
POST /api/next      my next questions
POST /api/answer    answers; each passes the inbox's checks
POST /api/undo      take back my last stroke
GET  /api/history   my answers, newest first
POST /api/settings  when I see what the model thought
GET  /api/samples/7 a sample that was asked for
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chase.core.errors import LabelError
from chase.home.home import Home
from chase.home.inbox import AnswerRefused, Given
from chase.home.page.guard import Guard, Refused, read_json, refusal, seconds, text, whole
from chase.home.people import SESSION_SECONDS, Person
from chase.home.views import SampleView, Shown

MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MOST_AT_ONCE = 100
NUMBER = re.compile("[0-9]{1,16}")
"""A number in an address: short enough for the database."""

Json = dict[str, Any]
Handler = Callable[[Person, Json], Json]


def cookie_name(home: Home, secure: bool) -> str:
    """Browsers share cookies among the ports of a host, so each home has a cookie of its own."""
    return f"{'__Host-' if secure else ''}chase_{home.database.identity}"


def static_files() -> dict[str, tuple[bytes, str]]:
    """The page's own files by name, read once: a request can name these and no other."""
    found = {}
    for file in (files("chase.home.page") / "static").iterdir():
        suffix = file.name.rpartition(".")[2]
        if suffix in MEDIA:
            found[file.name] = file.read_bytes(), f"{MEDIA[suffix]}; charset=utf-8"
    return found


class Page:
    """The page of one home."""

    def __init__(self, home: Home, view: SampleView, secure: bool) -> None:
        self._home, self._view, self._secure = home, view, secure
        self._cookie = cookie_name(home, secure)
        self._static = static_files()

    def app(self, hosts: Collection[str]) -> ASGIApp:
        """The guarded web app; ``hosts`` are the host names, with port, that it answers to."""
        posts = {"next": self.next, "answer": self.answer, "undo": self.undo, "settings": self.settings}
        routes = [
            Route("/", self._index),
            Route("/static/{name}", self._file),
            Route("/api/enter", self._enter, methods=["POST"]),
            Route("/api/leave", self._leave, methods=["POST"]),
            Route("/api/me", self._me),
            Route("/api/history", self._with_session(self.history)),
            Route("/api/samples/{sample}", self._sample),
            *(Route(f"/api/{name}", self._with_session(do), methods=["POST"]) for name, do in posts.items()),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _plain,
            Refused: _refused,
            LabelError: _label_error,
            ClientDisconnect: _gone,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, hosts, "https" if self._secure else "http")

    # the shell of the page: no sample, no label

    async def _index(self, request: Request) -> Response:
        return Response(self._static["index.html"][0], media_type="text/html; charset=utf-8")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise Refused(404, "there is no such file")
        body, media = self._static[name]
        return Response(body, headers={"content-type": media})

    # sessions

    def _person(self, request: Request) -> Person:
        person = self._home.people.whose(request.cookies.get(self._cookie, ""))
        if person is None:
            raise Refused(401, "open your own link to enter", "no session")
        return person

    def _with_session(self, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = await read_json(request) if request.method == "POST" else dict(request.query_params)
            # Not in a thread: the inbox takes a millisecond or two, and on a machine that is busy
            # training every change of threads costs more than that.
            return JSONResponse(handle(self._person(request), body))

        return endpoint

    async def _enter(self, request: Request) -> Response:
        token = text(await read_json(request), "token")
        try:
            session = self._home.people.enter(token)
        except LabelError as error:
            raise Refused(401, str(error), "bad link") from None
        return self._keeping({}, session)

    async def _me(self, request: Request) -> Response:
        # The cookie is given anew: a session lasts as long as it is used.
        return self._keeping(self.me(self._person(request), {}), request.cookies[self._cookie])

    def _keeping(self, body: Json, session: str) -> Response:
        response, age = JSONResponse(body), int(SESSION_SECONDS)
        response.set_cookie(self._cookie, session, max_age=age, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def _leave(self, request: Request) -> Response:
        self._home.people.leave(request.cookies.get(self._cookie, ""))
        response = JSONResponse({})
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._secure)
        return response

    # with a session

    async def _sample(self, request: Request) -> Response:
        shown = await run_in_threadpool(self._shown, request, request.path_params["sample"])
        policy = "default-src 'none'; sandbox"
        return Response(shown.body, headers={"content-type": shown.media, "content-security-policy": policy})

    def _shown(self, request: Request, sample: str) -> Shown:
        self._person(request)
        if not NUMBER.fullmatch(sample) or not self._home.inbox.was_asked(int(sample)):
            raise Refused(404, "no such sample was asked for")
        return self._view.show(int(sample))

    def me(self, person: Person, body: Json) -> Json:
        """Who I am and what I am labelling."""
        card = self._home.card
        return {
            "home": self._home.database.identity,
            "annotator": person.name,
            "reveal": person.reveal,
            "site": card.name,
            "kind": card.kind,
            "predicts_next": card.predicts_next,
            "classes": list(card.classes),
            "progress": self._home.ledger.progress(person.id),
        }

    def next(self, person: Person, body: Json) -> Json:
        """My next questions, and how far we are."""
        want = whole(body, "want", 1, 1, MOST_AT_ONCE)
        shown = whole(body, "shown", 1, 0, MOST_AT_ONCE)
        queue = self._home.inbox.next_for(person.id, want, shown)
        if person.reveal != "before":
            for question in queue:
                question["thoughts"] = []
        return {"queue": queue, "progress": self._home.ledger.progress(person.id)}

    def answer(self, person: Person, body: Json) -> Json:
        """Take answers in; returns what was accepted and refused, and what comes next."""
        sent = body.get("answers")
        if (
            not isinstance(sent, list)
            or not 0 < len(sent) <= MOST_AT_ONCE
            or not all(isinstance(a, dict) for a in sent)
        ):
            raise Refused(400, f"'answers' must be a list of 1 to {MOST_AT_ONCE} answers")
        batch = text(body, "batch") if body.get("batch") is not None else None
        given = [self._given(person, one, batch) for one in sent]
        accepted, refused = [], []
        for one, outcome in zip(given, self._home.inbox.answer_each(given), strict=True):
            if isinstance(outcome, AnswerRefused):
                refused.append({"sample": one.sample, "kind": outcome.kind, "error": str(outcome)})
            else:
                question = self._home.inbox.question_of(one.sample)
                thoughts = question["thoughts"] if question and person.reveal != "never" else []
                accepted.append({"sample": one.sample, "answer": outcome, "thoughts": thoughts})
        return {"accepted": accepted, "refused": refused} | self.next(person, body)

    def _given(self, person: Person, one: Json, batch: str | None) -> Given:
        return Given(
            sample=whole(one, "sample", None),
            label=None if one.get("label") is None else whole(one, "label", None),
            annotator=person.id,
            reason=text(one, "reason", ""),
            seconds=seconds(one, "seconds"),
            key=f"{person.id}:{text(one, 'key')}" if one.get("key") is not None else None,
            batch=batch,
            revise=one.get("revise") is True,
            saw_model=person.reveal == "before" or (person.reveal == "after" and self._answered(person, one)),
        )

    def _answered(self, person: Person, one: Json) -> bool:
        """Whether this person answered the sample before and so was shown what the model thought."""
        return self._home.inbox.was_answered(whole(one, "sample", None), person.id)

    def undo(self, person: Person, body: Json) -> Json:
        """Take back my last stroke, or the one before answer ``before``."""
        before = None if body.get("before") is None else whole(body, "before", None)
        undone = self._home.inbox.undo(person.id, before)
        for one in undone:
            if person.reveal != "before" and one["question"]:
                one["question"]["thoughts"] = []
        return {"undone": undone} | self.next(person, body)

    def history(self, person: Person, body: Json) -> Json:
        """My answers, newest first."""
        before, limit = str(body.get("before", 10**16 - 1)), str(body.get("limit", 30))
        if not NUMBER.fullmatch(before) or not NUMBER.fullmatch(limit):
            raise Refused(400, "'before' and 'limit' must be whole numbers of at most 16 digits")
        rows = self._home.ledger.history(person.id, int(before), min(max(int(limit), 1), MOST_AT_ONCE))
        for row in rows:
            row["thoughts"] = json.loads(row["thoughts"] or "[]") if person.reveal != "never" else []
        return {"answers": rows}

    def settings(self, person: Person, body: Json) -> Json:
        """When I see what the model thought."""
        self._home.people.set_reveal(person.id, text(body, "reveal"))
        return {"reveal": body["reveal"]}


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "there is nothing here", 405: "that method is not known here"}
    return refusal(error.status_code, known.get(error.status_code, error.detail))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error.status, str(error), error.kind)


async def _label_error(request: Request, error: Exception) -> Response:
    return refusal(422, str(error))


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is left to read this: a page was closed or reloaded while it was sending."""
    return Response(status_code=400)
