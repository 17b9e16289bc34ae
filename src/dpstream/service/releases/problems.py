"""What a reader is told when something is not to be had: RFC 9457 problem details, in plain sentences."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dpstream.core.errors import DpstreamError, InputError, RefusedError, StoreDamagedError, StoreFormatError

MEDIA_TYPE = "application/problem+json"
#: What each status means, in a few words.
TITLES = {
    400: "Wrong request",
    401: "A token is needed",
    404: "Not found",
    405: "Only GET and HEAD",
    410: "Gone",
    413: "Too large",
    416: "No such range",
    422: "Unreadable",
    500: "Damaged releases",
    503: "Not now",
}


class Problem(Exception):
    """Ends a request with a status and a sentence; ``more`` are further members of the answer.

    Attributes:
        headers: of the answer.
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.more = more


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    """The answer."""
    body = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    heads = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse({**body, **more}, status, heads, MEDIA_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Turn whatever a route raises into a problem. Where a file lies on this machine is told to nobody."""

    @app.exception_handler(Problem)
    def _problem(_request: Request, error: Problem) -> JSONResponse:
        return problem(error.status, error.detail, error.headers, **error.more)

    @app.exception_handler(DpstreamError)
    def _ours(_request: Request, error: DpstreamError) -> JSONResponse:
        if isinstance(error, InputError | RefusedError):
            more: dict[str, Any] = {} if error.allowed is None else {"allowed": error.allowed}
            return problem(413 if isinstance(error, RefusedError) else 400, error.what, **more)
        if isinstance(error, StoreDamagedError | StoreFormatError):
            return problem(500, error.what)
        return problem(503, error.what, {"Retry-After": "5"})

    @app.exception_handler(RequestValidationError)
    def _unread(_request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = [f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()]
        return problem(422, "; ".join(wrong) or "an unreadable request")

    @app.exception_handler(HTTPException)
    def _status(_request: Request, error: HTTPException) -> JSONResponse:
        detail = "nothing is at this address" if error.status_code == 404 else str(error.detail)
        return problem(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(OSError)
    def _machine(_request: Request, _error: OSError) -> JSONResponse:
        return problem(503, "the files are unavailable", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    def _bug(_request: Request, _error: Exception) -> JSONResponse:
        return problem(500, "a bug: see the server's log")
