"""Pages of logins and people; and what programs ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from dpstream.service.desk import client_address
from dpstream.service.pages.visits import FormError, Route, Visit, link, local_place, page

if TYPE_CHECKING:
    pass

#: The pages of this module; the decorators put them here.
ROUTES: list[Route] = []


@page(ROUTES, "GET /sign-in", open=True)
def sign_in(visit: Visit) -> Response:
    """The form; whoever is signed in already goes on."""
    place = local_place(visit.asked("next"))
    if visit.person is not None:
        return visit.to(place)
    return visit.page("sign_in.html", wrong=False, next=place)


@page(ROUTES, "POST /sign-in", open=True)
def signing_in(visit: Visit) -> Response:
    """A login, and back to where one was."""
    place = local_place(visit.asked("next"))
    name = visit.asked("name")
    # No name has a sign that cannot be printed, and not every database takes one.
    secret = visit.desk.sign_in(
        name if name.isprintable() else "", visit.form.get("password", ""), _address(visit)
    )
    if secret is None:
        return visit.page("sign_in.html", 403, wrong=True, next=place)
    return visit.signed_in(secret, place)


def _address(visit: Visit) -> str:
    """Where somebody comes from: what the configured proxy says, else the other end of the connection."""
    heads, proxy = visit.request.headers, visit.desk.settings.proxy
    secrets = heads.getlist(proxy.secret_header) if proxy else ()
    address = visit.request.client.host if visit.request.client else ""
    return client_address(proxy, address, secrets, heads.getlist("x-forwarded-for"))


@page(ROUTES, "POST /sign-out", open=True)
def sign_out(visit: Visit) -> Response:
    """The end of a login."""
    if visit.session:
        visit.desk.sign_out(visit.session)
    return visit.signed_out(link("/sign-in", told="out"))


@page(ROUTES, "GET /password")
def password(visit: Visit) -> Response:
    """The form for one's own password."""
    return visit.page("password.html")


@page(ROUTES, "POST /password")
def change_password(visit: Visit) -> Response:
    """Another password of one's own; all logins end. Whoever finds an open browser does not know the present one."""
    if not visit.session:
        raise FormError(
            "the proxy asks for your password; there is none to be changed here",
            where="form",
            allowed="a login with a password",
        )
    if visit.form.get("password", "") != visit.form.get("again", ""):
        raise FormError("the two passwords differ; nothing was done", where="form", allowed="the same twice")
    me = visit.me
    known = visit.desk.sign_in(me.name, visit.form.get("present", ""), _address(visit))
    if known is None:
        raise FormError(
            "the present password is wrong, or there were too many tries in the last quarter of an hour; "
            "nothing was done",
            where="form",
            allowed="the password of your login",
        )
    try:
        visit.desk.set_password(me, me.name, visit.form.get("password", ""))
    finally:
        visit.desk.sign_out(known)
    return visit.signed_out(link("/sign-in", told="password"))


@page(ROUTES, "GET /people")
def people(visit: Visit) -> Response:
    """Everybody, with roles and tokens."""
    return _people(visit, "")


def _people(visit: Visit, secret: str) -> Response:
    me = visit.me
    found, tokens = visit.desk.people(me), visit.desk.tokens(me)
    return visit.page("people.html", people=found, tokens=tokens, secret=secret)


@page(ROUTES, "POST /people/add")
def add_person(visit: Visit) -> Response:
    """Somebody new."""
    visit.desk.add_person(visit.me, visit.asked("name"), _roles(visit), visit.form.get("password") or None)
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/roles")
def set_roles(visit: Visit) -> Response:
    """Other roles."""
    visit.desk.set_roles(visit.me, visit.asked("name"), _roles(visit))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/password")
def set_password(visit: Visit) -> Response:
    """A first password for somebody."""
    visit.desk.set_password(visit.me, visit.asked("name"), visit.form.get("password", ""))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/remove")
def remove_person(visit: Visit) -> Response:
    """Nobody any more."""
    visit.desk.remove_person(visit.me, visit.asked("name"))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/token")
def add_token(visit: Visit) -> Response:
    """A token; its secret is on this one page only."""
    secret = visit.desk.add_token(visit.me, visit.asked("name"), visit.asked("label"))
    return _people(visit, secret)


@page(ROUTES, "POST /people/token/remove")
def remove_token(visit: Visit) -> Response:
    """The token is refused from now on."""
    visit.desk.remove_token(visit.me, visit.number("number"))
    return visit.to(link("/people", told="people"))


def _roles(visit: Visit) -> list[str]:
    return visit.form.get("role", "").split()


@page(ROUTES, "GET /health", open=True, token=True)
def health(visit: Visit) -> Response:
    """That the pages and the service's database answer; for people and tokens the word of each stream as well."""
    words = visit.desk.health()
    return JSONResponse({"pages": "ok", **({} if visit.person is None else {"streams": words})})


@page(ROUTES, "GET /metrics", token=True)
def metrics(visit: Visit) -> Response:
    """Public numbers of the streams, for Prometheus."""
    visit.require("cards")
    return PlainTextResponse(visit.desk.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")
