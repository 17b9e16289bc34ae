"""One request of somebody: who it is, whether the form is ours, and how pages and redirects are made."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import ClientDisconnect

from dpstream.core.errors import InputError
from dpstream.service.desk.roles import require

if TYPE_CHECKING:
    from jinja2 import Environment

    from dpstream.service.desk import Desk, Person
    from dpstream.service.pages.documents import Documents

#: Of this process: who has no login loads a page again after a restart.
_KEY = secrets.token_bytes(32)
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
#: Fields of one form, bytes of it, and seconds that it may take, at most: forms hold a few lines of text.
_FIELDS, LARGEST, _PATIENCE = 100, 64 * 1024, 30


class FormError(InputError):
    """A form that was not sent from one of our pages, or that cannot be read; nothing was done."""


class TooLargeError(InputError):
    """More was sent than any form of ours holds; nothing was done."""


def link(path: str, **values: object) -> str:
    """An address of ours; names of streams may hold any sign.

    >>> link("/held", stream="a/b&c", step=3)
    '/held?stream=a%2Fb%26c&step=3'
    """
    return f"{path}?{urlencode(values, quote_via=quote, safe='')}" if values else path


def local_place(text: str) -> str:
    """Where to go on after a login: a place of ours, or the start.

    >>> [local_place(t) for t in ("/held?step=1", "//evil.example", "https://evil.example", "/\\\\evil", "")]
    ['/held?step=1', '/', '/', '/', '/']
    """
    ours = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if ours and len(text) < 2000 else "/"


@dataclass(frozen=True)
class Route:
    """One page or form. ``open``: for everybody, also without a login. ``program``: for programs with a token, too."""

    method: str
    path: str
    view: Callable[[Visit], Response]
    open: bool
    program: bool


def page(
    routes: list[Route], place: str, *, open: bool = False, program: bool = False
) -> Callable[[Callable[[Visit], Response]], Callable[[Visit], Response]]:
    """Put a view at a place, such as ``GET /ledger``."""
    method, path = place.split()

    def put(view: Callable[[Visit], Response]) -> Callable[[Visit], Response]:
        routes.append(Route(method, path, view, open, program))
        return view

    return put


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of a repeated field the values side by side, with a newline between.

    Errors:
        TooLargeError, FormError: as said there.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Every browser says how long its form is.
    length = request.headers.get("content-length", "")
    if kind != "application/x-www-form-urlencoded" or not length.isdigit():
        raise FormError("unknown form", where="form", allowed="a form of these pages")
    too_large = TooLargeError("the form is too large", where="form", allowed=f"up to {LARGEST} bytes")
    if int(length) > LARGEST:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():  # others may say one length and send more, in chunks
                body += part
                if len(body) > LARGEST:
                    raise too_large
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict"
        )
    except (ClientDisconnect, TimeoutError, ValueError):
        raise FormError("the form cannot be read", where="form", allowed="a form in UTF-8") from None
    form: dict[str, str] = {}
    for name, value in pairs:
        form[name] = f"{form[name]}\n{value}" if name in form else value
    return form


@dataclass
class Visit:
    """One request.

    Attributes:
        documents: reports and statements that were made before.
        person: who it is; None where nobody is signed in.
        session: the secret of the login; empty without one.
        program: whether it is a program with a token.
        form: the fields of a form that was sent.
    """

    request: Request
    desk: Desk
    templates: Environment
    documents: Documents
    person: Person | None
    session: str
    form: Mapping[str, str] = field(default_factory=dict)
    program: bool = False

    @property
    def me(self) -> Person:
        """Who it is, on pages that are not open to everybody: these are asked with a person only."""
        assert self.person is not None
        return self.person

    @property
    def safe(self) -> bool:
        """Whether a browser keeps our cookies here."""
        return not _secure(self.request) or _https(self.request)

    @property
    def here(self) -> str:
        """This page, for going back to it: where a form was sent, the page that held the form."""
        if self.request.method == "POST":
            return local_place(self.form.get("back", ""))
        query = self.request.url.query
        return local_place(self.request.url.path + (f"?{query}" if query else ""))

    @cached_property
    def _visitor(self) -> str:
        """A secret of the browser, for the forms of those who have no login of ours."""
        return self.request.cookies.get(cookie_name(self.request, "form"), "") or secrets.token_urlsafe(32)

    @property
    def token(self) -> str:
        """What each form of this visitor holds, and no other site can know."""
        if self.session:
            return hmac.new(self.session.encode(), b"a form of the pages", hashlib.sha256).hexdigest()
        # Who has no login of ours is bound to a cookie and, behind a proxy, to a name; both may be known to others, so
        # that the key of the process makes of them what others do not know.
        who = [self._visitor, "" if self.person is None else self.person.name]
        return hmac.new(_KEY, json.dumps(who).encode(), hashlib.sha256).hexdigest()

    def check_form(self) -> None:
        """Refuse a form that another site sent in this visitor's name.

        Errors:
            FormError: the token is not this visitor's, or the browser says that another site sent it.
        """
        same = hmac.compare_digest(self.form.get("token", "").encode(), self.token.encode())
        if not _from_here(self.request) or not same:
            raise FormError(
                "the form is too old or foreign",
                where="form",
                allowed="the page loaded again",
            )

    def require(self, action: str) -> None:
        """Refuse what nobody may do by this person's roles, where no method of the desk is called that says it.

        Errors:
            NotAllowedError: as said.
        """
        require(self.person, action)

    def asked(self, name: str) -> str:
        """A value of the address or of the form."""
        return self.form.get(name, self.request.query_params.get(name, "")).strip()

    def number(self, name: str) -> int:
        """A step or another small whole number.

        Errors:
            FormError: none.
        """
        text = self.asked(name)
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9):
            raise FormError(f"{name} must be a number", where="form", allowed="a whole number")
        return int(text)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page of ours."""
        values = {"visit": self, "me": self.person, "here": self.request.url.path, **values}
        text = self.templates.get_template(template).render(values)
        answer = HTMLResponse(text.encode("utf-8", "replace"), status)
        form = cookie_name(self.request, "form")
        if not self.session and form not in self.request.cookies:
            self._set(answer, form, self._visitor)
        return answer

    def to(self, place: str) -> Response:
        """Go on elsewhere, after a form; reading the page again sends nothing again."""
        return RedirectResponse(place, 303)

    def signed_in(self, secret: str, place: str) -> Response:
        """Keep a login."""
        answer = self.to(place)
        self._set(answer, cookie_name(self.request), secret)
        return answer

    def signed_out(self, place: str) -> Response:
        """Forget a login."""
        answer = self.to(place)
        answer.delete_cookie(cookie_name(self.request), **self._kept)
        return answer

    def _set(self, answer: Response, name: str, value: str) -> None:
        answer.set_cookie(name, value, **self._kept)

    @property
    def _kept(self) -> dict[str, Any]:
        """How browsers keep our cookies: for https only, everywhere but on this machine itself."""
        return {"path": "/", "secure": _secure(self.request), "httponly": True, "samesite": "strict"}


def cookie_name(request: Request, kind: str = "login") -> str:
    """With the prefix that no other host of the same site can set, where there is https."""
    return f"{'__Host-' if _secure(request) else ''}dpstream_{kind}"


def _https(request: Request) -> bool:
    """Whether the browser speaks https, as far as is told: whoever says it wrongly gets stricter cookies, no others."""
    return request.url.scheme == "https" or any(
        "https" in proto.lower() for proto in request.headers.getlist("x-forwarded-proto")
    )


def _secure(request: Request) -> bool:
    """A proxy may pass on an address of this machine as the host: what it says of https counts as well."""
    return (request.url.hostname or "") not in _LOOPBACK or _https(request)


def _from_here(request: Request) -> bool:
    """Whether a page of ours sent this form, as far as the browser says: the kind of site, or else the origin."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None or origin is None:
        return site in ("same-origin", None)
    sent, host = urlsplit(origin).netloc.lower(), request.headers.get("host", "").lower()
    # A proxy may pass on the host without its port.
    return bool(host) and host in (sent, sent.rpartition(":")[0])
