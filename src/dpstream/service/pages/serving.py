"""The application: which page stands where, who is asked first, and how errors are told."""

from __future__ import annotations

import ipaddress
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from dpstream.core.errors import ConfigError, DpstreamError, InputError, RefusedError
from dpstream.service.desk import Desk, NotAllowedError, Person
from dpstream.service.guard import Guard, allow_many_files, seal
from dpstream.service.pages import stream_views
from dpstream.service.pages.documents import Documents
from dpstream.service.pages.visits import (
    Route,
    TooLargeError,
    Visit,
    cookie_name,
    link,
    local_place,
    page,
    read_form,
)
from dpstream.service.pages.words import environment
from dpstream.service.releases import listen

#: The pages of this module; the decorators put them here.
_ABOUT_PEOPLE: list[Route] = []


@page(_ABOUT_PEOPLE, "GET /sign-in", open=True)
def sign_in(visit: Visit) -> Response:
    """The form; whoever is signed in already goes on."""
    place = local_place(visit.asked("next"))
    if visit.person is not None:
        return visit.to(place)
    return visit.page("sign_in.html", wrong=False, next=place)


@page(_ABOUT_PEOPLE, "POST /sign-in", open=True)
def signing_in(visit: Visit) -> Response:
    """A login, and back to where one was."""
    place = local_place(visit.asked("next"))
    secret = visit.desk.sign_in(visit.asked("once"))
    if secret is None:
        return visit.page("sign_in.html", 403, wrong=True, next=place)
    return visit.signed_in(secret, place)


@page(_ABOUT_PEOPLE, "POST /sign-out", open=True)
def sign_out(visit: Visit) -> Response:
    """The end of a login."""
    if visit.session:
        visit.desk.sign_out(visit.session)
    return visit.signed_out(link("/sign-in", told="out"))


@page(_ABOUT_PEOPLE, "GET /people")
def people(visit: Visit) -> Response:
    """Everybody, with roles."""
    return visit.page("people.html", people=visit.desk.people(visit.me))


@page(_ABOUT_PEOPLE, "POST /people/add")
def add_person(visit: Visit) -> Response:
    """Somebody new."""
    visit.desk.add_person(visit.me, visit.asked("name"), _roles(visit))
    return visit.to(link("/people", told="people"))


@page(_ABOUT_PEOPLE, "POST /people/roles")
def set_roles(visit: Visit) -> Response:
    """Other roles."""
    visit.desk.set_roles(visit.me, visit.asked("name"), _roles(visit))
    return visit.to(link("/people", told="people"))


@page(_ABOUT_PEOPLE, "POST /people/sign-out")
def end_sessions(visit: Visit) -> Response:
    """The end of all logins of somebody."""
    visit.desk.end_sessions(visit.me, visit.asked("name"))
    return visit.to(link("/people", told="people"))


@page(_ABOUT_PEOPLE, "POST /people/remove")
def remove_person(visit: Visit) -> Response:
    """Nobody any more."""
    visit.desk.remove_person(visit.me, visit.asked("name"))
    return visit.to(link("/people", told="people"))


def _roles(visit: Visit) -> list[str]:
    return visit.form.get("role", "").split()


@page(_ABOUT_PEOPLE, "GET /health", open=True, program=True)
def health(visit: Visit) -> Response:
    """That the pages and the database answer; for people and programs with a token the word of each stream."""
    words = visit.desk.health()
    known = visit.person is not None or visit.program
    return JSONResponse({"pages": "ok", **({"streams": words} if known else {})})


