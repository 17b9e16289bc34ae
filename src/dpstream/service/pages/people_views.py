"""Pages of logins and people; and what programs ask."""

from __future__ import annotations

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from dpstream.service.pages.visits import Route, Visit, link, local_place, page

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
    secret = visit.desk.sign_in(visit.asked("once"))
    if secret is None:
        return visit.page("sign_in.html", 403, wrong=True, next=place)
    return visit.signed_in(secret, place)


@page(ROUTES, "POST /sign-out", open=True)
def sign_out(visit: Visit) -> Response:
    """The end of a login."""
    if visit.session:
        visit.desk.sign_out(visit.session)
    return visit.signed_out(link("/sign-in", told="out"))


@page(ROUTES, "GET /people")
def people(visit: Visit) -> Response:
    """Everybody, with roles."""
    return visit.page("people.html", people=visit.desk.people(visit.me))


@page(ROUTES, "POST /people/add")
def add_person(visit: Visit) -> Response:
    """Somebody new."""
    visit.desk.add_person(visit.me, visit.asked("name"), _roles(visit))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/roles")
def set_roles(visit: Visit) -> Response:
    """Other roles."""
    visit.desk.set_roles(visit.me, visit.asked("name"), _roles(visit))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/sign-out")
def end_sessions(visit: Visit) -> Response:
    """The end of all logins of somebody."""
    visit.desk.end_sessions(visit.me, visit.asked("name"))
    return visit.to(link("/people", told="people"))


@page(ROUTES, "POST /people/remove")
def remove_person(visit: Visit) -> Response:
    """Nobody any more."""
    visit.desk.remove_person(visit.me, visit.asked("name"))
    return visit.to(link("/people", told="people"))


def _roles(visit: Visit) -> list[str]:
    return visit.form.get("role", "").split()


@page(ROUTES, "GET /health", open=True, program=True)
def health(visit: Visit) -> Response:
    """That the pages and the database answer; for people and programs with a token the word of each stream."""
    words = visit.desk.health()
    known = visit.person is not None or visit.program
    return JSONResponse({"pages": "ok", **({"streams": words} if known else {})})


@page(ROUTES, "GET /metrics", program=True)
def metrics(visit: Visit) -> Response:
    """Public numbers of the streams, for Prometheus."""
    if not visit.program:
        visit.require("cards")
    return PlainTextResponse(visit.desk.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")
