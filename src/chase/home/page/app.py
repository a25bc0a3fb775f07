"""What the page can ask for. Without a session nobody gets a sample or a label.

POST /api/enter     a link's token -> a session cookie
POST /api/leave     end the session
GET  /api/me        who I am, the classes, my settings, progress
POST /api/next      my next questions; for adjudicators, conflicts
POST /api/answer    answers; each must carry the receipt of the sample that was seen
POST /api/undo      take back my last stroke
GET  /api/history   my answers, newest first
POST /api/settings  when I see the model's prediction
GET  /api/guide     the guidelines
GET  /api/team      for the lead: everybody
POST /api/policy    for the lead: the policy
POST /api/link      for the lead: a new link for somebody
POST /api/revoke    for the lead: end somebody's sessions and links
GET  /api/samples/7 a sample that was asked for, with its receipt
"""

from __future__ import annotations

import logging
import sqlite3
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
from chase.home.page.actions import Action, Actions, Json
from chase.home.page.guard import NUMBER, Guard, RequestRefused, read_json, refusal, text
from chase.home.people import SESSION_SECONDS, Person
from chase.home.views import SampleView, Shown

MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
SAMPLE_POLICY = "default-src 'none'; sandbox"


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
        self._do = Actions(home)
        self._cookie = cookie_name(home, secure)
        self._static = static_files()

    def app(self, hosts: Collection[str]) -> ASGIApp:
        """The guarded web app; ``hosts`` are the host names, with port, that it answers to."""
        do = self._do
        posts = {"next": do.next, "answer": do.answer, "undo": do.undo, "settings": do.settings}
        posts |= {"policy": do.policy, "link": do.link, "revoke": do.revoke}
        gets = {"history": do.history, "guide": do.guide, "team": do.team}
        routes = [
            Route("/", self._index),
            Route("/static/{name}", self._file),
            Route("/api/enter", self._enter, methods=["POST"]),
            Route("/api/leave", self._leave, methods=["POST"]),
            Route("/api/me", self._me),
            Route("/api/samples/{sample}", self._sample),
            Route("/api/guide/{name:path}", self._example),
            *(Route(f"/api/{name}", self._with_session(action)) for name, action in gets.items()),
            *(Route(f"/api/{name}", self._with_session(action), methods=["POST"]) for name, action in posts.items()),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _plain,
            RequestRefused: _refused,
            LabelError: _label_error,
            ClientDisconnect: _gone,
            sqlite3.OperationalError: _not_kept,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, hosts, "https" if self._secure else "http")

    # the shell of the page: no sample, no label

    async def _index(self, request: Request) -> Response:
        return Response(self._static["index.html"][0], media_type="text/html; charset=utf-8")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise RequestRefused(404, "there is no such file")
        body, media = self._static[name]
        return Response(body, headers={"content-type": media})

    # sessions

    def _person(self, request: Request, active: bool = True) -> Person:
        policy = self._home.policies.read()
        session = request.cookies.get(self._cookie, "")
        person = self._home.people.whose(session, active, 60.0 * policy.idle_minutes, 3600.0 * policy.session_hours)
        if person is None:
            raise RequestRefused(401, "open your own link to enter", "no session")
        return person

    def _with_session(self, handle: Action) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = await read_json(request) if request.method == "POST" else dict(request.query_params)
            # Not in a thread: the inbox takes a millisecond or two, and on a machine that is busy
            # training every change of threads costs more than that.
            quiet = body.get("idle") is True or body.get("still") is True
            return JSONResponse(handle(self._person(request, active=not quiet), body))

        return endpoint

    async def _enter(self, request: Request) -> Response:
        token = text(await read_json(request), "token")
        try:
            session = self._home.people.enter(token)
        except LabelError as error:
            raise RequestRefused(401, str(error), "bad link") from None
        person = self._home.people.whose(session)
        self._home.audit.note("" if person is None else person.name, "enter")
        return self._keeping({}, session)

    async def _me(self, request: Request) -> Response:
        # The cookie is renewed: a session lasts as long as it is used.
        return self._keeping(self._do.me(self._person(request), {}), request.cookies[self._cookie])

    def _keeping(self, body: Json, session: str) -> Response:
        response, age = JSONResponse(body), int(SESSION_SECONDS)
        response.set_cookie(self._cookie, session, max_age=age, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def _leave(self, request: Request) -> Response:
        session = request.cookies.get(self._cookie, "")
        person = self._home.people.whose(session)
        if person is not None:
            self._home.audit.note(person.name, "leave")
        self._home.people.leave(session)
        response = JSONResponse({})
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._secure)
        return response

    # with a session

    async def _sample(self, request: Request) -> Response:
        person, sample, shown = await run_in_threadpool(self._shown, request, request.path_params["sample"])
        headers = {
            "content-type": shown.media,
            "content-security-policy": SAMPLE_POLICY,
            "x-chase-seen": self._do.receipt(person, sample, shown.mark),
        }
        if shown.range is not None:
            headers["x-chase-range"] = " ".join(f"{value:g}" for value in shown.range)
        return Response(shown.body, headers=headers)

    def _shown(self, request: Request, sample: str) -> tuple[Person, int, Shown]:
        person = self._person(request)
        if not NUMBER.fullmatch(sample) or not self._may_see(person, int(sample)):
            raise RequestRefused(404, "no such sample was asked for")
        return person, int(sample), self._view.show(int(sample), _window(request))

    def _may_see(self, person: Person, sample: int) -> bool:
        """What was given to a person, and what others were asked where they decide about it."""
        inbox = self._home.inbox
        return inbox.claims.was_given(sample, person.id) or (person.decides and inbox.was_asked(sample))

    async def _example(self, request: Request) -> Response:
        self._person(request)
        shown = await run_in_threadpool(self._do.guide_picture, request.path_params["name"])
        return Response(shown.body, headers={"content-type": shown.media, "content-security-policy": SAMPLE_POLICY})


def _window(request: Request) -> tuple[float, float] | None:
    low, high = request.query_params.get("low"), request.query_params.get("high")
    if low is None or high is None:
        return None
    try:
        window = float(low), float(high)
    except ValueError:
        window = 0.0, 0.0
    if not -1e9 < window[0] < window[1] < 1e9:
        raise RequestRefused(400, "'low' and 'high' must be numbers, the first less than the second")
    return window


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "not found", 405: "that method is not allowed"}
    return refusal(error.status_code, known.get(error.status_code, error.detail))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return refusal(error.status, str(error), error.kind)


async def _label_error(request: Request, error: Exception) -> Response:
    return refusal(422, str(error))


async def _not_kept(request: Request, error: Exception) -> Response:
    """The disk is full or fails: nothing was kept, and the page keeps its answers until it is."""
    logging.getLogger("uvicorn.error").error("the inbox cannot be read or written: %s", error)
    why = "its disk is full" if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL else str(error)
    return refusal(503, f"the page's server cannot save anything ({why}): tell whoever runs this page", "storage")


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is left to read this: a page was closed or reloaded while it was sending."""
    return Response(status_code=400)