@page(_ABOUT_PEOPLE, "GET /metrics", program=True)
def metrics(visit: Visit) -> Response:
    """Public numbers of the streams, for Prometheus."""
    if not visit.program:
        visit.require("cards")
    return PlainTextResponse(visit.desk.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


#: Everything there is. Never over HTTP, for nobody: a raw state, restoring, discarding, a private evaluation or report.
ROUTES = (*stream_views.ROUTES, *_ABOUT_PEOPLE)

#: Requests that are answered at one time; further ones are refused until some are answered.
BUSIEST = 200
#: Nothing from elsewhere, no script but our files, no frame.
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
#: Places in errors that a reader of a page knows.
_FIELDS = ("reason", "question", "person", "role", "roles")
_FAILED = "This did not work"
#: Files of ours, by name, with their kind.
_ASSETS = {
    "htmx.min.js": ("dpstream.service.pages", "text/javascript; charset=utf-8"),
    "icon.svg": ("dpstream.service.pages", "image/svg+xml"),
    "report.css": ("dpstream.tools.report", "text/css; charset=utf-8"),
    "service.css": ("dpstream.service.pages", "text/css; charset=utf-8"),
}


class WithoutTexts(logging.Filter):
    """Says in the log which exception it was and where: its text may quote what somebody typed."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record stays."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            record.msg = f"{type(error).__name__} at {places}; a bug"
            record.args = ()
            record.exc_info = record.exc_text = None
        return True


_WITHOUT_TEXTS = WithoutTexts()


def create_app(desk: Desk) -> FastAPI:
    """The pages of one desk, as an ASGI application."""
    app = FastAPI(title="dpstream", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, headers=_HEADERS)
    shared = (desk, environment(desk.settings.name), Documents())
    turn = threading.BoundedSemaphore(BUSIEST)
    for route in ROUTES:
        app.add_route(route.path, _endpoint(route, turn, *shared), methods=[route.method])
    for name, (package, kind) in _ASSETS.items():
        content = (files(package) / "assets" / name).read_bytes()
        app.add_route(f"/assets/{name}", _asset(content, kind), methods=["GET"])

    def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        visit = Visit(request, *shared, None, "")
        words = {404: "The page is missing.", 500: "The service's log has the cause."}
        answer = _told(visit, _FAILED, words.get(status, "Start again."), status)
        seal(answer.headers, _HEADERS)  # of an exception that nobody expected the guard does not hear
        return answer

    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(Exception, failed)
    return app


def _endpoint(
    route: Route, turn: threading.BoundedSemaphore, desk: Desk, templates: Any, documents: Documents
) -> Callable[[Request], Awaitable[Response]]:
    def answer(request: Request, form: dict[str, str]) -> Response:
        person, session = _person(desk, request)
        tokens = desk.settings.tokens if route.program and person is None else None
        program = tokens is not None and tokens.allow(request.headers.get("authorization", ""))
        visit = Visit(request, desk, templates, documents, person, session, form, program)
        try:
            return _answer(route, visit)
        except DpstreamError as error:
            return _refused(visit, error)

    async def answered(request: Request) -> Response:
        form: dict[str, str] = {}
        if route.method == "POST":
            try:
                form = await read_form(request)
            except InputError as error:
                return _refused(Visit(request, desk, templates, documents, None, ""), error)
        # Who is slow to send a form keeps nobody out: requests count from here on.
        if not turn.acquire(blocking=False):
            return Response("too many people\n", 503, {"retry-after": "5"}, "text/plain")
        try:
            return await run_in_threadpool(answer, request, form)
        finally:
            turn.release()

    return answered


def _person(desk: Desk, request: Request) -> tuple[Person | None, str]:
    """Who it is, and the secret of their login where it is one of ours."""
    proxy = desk.settings.proxy
    if proxy is not None and request.client is not None:
        names, secrets = (request.headers.getlist(header) for header in (proxy.header, proxy.secret_header))
        # A name of the proxy goes before a login: another person may have left theirs in that browser.
        if any(names) and proxy.sent(request.client.host, secrets):
            return _named(desk, names, request.client.host, secrets), ""
    session = request.cookies.get(cookie_name(request), "")
    person = desk.person(session) if session else None
    return person, "" if person is None else session


def _named(desk: Desk, names: list[str], address: str, secrets: list[str]) -> Person | None:
    """Whom the proxy's header names, in UTF-8; it is read as bytes, each as one character."""
    if len(names) != 1:  # what comes twice may come once from the proxy and once from somebody else
        return None
    try:
        return desk.person_of_header(names[0].encode("latin-1").decode("utf-8"), address, secrets)
    except UnicodeError:
        return None


def _answer(route: Route, visit: Visit) -> Response:
    if visit.person is None and not route.open and not visit.program:
        if not route.program:
            return _to_sign_in(visit)
        words = "a token is missing: dpstream serve token\n"
        return Response(words, 401, {"www-authenticate": "Bearer"}, "text/plain")
    if route.method == "POST":
        visit.check_form()
    return route.view(visit)


def _to_sign_in(visit: Visit) -> Response:
    """The login has ended, or there was none: sign in, and go on where one was."""
    here = visit.here
    if "hx-request" in visit.request.headers:
        # A part of a page that refreshes itself: the whole page goes to the login.
        page = visit.request.headers.get("hx-current-url", "/").partition("://")[2]
        return Response(
            status_code=204, headers={"hx-redirect": link("/sign-in", next=f"/{page.partition('/')[2]}")}
        )
    if visit.request.headers.get("sec-fetch-site") == "cross-site" and visit.request.method == "GET":
        # Who comes from another site (a mail) brings no cookie of ours, and does when our own page sends them on.
        return visit.page("again.html", place=here)
    if visit.request.method == "POST":
        here += f"{'&' if '?' in here else '?'}told=expired"
    return visit.to(link("/sign-in", next=here) if here != "/" else "/sign-in")


def _refused(visit: Visit, error: DpstreamError) -> Response:
    """An error as a page with one sentence."""
    if isinstance(error, NotAllowedError):
        return _told(
            visit, "You may not do this", f"{error.what[:1].upper()}{error.what[1:]}.", 403, error.allowed
        )
    status = 413 if isinstance(error, TooLargeError) else 400 if isinstance(error, InputError) else 503
    status = 409 if isinstance(error, RefusedError) else status
    # A place is told where it is a field; paths of the machine are not for everybody.
    field = error.where if error.where in _FIELDS else None
    words = f"{field}: {error.what}" if field else error.what
    return _told(visit, _FAILED, f"{words[:1].upper()}{words[1:]}.", status, error.allowed)


def _told(visit: Visit, title: str, words: str, status: int, allowed: str | None = None) -> Response:
    back = visit.here if visit.request.method == "POST" else "/"
    return visit.page("error.html", status, title=title, words=words, allowed=allowed, back=back)


def _asset(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "public, max-age=3600"})

    return answer


def serve(folder: str | Path, at: str | None = None) -> None:
    """Serve the pages of the service in ``folder`` until a signal.

    Args:
        at: host and port; by default as ``service.toml`` says.

    Errors:
        ConfigError: ``service.toml`` is missing or wrong, or the address cannot be used.
    """
    desk = Desk.open(folder)
    host, port = _address(desk.settings.listen if at is None else at)
    allow_many_files()
    with listen(host, port) as listening:
        server_of(desk).run(sockets=[listening])


def server_of(desk: Desk) -> uvicorn.Server:
    """The server that is not started yet; nobody but the configured proxy says who somebody is or comes from."""
    config = uvicorn.Config(
        create_app(desk),
        access_log=False,
        date_header=False,
        http="h11",  # which limits the heads of a request
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        timeout_keep_alive=15,
        ws="none",
    )
    logging.getLogger("uvicorn.error").addFilter(_WITHOUT_TEXTS)
    return uvicorn.Server(config)


def _address(text: str) -> tuple[str, int]:
    """``127.0.0.1:8420``, ``[::1]:8420`` or ``localhost:8420``.

    >>> _address("[::1]:8420"), _address("localhost:80")
    (('::1', 8420), ('localhost', 80))
    """
    host, _, port = text.rpartition(":")
    known = host.removeprefix("[").removesuffix("]")
    try:
        good = (
            bool(known)
            and 0 < int(port) < 65536
            and (host == known or ipaddress.ip_address(known).version == 6)
        )
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"malformed address {text!r}", where="listen", allowed="such as 127.0.0.1:8420")
    return known, int(port)
